"""Features of a frozen model on disk: found again, and only for what they were computed from."""

import logging

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from babelens.trainers.frozen_features import frozen_features
from babelens.utils.errors import NonFiniteError

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


def test_what_was_computed_is_found(computed, tmp_path):
    assert computed()
    assert not computed()
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not computed(weights=dict(reversed(GIVEN["weights"].items())), items=iter(GIVEN["items"]))


def _weights(**changed):
    return {"weights": GIVEN["weights"] | changed}


@pytest.mark.parametrize(
    "change",
    [
        _weights(**{"tower.weight": torch.tensor([[0.0, 1.0], [2.0, 3.0000002]])}),
        _weights(**{"tower.weight": torch.arange(4.0)}),
        _weights(**{"tower.weight": torch.arange(4).reshape(2, 2).half()}),
        _weights(steps=torch.tensor(4)),
        _weights(more=torch.tensor(0)),
        {"weights": {"tower.weight": GIVEN["weights"]["tower.weight"]}},
        {"weights": {name.replace("tower", "power"): value for name, value in GIVEN["weights"].items()}},
        {"settings": "reads otherwise"},
        {"items": [b"bc", b"a", b"d"]},
        {"items": [b"ab", b"c", b"d"]},
        {"items": [b"a", b"bc", b"e"]},
        {"items": [b"a", b"bc"]},
        {"items": [b"a", b"bc", b"d", b""]},
    ],
    ids=[
        "one bit of a weight",
        "shape",
        "precision",
        "a buffer",
        "one weight more",
        "one weight less",
        "a name",
        "settings",
        "order",
        "borders",
        "content",
        "one item less",
        "one empty item more",
    ],
)
def test_whatever_changes_is_computed_anew(computed, change, tmp_path):
    assert computed()
    other = FEATURES[: len(change.get("items", FEATURES))] + 1
    assert computed(other, **change)
    assert not computed() and not computed(other, **change)


def test_weights_in_another_memory_layout_are_the_same_weights(computed):
    filters = torch.arange(48.0).reshape(2, 2, 3, 4)
    assert computed(**_weights(filters=filters))
    assert not computed(**_weights(filters=filters.to(memory_format=torch.channels_last)))


def test_precisions_that_numpy_does_not_know(computed):
    assert computed(**_weights(half=torch.ones(3, dtype=torch.bfloat16)))
    assert not computed(**_weights(half=torch.ones(3, dtype=torch.bfloat16)))


@pytest.mark.parametrize("trouble", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_an_interrupted_computation_leaves_nothing(computed, tmp_path, trouble):
    def compute():
        raise trouble

    with pytest.raises(type(trouble)):
        frozen_features(compute, **GIVEN, cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    assert computed()


def test_interrupted_writing_leaves_nothing(computed, tmp_path, monkeypatch):
    def torn(tensors, file):
        file.write_bytes(b"half")
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr("babelens.trainers.frozen_features.save_file", torn)
        with pytest.raises(OSError, match="could not save"):
            computed()
    assert not (tmp_path / "cache").exists()
    assert computed()


def test_computing_is_announced(computed, caplog, tmp_path):
    with caplog.at_level(logging.INFO, logger="babelens.trainers.frozen_features"):
        computed()
        computed()
    assert [record.getMessage() for record in caplog.records] == [
        f"computing features that are not in {tmp_path / 'cache'}"
    ]


@pytest.mark.parametrize("damage", ["truncated", "empty", "nan", "another name"])
def test_a_damaged_file_is_named_and_computed_again(computed, tmp_path, caplog, damage):
    assert computed()
    (file,) = (tmp_path / "cache").iterdir()
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-4])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "nan":
        save_file({"features": FEATURES * np.float32("nan")}, file)
    else:
        save_file({"futures": FEATURES}, file)
    assert computed()
    assert f"{file} is damaged" in caplog.text
    assert not computed()


def test_features_that_are_not_finite_are_not_kept(tmp_path):
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        frozen_features(lambda: FEATURES + np.float32("inf"), **GIVEN, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
