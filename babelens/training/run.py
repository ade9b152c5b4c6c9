"""Runs a recipe: from data to a folder with the model, its processor, its evaluation and its card."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoProcessor, PreTrainedModel, ProcessorMixin, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME

from ..evaluation.results import RESULTS
from ..model_folders import atomic_directory, check_free
from ..trainers.base import BabelensTrainer
from ..trainers.checkpoints import newest_checkpoint, prepare_saving
from ..trainers.tower_training import checked_training
from ..utils.errors import InputError, RecipeError
from ..utils.identity import holds_weights
from ..utils.pretrained import load_model, load_processor, refuse_kernels
from ..utils.redaction import redact
from .build import ModelBuilder
from .checks import check_arguments_fit, check_data, check_recipe, check_start, log_overlap
from .recipe_file import parse
from .schema import PROCESSOR, Recipe, Stage, builder_of, training_arguments

CHECKPOINTS, FINISHED = "checkpoints", "finished"
RECIPE = "recipe.yaml"


def is_finished(stage: Path) -> bool:
    """Returns whether a stage's folder holds its final model, completely saved."""
    return (stage / "config.json").is_file()


class RecipeRun:
    """One run of a recipe, with its parts in the classes of its method. It trains the stages in order, each with its
    checkpoints in `output/checkpoints/<stage>`. `command` is shown on the card."""

    def __init__(self, recipe: Recipe, output: Path, command: str, trust_remote_code: bool = False) -> None:
        self.recipe, self.output = recipe, output
        self.checkpoints = output / CHECKPOINTS
        builder: type[ModelBuilder] = builder_of(recipe.method, recipe.task_name)
        self.builder = builder(recipe, self.checkpoints, trust_remote_code=trust_remote_code)
        self.data = self.builder.data
        self.reporting = builder.reporting_class(self.builder, output, command)

    def arguments(self, stage: Stage) -> TrainingArguments:
        given, kind = self.recipe.training | stage.training, self.builder.trainer_class.arguments_class
        return training_arguments(kind, given, stage.training_key, output_dir=str(self.checkpoints / stage.name))

    def check(self) -> None:
        """Checks all keys before data is read, including keys that are used only at the end."""
        with self._file_named():
            check_recipe(self)
            if not self.builder.code["trust_remote_code"]:
                refuse_kernels(self.recipe.model.model_dump(), "model")
            self.builder.check()

    def train(self, *, resume: bool = False) -> BabelensTrainer:
        """Trains and saves the model; `resume` starts at the newest checkpoint. Returns the last stage's trainer."""
        with self._file_named():
            return self._train(resume=resume)

    def _train(self, *, resume: bool) -> BabelensTrainer:
        kept, stages = self.checkpoints, self.recipe.all_stages
        has_run = any(kept.glob(f"*/{FINISHED}")) or newest_checkpoint(kept / stages[0].name) is not None
        if has_run and not resume:
            raise FileExistsError(f"{self.output} already holds a run: resume it, or choose another folder")
        if not has_run and not resume:
            check_free(self.output)
        # A resumed run that was interrupted before its results, without checkpoints, starts over.
        if not has_run and holds_weights(self.output) and (self.output / RESULTS).is_file():
            raise FileExistsError(
                f"{self.output} holds a finished model, and no checkpoint to resume from: choose another folder"
            )
        self.check()
        arguments = [self.arguments(stage) for stage in stages]  # before any is trained
        check_arguments_fit(self, arguments)
        check_start(self)
        first = arguments[0]
        is_main = first.process_index == 0
        with first.main_process_first(local=False, desc="the output folder"):
            if is_main:
                prepare_saving(self.output)
        check_data(self, arguments)
        if is_main:
            log_overlap(self.data.overlaps)
        set_seed(first.seed)
        has_record = has_run and (kept / RECIPE).is_file()  # a stage may come from another run
        if has_record:
            self._check_unchanged(kept / RECIPE)
            processor = load_processor(AutoProcessor, kept / PROCESSOR)
        else:
            processor = self.builder.make_processor()
        model = self.builder.make_model(processor)
        if not has_record and is_main:
            with atomic_directory(kept / PROCESSOR) as scratch:
                processor.save_pretrained(scratch)
            content = yaml.safe_dump(_settled(self.recipe), allow_unicode=True, sort_keys=False)
            (kept / RECIPE).write_text(content, encoding="utf-8")
        for stage, args in zip(stages, arguments, strict=True):
            try:
                checked_training(model, getattr(args, "towers", None))
            except InputError as error:
                raise InputError(f"{stage.training_key}.{error}") from error
        for stage in stages[:-1]:
            model = self._finished_stage(stage, model, processor)
        trainer = self._train_stage(stages[-1], model, processor)
        if trainer.is_world_process_zero():
            with atomic_directory(self.output) as scratch:
                model.save_pretrained(scratch)
                processor.save_pretrained(scratch)
            self.reporting.unknown_rates = self.builder.unknown_rates(processor)
        trainer.accelerator.wait_for_everyone()
        return trainer

    def _finished_stage(self, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin) -> PreTrainedModel:
        """Trains a stage, unless it is finished, and returns the model of the next stage."""
        finished = self.checkpoints / stage.name / FINISHED
        if not is_finished(finished):
            trainer = self._train_stage(stage, model, processor)
            if trainer.is_world_process_zero():
                with atomic_directory(finished) as scratch:
                    model.save_pretrained(scratch)
                    trainer.state.save_to_json(str(scratch / TRAINER_STATE_NAME))  # the report needs its log
            trainer.accelerator.wait_for_everyone()
        attention = self.recipe.model.attn_implementation
        return self.builder.next_model(load_model(type(model), finished, attn_implementation=attention))

    def _train_stage(self, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin) -> BabelensTrainer:
        """Trains a stage to its end, from the newest complete checkpoint in its folder, if any."""
        trainer = self.builder.trainer_class(
            model=model,
            args=self.arguments(stage),
            processing_class=processor,
            train_dataset=self.data.stage_data(stage),
            eval_dataset=self.data.validation,
            **self.builder.trainer_options(),
        )
        newest = newest_checkpoint(trainer.args.output_dir)
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        return trainer

    def _check_unchanged(self, path: Path) -> None:
        began, now = _flattened(parse(path.read_text(encoding="utf-8"))), _flattened(_settled(self.recipe))
        if changed := [key for key in sorted(began | now) if began.get(key) != now.get(key)]:
            raise InputError(
                f"{', '.join(changed)}: changed since the run began with {path}; restore it, or choose another folder"
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

    def report(self, trainer: BabelensTrainer) -> dict[str, Any] | None:
        """Evaluates the saved model, writes its card and `results.json`, and returns the recipe's `report`."""
        report = self.reporting.report()
        self.reporting.write_card(trainer, report)
        self.reporting.write_results()
        return report


def _flattened(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Flattens nested mappings to one with dotted keys; an empty mapping counts as a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{where}.{name}" if where else str(name)
        flat |= _flattened(value, key) if isinstance(value, Mapping) and value else {key: value}
    return flat


# Keys that do not change the weights; changes to `training` are left to the user's judgment.
_FREE = ("training", "test", "report", "unseen_languages", "license", "license_name")


def _settled(recipe: Recipe) -> dict[str, Any]:
    """Returns the part of a recipe that must not change during a run: not the trainer's arguments or evaluations."""
    content = recipe.model_dump(mode="json", exclude={"stages": {"__all__": {"training"}}})
    content = {key: value for key, value in content.items() if key not in _FREE}
    return redact(content | {"stages": {stage.pop("name"): stage for stage in content["stages"]}})
