"""Fitting a recipe into a given time: some steps are timed, and the schedule is shortened in proportion."""

import copy
import dataclasses
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PrinterCallback, ProcessorMixin, TrainerCallback, set_seed

from .base import RecipeRun
from .recipe import Recipe, Stage
from .training import StagedTraining

# The arguments that count steps, all but the number of steps itself.
_COUNTS = ("warmup_steps", "eval_steps", "save_steps", "logging_steps")
# Of the steps that are timed: the first ones wait for the processes that load data, and for memory.
_UNTIMED, _FEWEST, _MOST, _SECONDS = 2, 4, 40, 10.0
_ROUND = 10


@dataclasses.dataclass(frozen=True)
class StageTime:
    """The time that a stage of a recipe takes on this machine.

    Args:
        steps: the number of steps in the recipe.
        step: seconds of a step, data included.
        evaluation: seconds of the evaluations in the course of it, as many for a shortened stage.
    """

    steps: int
    step: float
    evaluation: float = 0.0


def stages_of(recipe: Recipe) -> list[Stage]:
    """The stages of a recipe, each with all of its training arguments."""
    return [dataclasses.replace(stage, training=recipe.training | stage.training) for stage in recipe.all_stages]


def steps_of(recipe: Recipe) -> int:
    """The number of steps of a recipe, in all stages, of which each has `max_steps`."""
    return sum(stage.training["max_steps"] for stage in stages_of(recipe))


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """The recipe with so many steps in all its stages together. Each stage keeps its share of them, and warm-up,
    evaluations and checkpoints keep theirs of the stage."""
    own = steps_of(recipe)
    if steps == own:
        return recipe
    shortened = [_with_share(stage, steps / own) for stage in stages_of(recipe)]
    if recipe.stages:
        return dataclasses.replace(recipe, stages=shortened)
    return dataclasses.replace(recipe, training=shortened[0].training)


def _with_share(stage: Stage, share: float) -> Stage:
    training = stage.training
    changes = {"max_steps": max(round(training["max_steps"] * share), 1)}
    for name in _COUNTS:
        if training.get(name, 0) >= 1:  # below, it is a part of the steps already
            changes[name] = math.ceil(training[name] * share)
    return dataclasses.replace(stage, training=training | changes)


def steps_within(seconds: float, times: Sequence[StageTime], *, fewest: int) -> int:
    """The number of steps, of all stages together, that fit into a time: at most the recipe's, at least `fewest`."""
    own, fixed = sum(stage.steps for stage in times), seconds_of(times, 0)
    share = (seconds - fixed) / (seconds_of(times, own) - fixed)
    return min(max(math.floor(own * share / _ROUND) * _ROUND, fewest), own)


def seconds_of(times: Sequence[StageTime], steps: int) -> float:
    """The seconds that so many steps, of all stages together, take with the evaluations in between."""
    share = steps / sum(stage.steps for stage in times)
    return sum(share * stage.steps * stage.step + stage.evaluation for stage in times)


def stage_times(run: RecipeRun) -> list[StageTime]:
    """Times some steps of each stage of a run, on copies of its model that are then thrown away."""
    stages = stages_of(run.recipe)
    set_seed(run.recipe.training.get("seed", 42))
    processor = run.builder.make_processor()
    model = run.builder.make_model(processor)
    times = []
    for index, stage in enumerate(stages):
        times.append(_stage_time(run.training, stage, copy.deepcopy(model), processor))
        if index + 1 < len(stages):
            model = run.builder.next_model(model)
    return times


def _stage_time(
    training: StagedTraining, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin
) -> StageTime:
    quiet = {"save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    timer = _Timer()
    with tempfile.TemporaryDirectory() as folder:
        changed = dataclasses.replace(stage, training=stage.training | quiet)
        trainer = training.stage_trainer(changed, model, processor, output=Path(folder))
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(timer)
        trainer.train()
        evaluations, evaluation = _evaluations(stage), 0.0
        if evaluations:
            start = time.perf_counter()
            trainer.evaluate()
            evaluation = evaluations * (time.perf_counter() - start)
    return StageTime(stage.training["max_steps"], timer.seconds_per_step, evaluation)


def _evaluations(stage: Stage) -> int:
    """How often a stage's model is evaluated in the course of it."""
    if stage.training.get("eval_strategy", "no") == "no":
        return 0
    return stage.training["max_steps"] // stage.training["eval_steps"]


class _Timer(TrainerCallback):
    """Ends a training when enough of its steps have been timed."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())
        timed = self.ends[_UNTIMED - 1 :]
        is_enough = len(timed) > _FEWEST and timed[-1] - timed[0] > _SECONDS
        control.should_training_stop = is_enough or len(timed) > _MOST

    @property
    def seconds_per_step(self) -> float:
        timed = self.ends[_UNTIMED - 1 :]
        return (timed[-1] - timed[0]) / (len(timed) - 1)
