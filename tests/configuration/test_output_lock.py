"""One process at a time in an output folder or a cache."""

import logging
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from babelens.trainers.frozen_features import frozen_features
from babelens.utils.errors import InputError, SaveError
from babelens.utils.files import locked, new_folder

SECONDS = 60  # after which a test fails
FORKED = multiprocessing.get_context("fork")


@pytest.fixture
def waiting():
    """Set once something says that it waits for a folder."""
    said = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("waiting: "):
                said.set()

    logger, handler = logging.getLogger("babelens"), Handler(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield said
    logger.removeHandler(handler)
    logger.setLevel(before)


def hold(lock, path, pipe):
    with lock(path):
        pipe.send("locked")
        pipe.recv()


@pytest.fixture
def holder(tmp_path):
    """Starts another process, which holds a lock of `features` until it is sent something or is killed."""
    started = []

    def start(lock):
        pipe, its_own = FORKED.Pipe()
        other = FORKED.Process(target=hold, args=(lock, tmp_path / "features", its_own))
        other.start()
        started.append(other)
        assert pipe.poll(60) and pipe.recv() == "locked"
        return other, pipe

    yield start
    for other in started:
        other.kill()
        other.join()


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path, holder):
    folder = tmp_path / "features"
    other, _ = holder(locked)
    with pytest.raises(SaveError, match=r"features is in use by another process"), locked(folder):
        pass
    other.kill()
    other.join()
    with locked(folder):  # the lock is gone with the process
        pass
    assert list(folder.iterdir()) == []


def test_the_first_process_of_a_job_locks_for_all(tmp_path, monkeypatch):
    with locked(tmp_path):
        monkeypatch.setenv("RANK", "1")
        with locked(tmp_path):
            pass
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(SaveError), locked(tmp_path):
            pass
        assert (tmp_path / ".babelens.lock").exists()


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


def test_features_are_computed_by_one_of_two(tmp_path, waiting):
    """The second one waits for the first, and reads what it wrote."""
    computed, begun = [], threading.Event()

    def compute():
        computed.append(threading.get_ident())
        begun.set()
        assert waiting.wait(SECONDS)
        return np.ones((2, 3), np.float32)

    def features():
        return frozen_features(compute, identity="", items=[], cache_dir=tmp_path)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(features)
        assert begun.wait(SECONDS)
        second = threads.submit(features)
        assert np.array_equal(first.result(), second.result())
    assert len(computed) == 1
