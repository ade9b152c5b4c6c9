"""Checkpoints that count once they are complete, and model folders that are replaced as a whole.

A checkpoint folder has a file `incomplete.json` while `Trainer` writes to it. When everything is written, that file
lists the sizes of the others and becomes `complete.json`. It names the run, and a resumed training continues that run.
A run replaces and deletes its own checkpoints, and never another folder.
"""

import errno
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from accelerate import PartialState
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..utils.errors import SaveError
from ..utils.files import apply_umask, made, system_error_number

logger = logging.getLogger(__name__)

_SCRATCH = ".babelens-unfinished-"  # a name that nobody else gives

INCOMPLETE, COMPLETE = "incomplete.json", "complete.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class CheckpointMarks(TrainerCallback):
    """Marks the checkpoints of a run, and deletes its older ones."""

    def __init__(self) -> None:
        self.save_total_limit: int | None = None
        self.folder: Path | None = None
        self.start()

    def start(self, resumed: str | Path | None = None) -> None:
        """Begins a run, or continues the one that wrote the checkpoint `resumed`."""
        self.run: str = (run_of(resumed) if resumed else None) or uuid.uuid4().hex

    def begin(self, folder: str | Path) -> None:
        """Makes the folder of a checkpoint, before its first file is written."""
        self.folder = Path(folder)
        make_checkpoint(self.folder, self.run)

    def mark(self) -> None:
        """Marks the newest checkpoint as complete, unless it has its mark."""
        if self.folder is not None and (self.folder / INCOMPLETE).exists():
            mark_complete(self.folder)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Deletes the checkpoint that a training in the block cannot write.

        Raises:
            SaveError: instead of the error of the disk.
        """
        try:
            yield
        except Exception as error:
            number = _system_error(error)
            if number is None or self.folder is None or not (self.folder / INCOMPLETE).exists():
                raise
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SaveError(
                number, f"could not save to {self.folder}, and nothing of it was left there: {error}"
            ) from error

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.mark()  # before `on_save`, so that the Hub gets the mark too

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()  # each process writes its random state
        if args.should_save and self.folder is not None:
            self.mark()
            self._delete_older(self.folder.parent, {self.folder, *_best(state)})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.mark()  # a checkpoint that was saved because the machine is taken away
        best = _best(state)
        if args.should_save and best and self.save_total_limit == 1:  # the last one is kept no longer, as by Trainer
            self._delete_older(best[0].parent, best)

    def _delete_older(self, output_dir: Path, kept: Collection[Path]) -> None:
        if not self.save_total_limit or self.save_total_limit < 0:
            return
        own = [path for path in checkpoints(output_dir) if is_complete(path) and run_of(path) == self.run]
        kept = {path.resolve() for path in kept}
        older = [path for path in own if path.resolve() not in kept]
        for path in older[: max(len(own) - max(self.save_total_limit, len(kept)), 0)]:
            shutil.rmtree(path)


def _best(state: TrainerState) -> list[Path]:
    return [Path(state.best_model_checkpoint)] if state.best_model_checkpoint else []


def make_checkpoint(folder: Path, run: str) -> None:
    """Makes a folder for a checkpoint of `run`.

    An incomplete checkpoint, or one of the same run, is replaced. Anything else of that name is renamed to
    `kept-checkpoint-N`.
    """
    if folder.exists():
        if run_of(folder) == run or (folder / INCOMPLETE).is_file():
            shutil.rmtree(folder)
        else:
            number, kept = 1, folder.with_name(f"kept-{folder.name}")
            while kept.exists():
                number, kept = number + 1, folder.with_name(f"kept-{folder.name}-{number + 1}")
            folder.rename(kept)
            logger.warning("%s was not saved by this run: it is now called %s", folder, kept.name)
    folder.mkdir(parents=True)
    (folder / INCOMPLETE).write_text(json.dumps({"run": run}), encoding="utf-8")


def mark_complete(folder: str | Path) -> None:
    """Marks a checkpoint as complete, after all of its files were written."""
    folder = Path(folder)
    apply_umask(*folder.rglob("*"))
    sizes = {
        str(file.relative_to(folder)): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in (INCOMPLETE, COMPLETE)
    }
    mark = json.dumps({"run": run_of(folder), "files": sizes}, indent=1)
    (folder / INCOMPLETE).write_text(mark, encoding="utf-8")
    os.replace(folder / INCOMPLETE, folder / COMPLETE)


def is_complete(folder: str | Path) -> bool:
    """Whether a checkpoint is marked as complete, and its files have the sizes that were written."""
    folder = Path(folder)
    try:
        files = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def run_of(folder: str | Path) -> str | None:
    """The run that wrote a checkpoint; None if the checkpoint has no mark."""
    for name in (COMPLETE, INCOMPLETE):
        try:
            return str(json.loads(Path(folder, name).read_text(encoding="utf-8"))["run"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return None


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders in `output_dir`, complete or not, oldest first."""
    by_step = [
        (int(match[1]), path)
        for path in Path(output_dir).glob("checkpoint-*")
        if (match := _CHECKPOINT.fullmatch(path.name)) and path.is_dir()
    ]
    return [path for _, path in sorted(by_step)]


def has_checkpoint(output_dir: str | Path) -> bool:
    """Whether there is a complete checkpoint in `output_dir`."""
    return any(map(is_complete, checkpoints(output_dir)))


def newest_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest complete checkpoint in `output_dir`, or None.

    Warnings name the newer checkpoints that are incomplete, or that another program saved.
    """
    for path in reversed(checkpoints(output_dir)):
        if is_complete(path):
            return path
        logger.warning("%s is not marked as complete; it is skipped, and left as it is", path)
    return None


# ---- Model folders ----

# Loaders read one of these first. It is removed before other files are replaced, and put back after them.
_FIRST_READ = ("config.json", "adapter_config.json")
# The weights that a loader may find there.
_WEIGHTS = re.compile(r"(model|adapter_model)(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")


@contextmanager
def atomic_directory(folder: str | Path) -> Iterator[Path]:
    """Yields a scratch folder; when the block ends without an error, its files move into `folder`.

    A process that is killed before leaves `folder` as it was. One that is killed while it moves files leaves a folder
    without a configuration, which does not load: the weights of one model are never beside the configuration of
    another. `atomic_folder` in `utils.files` makes new folders; this one may hold other files.

    Args:
        folder: created if it is missing. Other files in it are kept, except the weights of the model that is replaced,
            and the scratch folders of earlier saves that were killed.

    Raises:
        SaveError: if the block cannot write, or the files cannot be moved.
    """
    folder = Path(folder).resolve()
    with made(folder):
        scratch = Path(mkdtemp(prefix=_SCRATCH, dir=folder))
        try:
            with save_errors(folder):
                yield scratch
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        try:
            _move(scratch, folder)
        except OSError as error:
            raise SaveError(
                error.errno, f"could not save to {folder}: the files are complete, and stay in {scratch} ({error})"
            ) from error
        for left in folder.glob(f"{_SCRATCH}*"):  # also by a save that was killed
            shutil.rmtree(left)


def _move(scratch: Path, folder: Path) -> None:
    apply_umask(*scratch.rglob("*"))
    files = sorted(path.relative_to(scratch) for path in scratch.rglob("*") if path.is_file())
    for file in files:
        if (folder / file).is_dir():
            raise IsADirectoryError(errno.EISDIR, "a folder is in the place of a file", str(folder / file))
    last = [file for file in files if str(file) in _FIRST_READ]
    if last:  # the files are a model, which takes the place of another
        stale = [path for path in folder.iterdir() if _WEIGHTS.fullmatch(path.name) and Path(path.name) not in files]
        for path in [folder / name for name in _FIRST_READ] + stale:
            path.unlink(missing_ok=True)
    for file in [file for file in files if file not in last] + last:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        os.replace(scratch / file, folder / file)


@contextmanager
def save_errors(path: Path) -> Iterator[None]:
    """Turns the errors of a disk, whichever library was writing, into one that names `path`.

    Raises:
        SaveError: if the block cannot write.
    """
    try:
        yield
    except SaveError:  # of a folder within
        raise
    except Exception as error:
        number = _system_error(error)
        if number is None:
            raise
        raise SaveError(number, f"could not save to {path}, and nothing of it was left there: {error}") from error


def _system_error(error: Exception) -> int | None:
    """The number of the system error because of which a library could not write; None for any other exception."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    if (number := system_error_number(error)) is not None:
        return number
    is_torch_save = isinstance(error, RuntimeError) and "inline_container" in str(error)
    return errno.EIO if is_torch_save or isinstance(error, SafetensorError) else None


def prepare_saving(folder: str | Path) -> None:
    """Checks, before a long training begins, that a folder can be written to.

    Raises:
        SaveError: if `folder` cannot be created or written to.
    """
    folder = Path(folder).resolve()
    try:
        with made(folder), TemporaryDirectory(prefix=".unfinished-", dir=folder) as scratch:
            Path(scratch, "tried.txt").write_text("This file tests whether the folder can be written to.\n")
    except OSError as error:
        raise SaveError(error.errno, f"nothing can be saved to {folder}: {error}") from error
