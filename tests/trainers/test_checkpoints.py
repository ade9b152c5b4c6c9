"""Checkpoints that are whole or do not count."""

import json

import pytest

from babelens.configuration.errors import DamagedCheckpointError
from babelens.trainers.checkpoints import (
    check_undamaged,
    is_complete,
    mark_complete,
    newest_checkpoint,
    remove_torn_checkpoints,
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


def test_a_changed_bit_is_noticed_before_a_run_goes_on(tmp_path):
    older, newest = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    content = bytearray((newest / "weights").read_bytes())
    content[3] ^= 1
    (newest / "weights").write_bytes(content)
    assert is_complete(newest)  # by its sizes
    with pytest.raises(DamagedCheckpointError, match="checkpoint-10 is damaged, and not what was saved: weights"):
        check_undamaged(newest)
    assert newest_checkpoint(tmp_path) == older
    assert remove_torn_checkpoints(tmp_path, resumed=older) == [newest]


def test_a_file_of_zeros_is_noticed(tmp_path, caplog):
    older, newest = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    (newest / "weights").write_bytes(bytes(10))
    assert newest_checkpoint(tmp_path) == older
    assert "checkpoint-10 is damaged, and not what was saved: weights; it is skipped" in caplog.text


def test_damage_to_all_of_them_is_not_passed_over(tmp_path):
    (_checkpoint(tmp_path, 5) / "weights").write_bytes(bytes(5))
    with pytest.raises(DamagedCheckpointError, match="no other checkpoint to resume from"):
        newest_checkpoint(tmp_path)


def test_checkpoints_of_earlier_versions_count(tmp_path):
    """Their list has sizes alone."""
    path = _checkpoint(tmp_path, 5, complete=False)
    (path / "complete.json").write_text(json.dumps({"weights": 5}))
    assert newest_checkpoint(tmp_path) == path
    (path / "complete.json").write_text(json.dumps({"weights": 6}))
    assert newest_checkpoint(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", "null", "\0" * 20, '{"weights": "5"}', '{"weights": {}}'])
def test_a_damaged_list_is_none(tmp_path, content):
    (_checkpoint(tmp_path, 5) / "complete.json").write_text(content)
    assert newest_checkpoint(tmp_path) is None
