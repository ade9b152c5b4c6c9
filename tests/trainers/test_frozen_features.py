"""Features of a frozen model on disk: found again, and only for what they were computed from."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from babelens.trainers.frozen_features import frozen_features
from babelens.utils.errors import InputError

FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)
GIVEN = {
    "weights": {"tower.weight": torch.arange(4.0).reshape(2, 2), "steps": torch.tensor(3)},
    "settings": "reads as it reads",
    "items": [b"a", b"bc", b"d"],
}


@pytest.fixture
def computed(tmp_path):
    """Asks for features with some of `GIVEN` changed; says whether they were computed."""

    def ask(features=FEATURES, **changed):
        calls = []

        def compute():
            calls.append(1)
            return features

        found = frozen_features(compute, **GIVEN | changed, cache_dir=tmp_path / "cache")
        assert found.dtype == np.float32 and np.array_equal(found, features)
        return bool(calls)

    return ask


def _weights(**changed):
    return {"weights": GIVEN["weights"] | changed}


@pytest.mark.parametrize(
    "change",
    [
        _weights(**{"tower.weight": torch.tensor([[0.0, 1.0], [2.0, 3.0000002]])}),
        _weights(**{"tower.weight": torch.arange(4).reshape(2, 2).half()}),
        {"settings": "reads otherwise"},
        {"items": [b"ab", b"c", b"d"]},
    ],
    ids=["one bit of a weight", "precision", "settings", "borders"],
)
def test_whatever_changes_is_computed_anew(computed, change, tmp_path):
    assert computed() and computed(FEATURES + 1, **change)
    assert not computed() and not computed(FEATURES + 1, **change)
    assert not computed(weights=dict(reversed(GIVEN["weights"].items())), items=iter(GIVEN["items"]))


def test_weights_in_another_memory_layout_are_the_same_weights(computed):
    filters = torch.arange(48.0).reshape(2, 2, 3, 4)
    assert computed(**_weights(filters=filters))
    assert not computed(**_weights(filters=filters.to(memory_format=torch.channels_last)))


def test_what_is_interrupted_leaves_nothing(computed, tmp_path, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    def torn(tensors, file):
        file.write_bytes(b"half")
        raise OSError(28, "no space left")

    with pytest.raises(KeyboardInterrupt):
        frozen_features(interrupted, **GIVEN, cache_dir=tmp_path / "cache")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="could not be written"):
        patched.setattr("babelens.trainers.frozen_features.save_file", torn)
        computed()
    assert not (tmp_path / "cache").exists()
    assert computed()


@pytest.mark.parametrize("damage", ["truncated", "nan"])
def test_a_damaged_file_is_named_and_computed_again(computed, tmp_path, caplog, damage):
    assert computed()
    (file,) = (tmp_path / "cache").iterdir()
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-4])
    else:
        save_file({"features": FEATURES * np.float32("nan")}, file)
    assert computed() and not computed()
    assert f"{file} is damaged" in caplog.text


def test_features_that_are_not_finite_are_not_kept(tmp_path):
    with pytest.raises(InputError, match="NaN or infinite"):
        frozen_features(lambda: FEATURES + np.float32("inf"), **GIVEN, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
