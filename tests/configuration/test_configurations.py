import dataclasses

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import BertConfig, MBartConfig, MBartModel, SiglipConfig, ViTConfig
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

from babelens import EtclConfig, LiweConfig, MlaConfig, MuralConfig, Rc3Config, Rc3Model, SmalrConfig, load_preset
from tests.contracts import TINY_RC3


@pytest.mark.parametrize(
    ("config_class", "settings", "complaint"),
    [
        (MuralConfig, {"text_config": {"model_type": "bret"}}, "'bret'"),
        (MuralConfig, {"projection_dim": 7}, "projection_dim=7"),
        (EtclConfig, {"label_smoothing": 1.0}, "label_smoothing=1.0"),
        (LiweConfig, {"annealing_rate": 1.5}, "annealing_rate=1.5"),
        (MlaConfig, {"languages": ["de", "DE"]}, "'de' twice"),
        (MlaConfig, {"acquirer": "lora"}, "acquirer"),
        (Rc3Config, TINY_RC3 | {"cls_token_id": 0}, "special tokens must differ"),
        (SmalrConfig, {"languages": ["en"], "vocabulary_sizes": [5, 6]}, "vocabulary_sizes"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(config_class, settings, complaint):
    with pytest.raises((ValueError, StrictDataclassError), match=complaint):
        config_class(**settings)


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        (MuralConfig(), "mural-base"),
        (EtclConfig(), "etcl-base"),
        (LiweConfig(), "s-liwe"),
        (LiweConfig(character_size=120), "l-liwe"),
        (Rc3Config(), "rc3-base"),
        (SmalrConfig(vector_size=300), "smalr-base"),  # models that were saved before the key do not have it
    ],
)
def test_without_arguments_it_is_a_papers_model(config, preset):
    assert config.to_dict() == load_preset(preset).to_dict()


def test_mla_begins_as_the_paper_says():
    mla = MlaConfig()
    assert (mla.text_text_objective, mla.image_text_objective, mla.logit_scale) == ("mse", "nce", 100.0)
    assert (mla.acquirer, mla.acquirer_size, mla.embedding_size) == ("mlp", 256, 768) and mla.train_embedding


# The differences of facebook/mbart-large-50's config.json from transformers' defaults.
MBART_50 = {"vocab_size": 250_054, "scale_embedding": True}


def test_rc3_is_mbart_50_with_visual_inputs():
    config, mbart = Rc3Config(), MBartConfig(**MBART_50)
    shared = {field.name for field in dataclasses.fields(Rc3Config)} & set(MBartConfig.__annotations__)
    assert {"d_model", "encoder_layers", "decoder_ffn_dim", "scale_embedding", "dropout", "eos_token_id"} <= shared
    for name in shared - {"vocab_size", "forced_eos_token_id"}:
        assert getattr(config, name) == getattr(mbart, name), name
    assert config.vocab_size == mbart.vocab_size + 2  # [CLS] and [SEP']
    assert (config.mask_probability, config.slack, config.history) == (0.15, 0.9, 100)
    first = 250_001  # behind 250 000 pieces and fairseq's offset
    codes = {code.partition("_")[0]: first + i for i, code in enumerate(FAIRSEQ_LANGUAGE_CODES)}
    for tag in ("en", "cs", "de", "fr", "id", "ja", "zh"):
        assert config.language_token_id(tag) == codes[tag]
    assert config.mask_token_id == first + len(FAIRSEQ_LANGUAGE_CODES)
    with pytest.raises(ValueError, match="has not learned 'sw'; its languages are cs, de, en"):
        config.language_token_id("sw")


def test_parameters_of_rc3_are_mbart_50s_and_those_of_the_images():
    with torch.device("meta"):
        mbart, model = MBartModel(MBartConfig(**MBART_50)), Rc3Model(Rc3Config())
    regions, patches = 2048 * 1024 + 1024, 3 * 32**2 * 768 + 768 + 768 * 1024 + 1024
    assert model.parameter_parts()["visual"] == regions + patches
    assert mbart.num_parameters() == 610_879_488
    assert model.num_parameters() == mbart.num_parameters() + 2 * 1024 + regions + patches == 616_127_232


def test_languages_become_canonical():
    config = MlaConfig(native_language="EN", languages=("zh_cn", "iw"))
    assert config.known_languages == ["en", "zh-CN", "he"]


def test_towers_are_given_as_configurations_or_as_their_settings(tmp_path):
    """Unknown keys stay; how a tower was quantized does not belong to the model."""
    text = BertConfig(hidden_size=24, num_attention_heads=2, directionality="bidi")
    vision, siglip = ViTConfig(hidden_size=36), SiglipConfig(text_config={"hidden_size": 24})
    spelled = MuralConfig(text_config=text.to_dict(), vision_config=vision.to_dict())
    assert MuralConfig(text_config=text, vision_config=vision).to_dict() == spelled.to_dict()
    assert MlaConfig(base_config=siglip).to_dict() == MlaConfig(base_config=siglip.to_dict()).to_dict()
    text.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    MuralConfig(text_config=text).save_pretrained(tmp_path)
    again = MuralConfig.from_pretrained(tmp_path).text_config
    assert again.directionality == "bidi" and not hasattr(again, "quantization_config")


def test_specific_sizes_never_exceed_the_vocabulary():
    two = {"languages": ["en", "de"], "vocabulary_sizes": [7, 3]}
    assert SmalrConfig(**two, specific_words=5).specific_sizes == [5, 3]
    mule = two | {"specific_words": None, "latent_tokens": 0}
    assert SmalrConfig(**mule).specific_sizes == [7, 3]
    assert SmalrConfig(**mule, dictionary_words=[0, 2]).specific_sizes == [7, 1]
