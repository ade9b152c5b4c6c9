"""ETCL's configuration: the contract, the paper's defaults, and what is refused."""

import pytest

from babelens import EtclConfig, load_preset
from tests.contracts import ConfigContract


class TestEtclConfig(ConfigContract):
    factory = "make_etcl"


def test_without_arguments_it_is_the_papers_model():
    config = EtclConfig()
    assert config.to_dict() == load_preset("etcl-base").to_dict()
    assert (config.temperature_init_value, config.text_text_margin, config.label_smoothing) == (1.0, 0.3, 0.1)
    text, vision = config.text_config, config.vision_config
    assert (text.num_hidden_layers, text.hidden_size) == (12, 768)
    assert (text.vocab_size, text.max_position_embeddings) == (501_153, 64)
    assert (vision.width_coefficient, vision.depth_coefficient, vision.image_size) == (2.0, 3.1, 289)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"triplet_text_temperature": -1}, "triplet_text_temperature=-1 must be positive"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0 must be a probability below 1"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        EtclConfig(**settings)
