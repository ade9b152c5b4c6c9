"""RC3's configuration: the contract, mBART-50's sizes as defaults, and what is refused."""

import dataclasses

import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import MBartConfig, MBartModel
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

from babelens import Rc3Config, Rc3Model, load_preset
from babelens.utils.errors import LanguageTagError
from tests.contracts import TINY_RC3, ConfigContract


class TestRc3Config(ConfigContract):
    factory = "make_rc3"


# facebook/mbart-large-50's config.json, where it differs from transformers' defaults.
MBART_50 = {"vocab_size": 250_054, "scale_embedding": True}


def test_the_default_is_mbart_50_with_visual_inputs():
    config, mbart = Rc3Config(), MBartConfig(**MBART_50)
    shared = {field.name for field in dataclasses.fields(Rc3Config)} & set(MBartConfig.__annotations__)
    assert {"d_model", "encoder_layers", "decoder_ffn_dim", "scale_embedding", "dropout", "eos_token_id"} <= shared
    for name in shared - {"vocab_size"}:
        assert getattr(config, name) == getattr(mbart, name), name
    assert config.vocab_size == mbart.vocab_size + 2  # [CLS] and [SEP']
    assert (config.visual, config.region_size, config.max_regions) == ("both", 2048, 36)
    assert (config.image_size, config.patch_size, config.patches_per_image, config.patch_width) == (224, 32, 49, 768)
    assert (config.mask_probability, config.slack, config.history) == (0.15, 0.9, 100)
    assert config.to_dict() == load_preset("rc3-base").to_dict()


def test_the_languages_are_the_papers_and_their_tokens_mbart_50s():
    config = Rc3Config()
    assert set(config.languages) == {"en", "cs", "de", "fr", "id", "ja", "zh"}
    first = 250_001  # behind 250 000 pieces and fairseq's offset
    codes = {code.partition("_")[0]: first + i for i, code in enumerate(FAIRSEQ_LANGUAGE_CODES)}
    assert {tag: config.language_token_id(tag) for tag in config.languages} == {
        tag: codes[tag] for tag in config.languages
    }
    assert config.mask_token_id == first + len(FAIRSEQ_LANGUAGE_CODES)


def test_parameters_are_mbart_50s_and_those_of_the_images():
    with torch.device("meta"):
        mbart, model = MBartModel(MBartConfig(**MBART_50)), Rc3Model(Rc3Config())
    regions, patches = 2048 * 1024 + 1024, 3 * 32**2 * 768 + 768 + 768 * 1024 + 1024
    assert model.parameter_parts()["visual"] == regions + patches
    assert mbart.num_parameters() == 610_879_488
    assert model.num_parameters() == mbart.num_parameters() + 2 * 1024 + regions + patches == 616_127_232
    assert sum(model.parameter_parts().values()) == model.num_parameters()


@pytest.mark.parametrize(("visual", "layers"), [("regions", {"region"}), ("patches", {"patch"})])
def test_there_are_layers_only_for_what_the_model_reads(make_rc3, visual, layers):
    model, _ = make_rc3(visual=visual)
    names = {name.split(".")[1] for name, _ in model.named_parameters() if "_projection" in name}
    assert {name for name in names if name.endswith("_projection")} == {f"{layer}_projection" for layer in layers}


def test_only_given_labels_are_kept():
    assert Rc3Config().num_labels == 0
    for given in ({"num_labels": 2}, {"id2label": {0: "no", 1: "yes"}}):
        config = Rc3Config(**given)
        again = Rc3Config.from_dict(config.to_diff_dict())
        assert again.num_labels == config.num_labels == 2 and again.id2label == config.id2label


def test_a_language_it_does_not_know_is_refused():
    with pytest.raises(LanguageTagError, match="has not learned 'sw'; its languages are cs, de, en"):
        Rc3Config().language_token_id("sw")
    with pytest.raises(LanguageTagError):
        Rc3Config().language_token_id("klingonish")


def test_visual_inputs_of_no_kind_are_refused():
    with pytest.raises(StrictDataclassFieldValidationError, match="got boxes"):
        Rc3Config(visual="boxes")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"languages": ["en", "de"]}, "2 languages need as many language_token_ids, not 3"),
        ({"cls_token_id": 0}, "special tokens must differ"),
        ({"images_per_text": 3}, "images_per_text=3: the model reads 1 or 2"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        Rc3Config(**TINY_RC3 | settings)
