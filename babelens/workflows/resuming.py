"""Going on with a recipe's run: with what it began with, or not at all."""

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transformers import AutoProcessor, ProcessorMixin

from ..configuration.pretrained import load_processor
from ..trainers.checkpoints import newest_checkpoint
from ..trainers.saving import atomic_directory
from .recipe import PROCESSOR, Recipe
from .record import RunRecord, flattened

if TYPE_CHECKING:
    from .base import RecipeRun

CHECKPOINTS = "checkpoints"
# What is for people, or for the report; data is known by its digest, wherever it lies and however it is read.
_UNRECORDED = re.compile(
    r"(license|license_name|report|unseen_languages|validation|test)\b.*|train\.[^.]+\.(license|attribution)"
)
_READING = re.compile(r"(train\.[^.]+)\.(source|options\b.*)")
# What a run goes on with when it has changed, as a warning says: its weights are in the checkpoint.
_MAY_CHANGE = re.compile(
    r"(stages\.[^.]+\.)?training\b.*|model\.(from_pretrained|attn_implementation)|(backbone|regions)\b.*"
)


def record_start(run: "RecipeRun", processor: ProcessorMixin) -> None:
    """Keeps what a run begins with: its settings, digests of its data, and its processor."""
    _record(run).write(run.output / CHECKPOINTS)
    with atomic_directory(run.output / CHECKPOINTS / PROCESSOR) as scratch:
        processor.save_pretrained(scratch)


def resumed_processor(run: "RecipeRun") -> ProcessorMixin | None:
    """The processor that a run began with, as the weights know its words and no others. Earlier versions kept it in
    checkpoints alone; None where there is none yet.

    Raises:
        ChangedRunError: for other data than the run began with, and for settings that cannot change on the way.
    """
    folder = run.output / CHECKPOINTS
    _record(run).check(folder, may_change=lambda key: _MAY_CHANGE.fullmatch(key) is not None)
    stages = (newest_checkpoint(folder / stage.name) for stage in reversed(run.stages))
    saved = folder / PROCESSOR if (folder / PROCESSOR).is_dir() else next(filter(None, stages), None)
    return None if saved is None else load_processor(AutoProcessor, saved)


def _record(run: "RecipeRun") -> RunRecord:
    streams = {f"train.{task}" for task in run.streams} if run.recipe.task is None else set()
    return RunRecord(_settings(run.recipe, streams), run.data_digests())


def _settings(recipe: Recipe, streams: set[str]) -> dict[str, Any]:
    """What of a recipe bears on its training, by dotted keys; how streams are read is all that is known of them."""
    content = asdict(recipe)
    content["stages"] = {stage["name"]: stage for stage in content["stages"]}
    return {
        key: value
        for key, value in flattened(content).items()
        if not _UNRECORDED.fullmatch(key) and not ((reading := _READING.fullmatch(key)) and reading[1] not in streams)
    }
