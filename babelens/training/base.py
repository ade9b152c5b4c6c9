"""Runs a recipe: from data to a folder with the model, its processor, its evaluation and its card."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoProcessor, ProcessorMixin, set_seed

from ..evaluation.results import RESULTS
from ..trainers.base import BabelensTrainer
from ..trainers.checkpoints import atomic_directory, prepare_saving
from ..utils.errors import InputError, RecipeError
from ..utils.hub_code import refuse_kernels
from ..utils.identity import holds_weights
from ..utils.pretrained import load_processor
from ..utils.redaction import redact
from .data import RecipeData
from .loading import RunParts, workflow_of
from .recipe import PROCESSOR, Recipe
from .recipe_checks import check_arguments_fit, check_data, check_recipe, check_start, warn_of_overlap
from .recipe_file import parse
from .training import CHECKPOINTS as CHECKPOINTS


def recipe_data(recipe: Recipe) -> RecipeData:
    """The data of a recipe, read by the class of its method."""
    return workflow_of(recipe.method, recipe.task_name).data(recipe)


class RecipeRun(RunParts):
    """One run of a recipe; arguments as in `RunParts`."""

    def check(self) -> None:
        """Checks everything that can be checked before data is read, including keys that are only used at the end.

        Raises:
            RecipeError: if the recipe does not fit its method.
        """
        with self._file_named():
            self.training.check_tasks()
            check_recipe(self)
            if not self.trust_remote_code:
                refuse_kernels(self.recipe.model.model_dump(), "model")
            self.builder.check()

    def train(self, *, resume: bool = False) -> BabelensTrainer:
        """Trains and saves the model and its processor; returns the trainer of the last stage.

        Args:
            resume: continue from the newest checkpoint, if there is one.

        Raises:
            RecipeError: if the recipe does not fit its method, its data or the trainer's arguments.
            InputError: if the run to resume began with another recipe.
            FileExistsError: if `output` already holds a run or a model and `resume` is not set, or if a finished run
                has no checkpoints to resume from.
            SaveError: if nothing can be saved to `output`.
        """
        with self._file_named():
            return self._train(resume=resume)

    def _train(self, *, resume: bool) -> BabelensTrainer:
        has_run = self.training.has_begun()
        if has_run and not resume:
            raise FileExistsError(f"{self.output} already holds a run: resume it, or choose another folder")
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
        has_record = has_run and (self.output / CHECKPOINTS / RECIPE).is_file()  # a stage may come from another run
        if has_record:
            check_unchanged(self)
            processor = load_processor(AutoProcessor, self.output / CHECKPOINTS / PROCESSOR)
        else:
            processor = self.builder.make_processor()
        model = self.builder.make_model(processor)
        if not has_record and first.process_index == 0:
            record_start(self, processor)
        trainer, model = self.training.train(model, processor)
        if trainer.is_world_process_zero():
            with atomic_directory(self.output) as scratch:
                model.save_pretrained(scratch)
                processor.save_pretrained(scratch)
            self.reporting.unknown_rates = self.builder.unknown_rates(processor)
        trainer.accelerator.wait_for_everyone()
        return trainer

    def _check_free(self, *, resume: bool) -> None:
        """Checks that no model would be overwritten, because its card and results would stay. A resumed run without
        checkpoints, interrupted between saving its model and its card, starts over."""
        if not (holds_weights(self.output) and (self.output / "config.json").is_file()):
            return
        if not resume:
            raise FileExistsError(f"{self.output} already holds a model: choose another folder, or remove it")
        if (self.output / RESULTS).is_file():
            raise FileExistsError(
                f"{self.output} holds a finished model, and no checkpoint to resume from: choose another folder"
            )

    @contextmanager
    def _file_named(self) -> Iterator[None]:
        """Adds the recipe's file to its errors."""
        try:
            yield
        except RecipeError as error:
            file = self.recipe.file
            if file is None or str(error).startswith(f"{file}: "):
                raise
            raise RecipeError(f"{file}: {error}") from error

    def report(self) -> dict[str, Any] | None:
        """The results of the saved model on the recipe's `report`; None if the recipe has none."""
        return self.reporting.report()

    def write_card(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> Path:
        """Evaluates the saved model on the recipe's validation data, and writes the model card and `results.json`.

        Args:
            trainer: the result of `train`.
            report: the result of `report`.

        Returns:
            The path of the card.
        """
        card = self.reporting.write_card(trainer, report)
        self.reporting.write_results()
        return card


# ---- Resuming a run: only with the same recipe; the trainer's arguments may change ----

RECIPE = "recipe.yaml"


def record_start(run: RecipeRun, processor: ProcessorMixin) -> None:
    """Saves the recipe of a new run, and its processor, next to the checkpoints."""
    folder = run.output / CHECKPOINTS
    with atomic_directory(folder / PROCESSOR) as scratch:
        processor.save_pretrained(scratch)
    content = yaml.safe_dump(_settled(run.recipe), allow_unicode=True, sort_keys=False)
    (folder / RECIPE).write_text(content, encoding="utf-8")


def check_unchanged(run: RecipeRun) -> None:
    """Checks that the run in `output` began with this recipe.

    Raises:
        InputError: with the keys that differ, if it began with another one.
    """
    path = run.output / CHECKPOINTS / RECIPE
    began, now = flattened(parse(path.read_text(encoding="utf-8"))), flattened(_settled(run.recipe))
    if changed := [key for key in sorted(began | now) if began.get(key) != now.get(key)]:
        raise InputError(
            f"{', '.join(changed)}: changed since the run began with {path}; restore it, or choose another folder"
        )


def flattened(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Flattens nested mappings to one with dotted keys; an empty mapping counts as a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{where}.{name}" if where else str(name)
        flat |= flattened(value, key) if isinstance(value, Mapping) and value else {key: value}
    return flat


# Keys that do not change the weights; changes to `training` are left to the user's judgment.
_FREE = ("training", "test", "report", "unseen_languages", "license", "license_name")


def _settled(recipe: Recipe) -> dict[str, Any]:
    """The part of a recipe that must not change during a run: without the trainer's arguments and evaluations."""
    content = recipe.model_dump(mode="json", exclude={"stages": {"__all__": {"training"}}})
    content = {key: value for key, value in content.items() if key not in _FREE}
    return redact(content | {"stages": {stage.pop("name"): stage for stage in content["stages"]}})
