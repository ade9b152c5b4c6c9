import numpy as np
import pytest

from babelens.trainers.frozen_features import frozen_features
from babelens.utils.errors import InputError

FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)
GIVEN = {"identity": "of a model", "items": [b"a", b"bc", b"d"]}


@pytest.fixture
def computed(tmp_path):
    def ask(features=FEATURES, **changed):
        calls = []

        def compute():
            calls.append(1)
            return features

        found = frozen_features(compute, **GIVEN | changed, cache_dir=tmp_path / "cache")
        assert found.dtype == np.float32 and np.array_equal(found, features)
        return bool(calls)

    return ask


@pytest.mark.parametrize("change", [{"identity": "of another"}, {"items": [b"ab", b"c", b"d"]}])
def test_whatever_changes_is_computed_anew(computed, change):
    assert computed() and computed(FEATURES + 1, **change)
    assert not computed(items=iter(GIVEN["items"])) and not computed(FEATURES + 1, **change)


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


def test_a_damaged_file_is_named_and_computed_again(computed, tmp_path, caplog):
    assert computed()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:-4])
    assert computed() and not computed()
    assert f"{file} is damaged" in caplog.text


def test_features_that_are_not_finite_are_not_kept(tmp_path):
    with pytest.raises(InputError, match="NaN or infinite"):
        frozen_features(lambda: FEATURES + np.float32("inf"), **GIVEN, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
