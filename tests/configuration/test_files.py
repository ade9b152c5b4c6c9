import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from babelens.model_folders import atomic_directory
from babelens.modeling.peft_mla import save_adapter
from babelens.trainers.checkpoints import CheckpointMarks
from babelens.trainers.frozen_features import frozen_features
from babelens.utils.errors import InputError, SaveError
from babelens.utils.files import atomic_file, new_folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_place_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "x.txt"
    for text in ("first", "second"):
        with atomic_file(target) as path:
            assert path.name == "x.txt"
            path.write_text(text)
            assert not target.exists() or target.read_text() == "first"
        assert target.read_text() == text
    assert names_in(target.parent) == ["x.txt"]


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), SystemExit()])
def test_what_was_there_stays_when_the_block_fails(tmp_path: Path, failure: BaseException) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")
    with pytest.raises(type(failure)) as caught, atomic_file(target) as path:
        path.write_text("half")
        raise failure
    assert target.read_text() == "old"
    assert names_in(tmp_path) == ["x.txt"]
    if isinstance(caught.value, OSError):
        assert caught.value.errno == errno.ENOSPC
        left = "nothing was left there: No space left on device"
        assert str(caught.value) == f"{target} could not be written, and {left}"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.txt").write_text("old")
    (tmp_path / "x.txt").symlink_to("elsewhere/x.txt")
    with atomic_file(tmp_path / "x.txt") as path:
        path.write_text("new")
    assert (tmp_path / "x.txt").is_symlink()
    assert (tmp_path / "elsewhere" / "x.txt").read_text() == "new"


def test_a_folder_appears_with_all_that_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="out could not be written"), new_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("a")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not names_in(tmp_path)
    with new_folder(tmp_path / "out") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "a").write_text("a")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "deep" / "a").read_text() == "a"
    assert names_in(tmp_path) == ["out"]


@pytest.fixture
def allowed():
    before = os.umask(0o027)
    yield 0o640
    os.umask(before)


def test_files_have_the_permissions_that_the_umask_says(make_mla, tmp_path: Path, allowed: int) -> None:
    weights = {"a": torch.zeros(2)}
    with atomic_file(tmp_path / "file" / "model.safetensors") as path:
        save_file(weights, path)
    for write in (new_folder, atomic_directory):
        with write(tmp_path / write.__name__) as folder:
            (folder / "inside").mkdir()
            for place in (folder, folder / "inside"):
                save_file(weights, place / "model.safetensors")
                (place / "config.json").write_text("{}")
    marks = CheckpointMarks()
    marks.begin(tmp_path / "checkpoint-1")
    save_file(weights, tmp_path / "checkpoint-1" / "model.safetensors")
    marks.mark()
    save_adapter(make_mla()[0], "de", tmp_path / "adapter")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()} == {allowed}


def test_a_new_folder_is_made_by_one_of_two(tmp_path):
    (tmp_path / "features").mkdir()  # an empty one is taken
    outer, inner = new_folder(tmp_path / "features"), new_folder(tmp_path / "features")
    with pytest.raises(SaveError, match="features"), outer, inner as folder:
        (folder / "a").write_text("mine")
    assert [path.name for path in tmp_path.iterdir()] == ["features"]
    with pytest.raises(InputError, match="features exists: name a new folder"), new_folder(tmp_path / "features"):
        pass
    assert (tmp_path / "features" / "a").read_text() == "mine"


def test_features_are_computed_by_one_of_two(tmp_path):
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
