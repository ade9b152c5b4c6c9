"""A recipe, run: from data to a model folder that holds the model, its processor, its evaluation and its card."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import AutoProcessor, ProcessorMixin, set_seed

from ..configuration.errors import RecipeError
from ..configuration.hub_code import refuse_kernels
from ..configuration.identity import holds_weights
from ..configuration.pretrained import load_processor
from ..configuration.redaction import redact
from ..trainers.base import BabelensTrainer
from ..trainers.checkpoints import atomic_directory, newest_checkpoint, prepare_saving
from .data import RecipeData, RunRecord, flattened
from .loading import RunParts, workflow_of
from .recipe import PROCESSOR, Recipe
from .recipe_checks import check_arguments_fit, check_data, check_recipe, check_start, warn_of_overlap
from .reporting import EVALUATION as EVALUATION, write_evaluation
from .run_results import is_finished_run
from .training import CHECKPOINTS as CHECKPOINTS


def recipe_data(recipe: Recipe) -> RecipeData:
    """The data of a recipe, read as its method reads them."""
    return workflow_of(recipe.method, recipe.task_name).data(recipe)


class RecipeRun(RunParts):
    """One run of a recipe; arguments as those of `RunParts`."""

    def check(self) -> None:
        """Checks whatever can be known of the recipe before data is read; also what is only needed at the end.

        Raises:
            RecipeError: for a recipe that does not fit its method.
        """
        with self._file_named():
            self.training.check_tasks()
            check_recipe(self)
            if not self.trust_remote_code:
                refuse_kernels(asdict(self.recipe.model), "model")
            self.builder.check()

    def train(self, *, resume: bool = False) -> BabelensTrainer:
        """Trains and saves model and processor; returns the trainer of the last stage.

        Args:
            resume: go on from the newest checkpoint, where there is one.

        Raises:
            RecipeError: for a recipe that does not fit its method, its data or the trainer's arguments.
            ChangedRunError: when data or settings are not those that the run to resume began with.
            FileExistsError: when `output` holds a run or a model already and `resume` was not asked for, and when a
                finished run has no checkpoints to resume from.
            SaveError: when nothing can be saved to `output`.
        """
        with self._file_named():
            return self._train(resume=resume)

    def _train(self, *, resume: bool) -> BabelensTrainer:
        has_run = self.training.has_begun()
        if has_run and not resume:
            raise FileExistsError(f"{self.output} holds a run already: resume it, or choose another folder")
        if not has_run:
            self._check_free(resume=resume)
        self.check()
        arguments = [self.training.arguments(stage) for stage in self.recipe.all_stages]  # before any is trained
        check_arguments_fit(self, arguments)
        check_start(self)
        first = arguments[0]
        with first.main_process_first(local=False, desc="the output folder"):
            if first.process_index == 0:
                prepare_saving(self.output)
        check_data(self, arguments)
        if first.process_index == 0:
            warn_of_overlap(self.data.overlaps)
        set_seed(first.seed)
        processor = (resumed_processor(self) if has_run else None) or self.builder.make_processor()
        model = self.builder.make_model(processor)
        if not has_run and first.process_index == 0:
            record_start(self, processor)
        trainer, model = self.training.train(model, processor)
        if trainer.is_world_process_zero():
            with atomic_directory(self.output) as scratch:
                model.save_pretrained(scratch)
                processor.save_pretrained(scratch)
            write_evaluation(self.output, "tokenizer", self.builder.unknown_rates(processor))
        trainer.accelerator.wait_for_everyone()
        return trainer

    def _check_free(self, *, resume: bool) -> None:
        """Checks that no model would be overwritten, whose card and results would stay. A run without checkpoints
        that was interrupted between its model and its card begins anew when it is resumed."""
        if not (holds_weights(self.output) and (self.output / "config.json").is_file()):
            return
        if not resume:
            raise FileExistsError(f"{self.output} holds a model already: choose another folder, or remove it")
        if is_finished_run(self.output):
            raise FileExistsError(
                f"{self.output} holds a finished model, and no checkpoint to resume from: choose another folder"
            )

    @contextmanager
    def _file_named(self) -> Iterator[None]:
        """Puts the recipe's file before what is wrong with the recipe."""
        try:
            yield
        except RecipeError as error:
            file = self.recipe.file
            if file is None or str(error).startswith(f"{file}: "):
                raise
            raise RecipeError(f"{file}: {error}") from error

    def report(self) -> dict[str, Any] | None:
        """The results that the recipe asks for, measured on the saved model; also in `output/evaluation`. None for a
        recipe that asks for none."""
        return self.reporting.report()

    def write_card(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> Path:
        """Evaluates the saved model on the recipe's validation data, and writes the model card.

        Args:
            trainer: the result of `train`.
            report: the result of `report`.

        Returns:
            The card's path.
        """
        return self.reporting.write_card(trainer, report)


# ---- Resuming a recipe's run: only with the data and the settings with which it began ----

# Keys without influence on the weights. Of data, the digest is recorded: its path and the way of reading may change.
_UNRECORDED = re.compile(
    r"(file|license|license_name|report|unseen_languages|validation|test)\b.*|train\.[^.]+\.(license|attribution)"
)
_READING = re.compile(r"(train\.[^.]+)\.(source|options\b.*)")
# Keys that may change with a warning, since the weights are in the checkpoint.
_MAY_CHANGE = re.compile(
    r"(stages\.[^.]+\.)?training\b.*|model\.(from_pretrained|attn_implementation)|(backbone|regions)\b.*"
)


def record_start(run: RecipeRun, processor: ProcessorMixin) -> None:
    """Saves the record of a run's beginning, and its processor, beside the checkpoints."""
    _record(run).write(run.output / CHECKPOINTS)
    with atomic_directory(run.output / CHECKPOINTS / PROCESSOR) as scratch:
        processor.save_pretrained(scratch)


def resumed_processor(run: RecipeRun) -> ProcessorMixin | None:
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


def _record(run: RecipeRun) -> RunRecord:
    streams = {f"train.{task}" for task in run.data.streams}
    return RunRecord(redact(_settings(run.recipe, streams)), run.data.digests())


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
