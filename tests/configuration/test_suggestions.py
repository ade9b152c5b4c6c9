"""The names that errors list begin with those that were probably meant."""

import pytest

from babelens.utils.errors import nearest_first

KNOWN = ["adam_beta1", "learning_rate", "max_steps", "num_train_epochs", "per_device_train_batch_size", "weight_decay"]


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ("lr", "learning_rate"),
        ("wd", "weight_decay"),
        ("epochs", "num_train_epochs"),
        ("batch_size", "per_device_train_batch_size"),
        ("max_step", "max_steps"),
        (1, "adam_beta1"),
    ],
)
def test_the_nearest_comes_first(given, first):
    ordered = nearest_first(given, KNOWN)
    assert ordered[0] == first and sorted(ordered) == KNOWN
