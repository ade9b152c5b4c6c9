"""SMALR's configuration: the contract, the paper's defaults, the family, and what is refused."""

import pytest
import torch

from babelens import SmalrConfig, SmalrModel, load_preset
from tests.contracts import ConfigContract


class TestSmalrConfig(ConfigContract):
    factory = "make_smalr"


def test_without_arguments_it_is_the_papers_model():
    config = SmalrConfig(vector_size=300)  # which models that were saved before the key do not have
    assert config.to_dict() == load_preset("smalr-base").to_dict()
    assert config.languages == ["en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru"]
    assert (config.specific_words, config.latent_tokens, config.word_size, config.hidden_size) == (
        5000,
        40_000,
        50,
        512,
    )
    assert (config.exploration_tokens, config.exploration_probability) == (20, 0.2)
    assert (config.mask_weight, config.adversarial_weight, config.neighborhood_weight) == (1e-4, 1e-6, 5e-2)


def parts(**options):
    with torch.device("meta"):
        return SmalrModel(SmalrConfig(**options)).parameter_parts()


def test_seven_of_twenty_million_parameters_remain():
    """Ten languages of 10 000 words, 15 000 of the latent tokens in use (section 3; tokens that stand for no word are
    dropped)."""
    trained = parts(latent_tokens=15_000)
    assert sum(trained.values()) < 20e6
    assert (trained["image"] + trained["transformer"]) / 1e6 == pytest.approx(7.1, rel=0.1)


def test_specific_sizes_never_exceed_the_vocabulary():
    config = SmalrConfig(languages=["en", "de"], vocabulary_sizes=[7, 3], specific_words=5)
    assert config.specific_sizes == [5, 3]
    mule = {"languages": ["en", "de"], "vocabulary_sizes": [7, 3], "specific_words": None, "latent_tokens": 0}
    assert SmalrConfig(**mule).specific_sizes == [7, 3]
    assert SmalrConfig(**mule, dictionary_words=[0, 2]).specific_sizes == [7, 1]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"languages": ["en"], "vocabulary_sizes": [5, 6]}, "1 languages need as many vocabulary_sizes .* not 2"),
        ({"dictionary_words": [1]}, "languages need as many .*dictionary_words"),
        ({"languages": ["klingonish"]}, "klingonish"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        SmalrConfig(**settings)


def test_a_folder_of_version_0_1_has_a_key_in_british_spelling():
    saved = SmalrConfig().to_dict()
    del saved["neighborhood_weight"]
    config = SmalrConfig.from_dict(saved | {"neighbourhood_weight": 0.3})
    assert config.neighborhood_weight == 0.3 and "neighbourhood_weight" not in config.to_dict()
