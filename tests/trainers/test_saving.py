"""Folders that are saved whole."""

import errno
import os
import resource
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModel

from babelens.inference.embedder import Embedder
from babelens.trainers.checkpoints import atomic_directory, prepare_saving
from babelens.utils.errors import ModelFolderError
from tests.support.forks import forked
from tests.support.killed_saving import killed_at_each_operation
from tests.support.tiny_training import VISION, shapes_trainer, weights

OLD = {
    "config.json": "old",
    "model.safetensors": "old",
    "tokenizer.json": "old",
    "modeling.py": "old",
    "README.md": "kept",
    "checkpoints/checkpoint-1/model.safetensors": "kept",
}
NEW = {
    "config.json": "new",
    "model.safetensors.index.json": "new",
    "model-00001-of-00002.safetensors": "new",
    "model-00002-of-00002.safetensors": "new",
    "processor_config.json": "new",
    "tokenizer.json": "new",
    "code/modeling.py": "new",
}
NOBODY = 65534
REPLACED = {name: OLD[name] for name in OLD if name != "model.safetensors"} | NEW


def _write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _seen(folder):
    """What loaders see in a folder."""
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {str(file): (folder / file).read_text() for file in files if not file.parts[0].startswith(".")}


def _save(folder, files=NEW):
    with atomic_directory(folder) as scratch:
        _write(scratch, files)


def test_a_block_that_fails_leaves_nothing(tmp_path):
    with (
        pytest.raises(OSError, match=r"could not save to .*model, and nothing of it was left there: .*No space left"),
        atomic_directory(tmp_path / "deep" / "model") as scratch,
    ):
        (scratch / "half").write_text("half")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_fails_leaves_the_older_model(tmp_path):
    _write(tmp_path, OLD)
    with pytest.raises(OSError, match="No space left"), atomic_directory(tmp_path) as scratch:
        _write(scratch, NEW)
        raise Exception("No space left on device (os error 28)")  # as tokenizers raises it
    assert _seen(tmp_path) == OLD


def test_other_exceptions_stay_what_they_are(tmp_path):
    with pytest.raises(ValueError, match="a mistake"), atomic_directory(tmp_path / "model"):
        raise ValueError("a mistake")
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_ends_well_replaces_files_and_keeps_others(tmp_path):
    _write(tmp_path / "model", OLD)
    _save(tmp_path / "model")
    assert _seen(tmp_path / "model") == REPLACED
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not [path for path in (tmp_path / "model").iterdir() if path.name.startswith(".")]


def test_files_that_are_no_model_leave_a_model_alone(tmp_path):
    _write(tmp_path, OLD)
    _save(tmp_path, {"report.json": "new"})
    assert _seen(tmp_path) == OLD | {"report.json": "new"}


# ---- Killed at each operation ----


@pytest.mark.slow
@pytest.mark.parametrize("before", [{}, OLD], ids=["fresh", "over an older model"])
def test_a_killed_save_is_the_old_model_or_the_new_one_or_none(tmp_path, before):
    folder, after = tmp_path / "model", REPLACED if before else NEW
    found = {"old": 0, "none": 0, "new": 0}

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, before)

    for _ in killed_at_each_operation(lambda: _save(folder), prepare):
        seen = _seen(folder)
        state = {None: "none", "old": "old", "new": "new"}[seen.get("config.json")]
        found[state] += 1
        if state != "none":
            assert seen == (before if state == "old" else after)
        _save(folder)
        assert _seen(folder) == after
    assert _seen(folder) == after
    print(found)
    assert found["none"] > len(NEW) and found["new"] > 0 and (found["old"] > len(NEW)) == bool(before)


@pytest.mark.slow
@pytest.mark.parametrize("over", [False, True], ids=["fresh", "over an older model"])
def test_whatever_loads_after_a_kill_is_one_model(tmp_path, over):
    """A real model over one with towers of other sizes; killed whenever a name is about to change."""
    folder, older = tmp_path / "model", tmp_path / "older"
    new, old = (shapes_trainer(tmp_path, vision=VISION | {"hidden_size": size}) for size in (32, 16))
    old.model.save_pretrained(older)
    (older / "embedding.txt").write_text("kept")

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        if over:
            shutil.copytree(older, folder)

    def save():
        with atomic_directory(folder) as scratch:
            new.model.save_pretrained(scratch)
            new.processing_class.save_pretrained(scratch)

    states = []
    for _ in killed_at_each_operation(save, prepare, events=["os.rename", "os.remove"]):
        try:
            states.append(_which(folder, old, new))
        except (OSError, ValueError):  # there is no configuration
            states.append("none")
            with pytest.raises(ModelFolderError):
                Embedder.from_pretrained(folder)
    assert _which(folder, old, new) == "new"
    print(states)
    assert "none" in states and ("old" in states) == over


def _which(folder, old, new):
    loaded = weights(AutoModel.from_pretrained(folder))
    for name, trainer in (("old", old), ("new", new)):
        expected = weights(trainer.model)
        if all(np.array_equal(loaded[key], value) for key, value in expected.items()):
            return name
    raise AssertionError("a mixture")


# ---- Ordinary folders ----


def test_a_link_to_another_disk(tmp_path):
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other disk")
    with tempfile.TemporaryDirectory(dir=shared) as other:
        (tmp_path / "model").symlink_to(other)
        prepare_saving(tmp_path / "model")
        _save(tmp_path / "model")
        assert _seen(Path(other)) == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_saving(".")
    _save(".")
    _save(Path())
    assert _seen(tmp_path) == NEW


def test_a_long_name(tmp_path):
    _save(tmp_path / ("m" * 250))
    assert _seen(tmp_path / ("m" * 250)) == NEW


def test_a_folder_where_nothing_else_may_be_written(tmp_path):
    """In a container the output is often a writable folder in a read-only one. Root may write everywhere."""
    above = Path(tempfile.mkdtemp(dir="/tmp"))
    folder = above / "model"
    folder.mkdir()
    try:
        for path, mode in ((folder, 0o777), (above, 0o555)):
            path.chmod(mode)
        assert _in_a_process(lambda: (prepare_saving(folder), _save(folder)), user=NOBODY) == 0
        assert _seen(folder) == NEW
        assert stat.S_IMODE(above.stat().st_mode) == 0o555
        assert [path.name for path in above.iterdir()] == ["model"]
        assert _in_a_process(lambda: prepare_saving(above / "other"), user=NOBODY) == errno.EACCES
    finally:
        above.chmod(0o755)
        shutil.rmtree(above)


def _in_a_process(action, *, user=None):
    """The number of the system's error that an action ends with, or 0."""
    child = forked()
    if child == 0:
        code = 255
        try:
            if user is not None and os.getuid() == 0:
                os.setuid(user)
            action()
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_nothing_is_written_outside_of_the_folder(tmp_path):
    folder, strays = tmp_path / "model", []
    folder.mkdir()

    def watch(event, arguments):
        is_change = event in ("os.rename", "os.mkdir") or (event == "open" and arguments[2] & os.O_WRONLY)
        paths = [Path(path) for path in arguments[:2] if isinstance(path, str | Path)]
        strays.extend(path for path in paths if is_change and path.is_absolute() and not path.is_relative_to(folder))

    def action():
        sys.addaudithook(watch)
        prepare_saving(folder)
        _save(folder)
        if strays:
            raise OSError(errno.EXDEV, str(strays))

    assert _in_a_process(action) == 0
    assert _seen(folder) == NEW


# ---- Tried beforehand ----


def test_trying_a_folder_leaves_no_trace(tmp_path):
    prepare_saving(tmp_path / "deep" / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "model").write_text("a file")
    with pytest.raises(OSError, match=r"nothing can be saved to .*model: .*File exists"):
        prepare_saving(tmp_path / "model")


def test_what_cannot_be_moved_is_kept_and_named(tmp_path):
    """A folder is in the place of a file: the new files are kept, and the older model is whole."""
    _write(tmp_path, {"config.json": "old", "model.safetensors": "old", "tokenizer.json/inside": "mine"})
    before = _seen(tmp_path)
    with pytest.raises(OSError, match=r"\.babelens-unfinished-"):
        _save(tmp_path)
    assert _seen(tmp_path) == before
    (kept,) = tmp_path.glob(".babelens-unfinished-*")
    assert _seen(kept) == NEW


def test_a_model_replaces_a_model_and_deletes_nothing_else(tmp_path):
    """Features, other weights and hidden folders of the user's are no part of the model that is replaced."""
    own = {
        "features.safetensors": "mine",
        "model-of-a-friend.safetensors": "mine",
        ".saving/notes.txt": "mine",
        ".saved/notes.txt": "mine",
        ".moving/notes.txt": "mine",
    }
    _write(tmp_path, OLD | own)
    prepare_saving(tmp_path)
    _save(tmp_path)
    assert all((tmp_path / name).read_text() == text for name, text in own.items())
    assert not (tmp_path / "model.safetensors").exists()  # the older model's, beside the index of the new one


def test_a_full_disk_is_one_sentence_whoever_writes(tmp_path):
    """A limit on the size of files stands in for the full disk."""
    trainer = shapes_trainer(tmp_path)

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        with atomic_directory(tmp_path / "model") as scratch:
            trainer.processing_class.tokenizer.save_pretrained(scratch)

    assert _in_a_process(full) == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
