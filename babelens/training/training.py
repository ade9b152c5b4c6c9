"""Training a model stage by stage: each stage has its tasks, its arguments and its folder of checkpoints."""

from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from transformers import PreTrainedModel, ProcessorMixin, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from ..registry import METHODS, imported
from ..trainers.base import BabelensTrainer
from ..trainers.checkpoints import atomic_directory, compare_conditions, has_checkpoint, newest_checkpoint
from ..trainers.tower_training import check_towers, checked_training
from ..utils.errors import InputError, RecipeError
from ..utils.pretrained import load_model
from .argument_checks import training_arguments
from .building import ModelBuilder
from .data import RecipeData
from .recipe import Recipe, Stage

Trained = TypeVar("Trained", bound=BabelensTrainer)
CHECKPOINTS = "checkpoints"
FINISHED = "finished"


def is_finished(stage: Path) -> bool:
    """Whether a stage's folder holds its final model, completely saved."""
    return (stage / "config.json").is_file()


class StagedTraining:
    """Trains the stages of a recipe, one after the other.

    Args:
        recipe: the recipe.
        data: its data.
        builder: the builder of its model, which turns the model of a stage into that of the next.
        output: the model's folder; checkpoints lie in `output/checkpoints/<stage>`.
    """

    def __init__(self, recipe: Recipe, data: RecipeData, builder: ModelBuilder, output: Path) -> None:
        self.recipe = recipe
        self.data = data
        self.builder = builder
        self.output = output

    # ---- Parts that a method may define ----

    @cached_property
    def trainer_class(self) -> type[BabelensTrainer]:
        """The class of the method's trainer."""
        return imported(METHODS[self.recipe.method].trainer)

    @property
    def tasks(self) -> list[str]:
        """The names that `train` may have."""
        return list(self.trainer_class.task_weights)

    def trainer_options(self) -> dict[str, Any]:
        """Arguments of the method's trainer that other trainers do not have."""
        return {}

    def check_tasks(self) -> None:
        """Checks the names in `train`.

        Raises:
            RecipeError: for a task that the method does not have.
        """
        for task in self.recipe.train:
            if task not in self.tasks:
                raise RecipeError(
                    f"train.{task}: {self.recipe.method} has no such task; it has {', '.join(self.tasks)}"
                )

    # ---- Stages ----

    def arguments(self, stage: Stage, output: Path | None = None) -> TrainingArguments:
        """The trainer's arguments in a stage.

        Args:
            stage: the stage.
            output: a folder in the place of the run's, whose `checkpoints` the stage writes to.

        Raises:
            RecipeError: for arguments that the trainer does not have or cannot use.
        """
        folder = str((output or self.output) / CHECKPOINTS / stage.name)
        given = self.recipe.training | stage.training
        return training_arguments(self.trainer_class.arguments_class, given, stage.training_key, output_dir=folder)

    def stage_trainer(
        self, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin, output: Path | None = None
    ) -> BabelensTrainer:
        """The trainer of a stage; `output` as in `arguments`."""
        return self.trainer_class(
            model=model,
            args=self.arguments(stage, output),
            processing_class=processor,
            train_dataset=self.data.stage_data(stage),
            eval_dataset=self.data.validation,
            **self.trainer_options(),
        )

    def has_begun(self) -> bool:
        """Whether the output holds a run already: a finished stage, or a checkpoint of the first one."""
        folder = self.output / CHECKPOINTS
        first = self.recipe.all_stages[0].name
        return any(folder.glob(f"*/{FINISHED}")) or has_checkpoint(folder / first)

    def train(self, model: PreTrainedModel, processor: ProcessorMixin) -> tuple[BabelensTrainer, PreTrainedModel]:
        """Trains all stages, from the newest checkpoint of each where there is one; returns the trainer of the last
        stage, and the trained model.

        Raises:
            InputError: if a stage's `towers` do not fit the model.
        """
        for stage in self.recipe.all_stages:  # before any is trained
            try:
                check_towers(model, checked_training(getattr(self.arguments(stage), "towers", None)))
            except InputError as error:
                raise InputError(f"{stage.training_key}.{error}") from error
        *earlier, last = self.recipe.all_stages
        for stage in earlier:
            finished = self.output / CHECKPOINTS / stage.name / FINISHED
            if not is_finished(finished):
                trainer = self._train_stage(stage, model, processor)
                if trainer.is_world_process_zero():
                    with atomic_directory(finished) as scratch:
                        model.save_pretrained(scratch)
                        trainer.state.save_to_json(str(scratch / TRAINER_STATE_NAME))  # its log is for the report
                trainer.accelerator.wait_for_everyone()
            else:
                compare_conditions(finished, self.arguments(stage))
            attention = self.recipe.model.attn_implementation
            model = self.builder.next_model(load_model(type(model), finished, attn_implementation=attention))
        return self._train_stage(last, model, processor), model

    def _train_stage(self, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin) -> BabelensTrainer:
        return train_from_newest_checkpoint(self.stage_trainer(stage, model, processor))


def train_from_newest_checkpoint(trainer: Trained) -> Trained:
    """Trains to the end, from the newest complete checkpoint in the trainer's folder where there is one; returns the
    trainer."""
    newest = newest_checkpoint(trainer.args.output_dir)
    trainer.train(resume_from_checkpoint=str(newest) if newest else None)
    return trainer
