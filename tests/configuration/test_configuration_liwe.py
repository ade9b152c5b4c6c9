"""LIWE's configuration: the contract, the two sizes, and what is refused."""

import pytest
import torch

from babelens import LiweConfig, LiweModel, load_preset
from tests.contracts import ConfigContract


class TestLiweConfig(ConfigContract):
    factory = "make_liwe"


def test_without_arguments_it_is_the_small_one():
    assert LiweConfig().to_dict() == load_preset("s-liwe").to_dict()
    assert load_preset("l-liwe").to_dict() == LiweConfig(character_size=120).to_dict()


def test_the_cost_of_a_larger_character():
    with torch.device("meta"):
        small, large = (LiweModel(load_preset(name)).parameter_parts() for name in ("s-liwe", "l-liwe"))
    assert large.pop("embeddings") - small.pop("embeddings") == 96 * (4096 + 26 * 384)
    assert large == small == {"image": 2049 * 1024, "transformer": 2 * 3 * 1024 * (300 + 1024 + 2)}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"annealing_rate": 1.5}, "annealing_rate=1.5 must be a probability"),
        ({"word_length": 0}, "word_length=0 must be positive"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        LiweConfig(**settings)
