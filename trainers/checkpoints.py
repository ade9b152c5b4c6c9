"""Checkpoints that count only when they are complete. A checkpoint folder has a file `incomplete.json` while `Trainer`
writes to it, and then `complete.json` with the sizes of the other files, the run and its optimizer: a run, and the
runs that resume it, replace and delete only their own checkpoints."""

import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainerState, TrainingArguments

from ..utils.errors import InputError
from ..utils.files import SCRATCH, apply_umask, ensure_parents, errors_naming

logger = logging.getLogger(__name__)

INCOMPLETE, COMPLETE = "incomplete.json", "complete.json"


class CheckpointMarks(TrainerCallback):
    """Marks the checkpoints of a run as complete, and deletes all but the newest `limit`."""

    limit: int | None = None
    folder: Path | None = None  # of the newest checkpoint
    run: str = ""
    optimizer: str = ""

    def start(self, args: TrainingArguments, resumed: str | None = None) -> None:
        """Starts or resumes a run; another optimizer is an error, because it would silently reuse wrong moments."""
        self.limit = args.save_total_limit
        self.optimizer = str(getattr(args.optim, "value", args.optim)).removesuffix("_fused")
        earlier = _mark(resumed) if resumed else {}
        if (optimizer := earlier.get("optimizer", self.optimizer)) != self.optimizer:
            raise InputError(
                f"optim: {resumed} was trained with {optimizer}, and {self.optimizer} cannot continue with its state"
            )
        self.run = str(earlier.get("run") or uuid.uuid4().hex)

    def begin(self, folder: str | Path) -> None:
        """Creates the folder of a checkpoint before its first file is written. It replaces an incomplete checkpoint or
        a checkpoint of the same run; anything else with that name is renamed to `kept-checkpoint-N`."""
        self.folder = folder = Path(folder)
        if folder.exists() and (_mark(folder).get("run") == self.run or (folder / INCOMPLETE).is_file()):
            shutil.rmtree(folder)
        elif folder.exists():
            kept = folder.with_name(f"kept-{folder.name}")
            while kept.exists():
                kept = kept.with_name(f"kept-{kept.name}")
            folder.rename(kept)
            logger.warning("%s was not saved by this run and was renamed to %s", folder, kept.name)
        folder.mkdir(parents=True)
        self._write(folder)

    def _write(self, folder: Path, **more: Any) -> None:
        content = {"run": self.run, "optimizer": self.optimizer} | more
        (folder / INCOMPLETE).write_text(json.dumps(content, indent=1), encoding="utf-8")

    def mark(self) -> None:
        """Marks the newest checkpoint, whose files are all written, as complete."""
        if (folder := self.folder) is None or not (folder / INCOMPLETE).exists():
            return
        files = [file for file in folder.rglob("*") if file.is_file() and file.name != INCOMPLETE]
        apply_umask(*files)
        self._write(folder, files={str(file.relative_to(folder)): file.stat().st_size for file in sorted(files)})
        os.replace(folder / INCOMPLETE, folder / COMPLETE)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Deletes a checkpoint that cannot be written in the block, and raises a `SaveError` that names it."""
        try:
            yield
        except Exception:
            if self.folder is not None and (self.folder / INCOMPLETE).exists():
                shutil.rmtree(self.folder, ignore_errors=True)
                with errors_naming(self.folder):
                    raise
            raise

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.mark()  # before `on_save`, so the Hub gets the mark too

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()  # each process writes its random state
        if args.should_save and self.folder is not None:
            self.mark()
            self._rotate(state, self.folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.mark()  # for a checkpoint that was saved because the machine is preempted
        if args.should_save and state.best_model_checkpoint and self.limit == 1:  # as `Trainer` does
            self._rotate(state)

    def _rotate(self, state: TrainerState, newest: Path | None = None) -> None:
        best = Path(state.best_model_checkpoint) if state.best_model_checkpoint else None
        kept = {path.resolve() for path in (newest, best) if path}
        found = filter(is_complete, _checkpoints((newest or best or Path()).parent))
        own = [path for path in found if _mark(path).get("run") == self.run]
        excess = len(own) - max(self.limit, len(kept)) if self.limit and self.limit > 0 else 0
        for path in [path for path in own if path.resolve() not in kept][: max(excess, 0)]:
            shutil.rmtree(path)


def is_complete(folder: str | Path) -> bool:
    """Returns whether a checkpoint is marked as complete and its files have the recorded sizes."""
    try:
        files = json.loads(Path(folder, COMPLETE).read_text(encoding="utf-8"))["files"]
        return all(Path(folder, name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _mark(folder: str | Path) -> dict[str, Any]:
    for name in (COMPLETE, INCOMPLETE):
        try:
            return dict(json.loads(Path(folder, name).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
    return {}


def _checkpoints(output_dir: str | Path) -> list[Path]:
    found = [path for path in Path(output_dir).glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(filter(Path.is_dir, found), key=lambda path: int(path.name.rpartition("-")[2]))


def newest_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest complete checkpoint in `output_dir`, or None; logs a warning for newer incomplete ones."""
    for path in reversed(_checkpoints(output_dir)):
        if is_complete(path):
            return path
        logger.warning("%s is not marked as complete; it is skipped and not changed", path)
    return None


def prepare_saving(folder: str | Path) -> None:
    """Raises a `SaveError` if a folder cannot be created or written to; called before a long training run."""
    folder = Path(folder).resolve()
    with errors_naming(folder), ensure_parents(folder), TemporaryDirectory(prefix=SCRATCH, dir=folder):
        pass
