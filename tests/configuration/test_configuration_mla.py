"""MLA's configuration: the contract, the paper's defaults, and what is refused."""

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import CLIPConfig, SiglipConfig

from babelens import MlaConfig
from tests.contracts import ConfigContract


class TestMlaConfig(ConfigContract):
    factory = "make_mla"


def test_without_arguments_it_is_the_papers_model():
    config = MlaConfig()
    base = config.base_config
    assert type(base) is CLIPConfig
    assert (base.text_config.hidden_size, base.text_config.max_position_embeddings) == (512, 77)
    assert (base.vision_config.patch_size, base.projection_dim) == (32, 512)
    assert (config.acquirer, config.acquirer_size) == ("mlp", 256)
    assert (config.vocab_size, config.embedding_size, config.sep_token_id) == (119_547, 768, 102)
    assert (config.text_text_objective, config.image_text_objective, config.logit_scale) == ("mse", "nce", 100.0)
    assert config.train_embedding
    assert config.known_languages == ["en", "de", "fr", "cs", "zh", "ja"]


def test_languages_become_canonical():
    config = MlaConfig(native_language="EN", languages=("zh_cn", "iw"))
    assert config.known_languages == ["en", "zh-CN", "he"]


def test_the_native_model_is_a_configuration_or_settings():
    base = SiglipConfig(text_config={"hidden_size": 24, "num_attention_heads": 2})
    given, spelled = MlaConfig(base_config=base), MlaConfig(base_config=base.to_dict())
    assert given.to_dict() == spelled.to_dict()
    assert type(spelled.base_config) is SiglipConfig and spelled.base_config.text_config.hidden_size == 24


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"languages": ["de", "DE"]}, r"languages=\['de', 'de'\] names 'de' twice"),
        ({"languages": ["de", "en"]}, "'en' is the native language: there is nothing to acquire"),
        ({"acquirer_size": 0}, "acquirer_size=0 must be positive"),
        ({"vocab_size": 50, "sep_token_id": 50}, "sep_token_id=50 is not in a vocabulary of 50"),
        ({"acquirer": "lora"}, "acquirer"),
        ({"base_config": {"model_type": "clp"}}, "base_config: transformers has no model type 'clp'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(settings, complaint):
    with pytest.raises((ValueError, StrictDataclassError), match=complaint):
        MlaConfig(**settings)


def test_native_ids_may_lie_beyond_the_learned_vocabulary(monkeypatch):
    """Trainers write them; transformers warned of them each time."""
    said = []
    monkeypatch.setattr("transformers.configuration_utils.logger.warning_once", said.append)
    MlaConfig(vocab_size=122, sep_token_id=3, pad_token_id=49407, eos_token_id=49407).to_dict()
    assert not said
