"""MURAL's configuration: the contract, the paper's defaults, and what is refused."""

import pytest
from transformers import BertConfig, ViTConfig

from babelens import MuralConfig, load_preset
from tests.contracts import ConfigContract


class TestMuralConfig(ConfigContract):
    factory = "make_mural"


def test_without_arguments_it_is_the_papers_base_model():
    config = MuralConfig()
    assert config.to_dict() == load_preset("mural-base").to_dict()
    assert config.tasks == ["image_text", "text_text"]
    assert (config.temperature_init_value, config.text_text_temperature, config.text_text_margin) == (1.0, 0.01, 0.3)
    text, vision = config.text_config, config.vision_config
    assert (text.num_hidden_layers, text.num_attention_heads, text.hidden_size) == (12, 12, 768)
    assert (text.vocab_size, text.max_position_embeddings) == (250_000, 64)
    assert (vision.width_coefficient, vision.depth_coefficient, vision.image_size) == (1.6, 2.2, 289)


def test_towers_are_given_as_configurations_or_as_their_settings():
    text, vision = BertConfig(hidden_size=24, num_attention_heads=2), ViTConfig(hidden_size=36)
    given = MuralConfig(text_config=text, vision_config=vision)
    spelled = MuralConfig(text_config={"hidden_size": 24, "num_attention_heads": 2}, vision_config=vision.to_dict())
    assert given.to_dict() == spelled.to_dict()
    assert type(spelled.vision_config) is ViTConfig


def test_leftover_keys_of_a_configuration_are_kept(tmp_path):
    """As `AutoConfig.from_pretrained("bert-base-multilingual-cased")` gives it."""
    dragging = BertConfig(hidden_size=24, num_attention_heads=2, directionality="bidi", pooler_fc_size=768)
    config = MuralConfig(text_config=dragging)
    config.save_pretrained(tmp_path)
    assert MuralConfig.from_pretrained(tmp_path).text_config.directionality == "bidi"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tasks": ["image_text", "translation"]}, r"tasks=\['image_text', 'translation'\]: MURAL has"),
        ({"text_text_temperature": -0.01}, "text_text_temperature=-0.01 must be positive"),
        ({"text_config": {"model_type": "bret"}}, "text_config: transformers has no model type 'bret'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        MuralConfig(**settings)


def test_a_towers_folder_is_no_part_of_the_model():
    quantised = BertConfig(hidden_size=24, num_attention_heads=2)
    quantised.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert not hasattr(MuralConfig(text_config=quantised).text_config, "quantization_config")
    assert quantised.quantization_config["load_in_8bit"]


def test_a_shared_space_of_another_width_is_refused():
    assert MuralConfig(projection_dim=MuralConfig().projection_dim) == MuralConfig()
    with pytest.raises(ValueError, match="projection_dim=7, but the towers' shared space is"):
        MuralConfig(projection_dim=7)
