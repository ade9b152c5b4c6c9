"""Checkpoints that are whole or do not count."""

import pytest

from babelens.trainers.checkpoints import (
    is_complete,
    mark_complete,
    newest_checkpoint,
    remove_torn_checkpoints,
    written_whole,
)


def _checkpoint(folder, step, complete=True):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_text("w" * step)
    if complete:
        mark_complete(path)
    return path


def test_the_newest_complete_checkpoint_is_found(tmp_path):
    _checkpoint(tmp_path, 5)
    newest = _checkpoint(tmp_path, 10)
    torn = _checkpoint(tmp_path, 100, complete=False)
    assert newest_checkpoint(tmp_path) == newest
    assert remove_torn_checkpoints(tmp_path) == [torn]
    assert not torn.exists()


def test_none_where_there_is_none(tmp_path):
    assert newest_checkpoint(tmp_path / "missing") is None


def test_a_file_that_was_cut_off_spoils_the_checkpoint(tmp_path):
    path = _checkpoint(tmp_path, 5)
    (path / "weights").write_text("w")
    assert not is_complete(path)
    (path / "weights").unlink()
    assert not is_complete(path)


def test_a_block_that_fails_leaves_nothing(tmp_path):
    with (
        pytest.raises(OSError, match=r"could not save to .*model, and nothing was left there: .*No space left"),
        written_whole(tmp_path / "model") as scratch,
    ):
        (scratch / "half").write_text("half")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_ends_well_replaces_files_and_keeps_others(tmp_path):
    target = tmp_path / "model"
    (target / "checkpoints").mkdir(parents=True)
    (target / "weights").write_text("old")
    with written_whole(target) as scratch:
        (scratch / "weights").write_text("new")
        (scratch / "sub").mkdir()
        (scratch / "sub" / "more").write_text("more")
    assert (target / "weights").read_text() == "new"
    assert (target / "sub" / "more").read_text() == "more"
    assert (target / "checkpoints").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
