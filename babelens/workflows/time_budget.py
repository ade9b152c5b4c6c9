"""Fitting a recipe into a given time: some steps are timed, and the schedule is shortened in proportion; once more if
steps become ten times slower than they were.
"""

import copy
import dataclasses
import logging
import math
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.optim.lr_scheduler import LRScheduler
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    ProcessorMixin,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import SaveStrategy

from ..trainers.base import BabelensTrainer
from .base import RecipeRun
from .recipe import Recipe, Stage
from .training import CHECKPOINTS, StagedTraining

# The arguments that count steps, all but the number of steps itself.
_COUNTS = ("warmup_steps", "eval_steps", "save_steps", "logging_steps")
# Arguments of a training that is timed and then thrown away.
QUIET = {"save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
_MOST = 40  # steps that are timed at most
_ROUND = 10
# Steps are timed anew when the median of so many of them is so many times what was planned.
_RECENT, _SLOW = 5, 10.0


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


def planned_pace(recipe: Recipe, times: Sequence[StageTime]) -> dict[str, StageTime]:
    """The planned times of the stages of a shortened recipe, by the names of their folders of checkpoints."""
    return {
        Path(CHECKPOINTS, stage.name).name: dataclasses.replace(each, steps=stage.training["max_steps"])
        for stage, each in zip(stages_of(recipe), times, strict=True)
    }


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
    with tempfile.TemporaryDirectory() as folder, without_log():
        changed = dataclasses.replace(stage, training=stage.training | QUIET)
        trainer = training.stage_trainer(changed, model, processor, output=Path(folder))
        timer = timed_training(trainer)
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


class StepTimer(TrainerCallback):
    """Ends a training when enough of its steps have been timed.

    Args:
        untimed: number of the first steps, which wait for the processes that load data, and for memory.
        fewest, seconds: the steps that are timed at least, and how long they take at least.
    """

    def __init__(self, untimed: int = 2, fewest: int = 4, seconds: float = 10.0) -> None:
        self.untimed, self.fewest, self.seconds = untimed, fewest, seconds
        self.ends: list[float] = []
        self.trained_parameters = 0

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel,
        **kwargs: Any,
    ) -> None:
        self.trained_parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.ends.append(time.perf_counter())
        timed = self.ends[self.untimed - 1 :]
        is_enough = len(timed) > self.fewest and timed[-1] - timed[0] > self.seconds
        control.should_training_stop = is_enough or len(timed) > _MOST

    @property
    def seconds_per_step(self) -> float:
        """The mean of the steps that were timed."""
        timed = self.ends[self.untimed - 1 :]
        return (timed[-1] - timed[0]) / (len(timed) - 1)


@contextmanager
def without_log() -> Iterator[None]:
    """A context in which trainers log warnings alone."""
    log = logging.getLogger(BabelensTrainer.__module__.rpartition(".")[0])
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


def timed_training(trainer: BabelensTrainer, **timed: Any) -> StepTimer:
    """Trains until enough steps are timed.

    Args:
        trainer: the trainer, whose arguments are `QUIET`.
        timed: arguments of `StepTimer`.
    """
    timer = StepTimer(**timed)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(timer)
    trainer.train()
    return timer


class Pace(TrainerCallback):
    """Ends each stage in its planned time, though steps have become ten times slower than planned.

    From then on it goes through the rest of the learning rate's schedule in as many steps as still fit: each passes
    over some of the schedule's. Evaluations and checkpoints are where the remaining steps meet them, and at the end.

    Args:
        planned: the times of the stages, as `planned_pace` gives them.
        on_slow: called once in a stage, with the measured and the planned seconds of a step, before the schedule is
            shortened; what it does about the cause shows in the steps that follow.
    """

    def __init__(self, planned: Mapping[str, StageTime], on_slow: Callable[[float, float], None]) -> None:
        self.planned, self.on_slow = planned, on_slow
        self.is_shortened = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.plan = self.planned[Path(args.output_dir).name]
        self.last = time.perf_counter()
        self.end = self.last + self.plan.steps * self.plan.step + self.plan.evaluation
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self.position, self.is_slow = state.global_step, False

    def _restart_clock(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.last = time.perf_counter()  # what lies between is no part of a step

    on_evaluate = on_save = _restart_clock

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        now = time.perf_counter()
        self.recent.append(now - self.last)
        self.last, self.position = now, self.position + 1
        step = statistics.median(self.recent)
        if not self.is_slow and len(self.recent) == _RECENT and step >= _SLOW * self.plan.step:
            self.is_slow = True
            self.on_slow(step, self.plan.step)
            self.recent.clear()
            self.last = time.perf_counter()
        elif self.is_slow:
            self._keep_time(step, args, state, control, kwargs["lr_scheduler"])

    def _keep_time(
        self,
        step: float,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        scheduler: LRScheduler,
    ) -> None:
        left, fitting = state.max_steps - self.position, max(int((self.end - self.last) / step), 0)
        if fitting < left:
            self.is_shortened = True
            passed_over = math.ceil(left / fitting) - 1 if fitting else left
            for _ in range(passed_over):
                scheduler.step()
            self.position += passed_over
        if self.position >= state.max_steps > state.global_step:
            state.max_steps = state.global_step
            control.should_training_stop = True
            control.should_save = args.save_strategy == SaveStrategy.STEPS
