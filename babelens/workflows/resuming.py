"""Resuming a recipe's run: only with the data and the settings with which it began."""

import re
from dataclasses import asdict
from typing import Any

from transformers import AutoProcessor, ProcessorMixin

from ..configuration.pretrained import load_processor
from ..trainers.checkpoints import atomic_directory, newest_checkpoint
from .parts import RunParts
from .recipe import PROCESSOR, Recipe
from .record import RunRecord, flattened
from .training import CHECKPOINTS

# Keys without influence on the weights. Of data, the digest is recorded: its path and the way of reading may change.
_UNRECORDED = re.compile(
    r"(file|license|license_name|report|unseen_languages|validation|test)\b.*|train\.[^.]+\.(license|attribution)"
)
_READING = re.compile(r"(train\.[^.]+)\.(source|options\b.*)")
# Keys that may change with a warning, since the weights are in the checkpoint.
_MAY_CHANGE = re.compile(
    r"(stages\.[^.]+\.)?training\b.*|model\.(from_pretrained|attn_implementation)|(backbone|regions)\b.*"
)


def record_start(run: RunParts, processor: ProcessorMixin) -> None:
    """Saves the record of a run's beginning, and its processor, beside the checkpoints."""
    _record(run).write(run.output / CHECKPOINTS)
    with atomic_directory(run.output / CHECKPOINTS / PROCESSOR) as scratch:
        processor.save_pretrained(scratch)


def check_finished(run: RunParts) -> None:
    """Checks that a finished run is one of this recipe, with these data.

    Raises:
        ChangedRunError: for data or settings that are not those of the run.
    """
    _record(run).check(run.output / CHECKPOINTS)


def resumed_processor(run: RunParts) -> ProcessorMixin | None:
    """The processor with which a run began, for whose vocabulary its weights were trained. Earlier versions kept it in
    checkpoints alone; None before the first checkpoint of theirs.

    Raises:
        ChangedRunError: for other data than the run began with, and for settings that cannot change on the way.
    """
    folder = run.output / CHECKPOINTS
    _record(run).check(folder, may_change=lambda key: _MAY_CHANGE.fullmatch(key) is not None)
    stages = (newest_checkpoint(folder / stage.name) for stage in reversed(run.recipe.all_stages))
    saved = folder / PROCESSOR if (folder / PROCESSOR).is_dir() else next(filter(None, stages), None)
    return None if saved is None else load_processor(AutoProcessor, saved)


def _record(run: RunParts) -> RunRecord:
    streams = {f"train.{task}" for task in run.data.streams}
    return RunRecord(_settings(run.recipe, streams), run.data.digests())


def _settings(recipe: Recipe, streams: set[str]) -> dict[str, Any]:
    """The keys of a recipe that influence its training; of streams, which have no digest, also those by which they are
    read."""
    content = asdict(recipe)
    content["stages"] = {stage["name"]: stage for stage in content["stages"]}
    return {
        key: value
        for key, value in flattened(content).items()
        if not _UNRECORDED.fullmatch(key) and not ((reading := _READING.fullmatch(key)) and reading[1] not in streams)
    }
