"""One of two writers makes a new folder or a cached file."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from babelens.trainers.frozen_features import frozen_features
from babelens.utils.errors import InputError, SaveError
from babelens.utils.files import new_folder


def test_a_new_folder_is_made_by_one_of_two(tmp_path):
    """The second never takes the other's folder for its own."""
    (tmp_path / "features").mkdir()  # an empty one is taken
    outer, inner = new_folder(tmp_path / "features"), new_folder(tmp_path / "features")
    with pytest.raises(SaveError, match="features"), outer, inner as folder:
        (folder / "a").write_text("mine")
    assert [path.name for path in tmp_path.iterdir()] == ["features"]
    with pytest.raises(InputError, match="features exists: name a new folder"), new_folder(tmp_path / "features"):
        pass
    assert (tmp_path / "features" / "a").read_text() == "mine"


def test_features_are_computed_by_one_of_two(tmp_path):
    """The second one waits for the first, and reads what it wrote."""
    computed, begun, asked = [], threading.Event(), threading.Event()

    def compute():
        computed.append(threading.get_ident())
        begun.set()
        assert asked.wait(60)
        return np.ones((2, 3), np.float32)

    def features(items=()):
        return frozen_features(compute, identity="", items=items, cache_dir=tmp_path)

    def asking():
        asked.set()  # while the digest of the second call is computed, the first one holds the lock
        yield from ()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(features)
        assert begun.wait(60)
        second = threads.submit(features, asking())
        assert np.array_equal(first.result(), second.result())
    assert len(computed) == 1
