"""Fitting a recipe into a given time: some steps are timed, and the schedule is shortened in proportion; once more if
steps become ten times slower than they were.
"""

import copy
import dataclasses
import math
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from transformers import PreTrainedModel, PrinterCallback, ProcessorMixin, TrainerCallback, set_seed
from transformers.trainer_utils import SaveStrategy

from ..inference.embedder import Embedder
from ..modeling.encoding import autocasting
from ..modeling.modeling_mla_base import MlaPreTrainedModel
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.frozen_features import HalfFrozenText
from ..trainers.tower_features import TEXT
from ..trainers.whole_checkpoints import fast_attention
from .base import RecipeRun
from .recipe import Recipe, Stage
from .training import CHECKPOINTS, StagedTraining

# The arguments that count steps, all but the number of steps itself.
_COUNTS = ("warmup_steps", "eval_steps", "save_steps", "logging_steps")
# Of the steps that are timed: the first ones wait for the processes that load data, and for memory.
_UNTIMED, _FEWEST, _MOST, _SECONDS = 2, 4, 40, 10.0
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

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.plan = self.planned[Path(args.output_dir).name]
        self.last = time.perf_counter()
        self.end = self.last + self.plan.steps * self.plan.step + self.plan.evaluation
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self.position, self.is_slow = state.global_step, False

    def _restart_clock(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.last = time.perf_counter()  # what lies between is no part of a step

    on_evaluate = on_save = _restart_clock

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
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

    def _keep_time(self, step: float, args: Any, state: Any, control: Any, scheduler: Any) -> None:
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


# ---- How long a step of training on translations takes on this machine ----

_FEW = 8  # texts of a first step, which tells how long a whole one takes
_LONGEST_STEP = 5.0  # seconds; of a longer one, the time is estimated
_MEASURED_STEPS = 2
_MEASURED_TEXTS = 32  # of a frozen text encoder


@dataclass(frozen=True)
class StepTime:
    """The time that training on translations takes.

    Args:
        seconds: of a step.
        is_measured: whether they are the mean of two whole steps. Where one would take more than five seconds, they
            are estimated by a step of eight texts.
        seconds_per_text: of computing what the frozen layers of a text encoder give for a text, before the first step;
            0 if all of it is trained.
    """

    seconds: float
    is_measured: bool
    seconds_per_text: float = 0.0


def step_time(
    model: MlaPreTrainedModel,
    processor: ProcessorMixin,
    language: str,
    texts: Sequence[str],
    args: MlaTrainingArguments,
) -> StepTime:
    """Measures a step of training on translations into the native language, whose features are computed before.

    Neither weights nor PyTorch's random numbers change.

    Args:
        model: a model that acquires languages.
        processor: its processor.
        language: the language of the texts.
        texts: as many as there are; they are repeated.
        args: batch size, precision and device.
    """
    model = model.to(args.device)
    was_training = model.training
    try:
        with (
            torch.random.fork_rng(),
            fast_attention(model, args.device, args.chosen_precision.name),
            _Steps(model.train(), processor, language, texts, args) as steps,
        ):
            steps.run(1)
            estimate = steps.run(_FEW) * max(args.per_device_train_batch_size / _FEW, 1)
            if estimate > _LONGEST_STEP:
                return StepTime(estimate, False, steps.seconds_per_text)
            measured = [steps.run(args.per_device_train_batch_size) for _ in range(_MEASURED_STEPS)]
            return StepTime(sum(measured) / _MEASURED_STEPS, True, steps.seconds_per_text)
    finally:
        model.train(was_training)


class _Steps:
    """Steps on texts, on the features of a frozen text encoder, or on the states below its trained layers. What is
    computed once is measured beforehand."""

    def __init__(
        self,
        model: Any,
        processor: ProcessorMixin,
        language: str,
        texts: Sequence[str],
        args: MlaTrainingArguments,
    ) -> None:
        self.model, self.processor, self.language, self.texts, self.args = model, processor, language, texts, args
        self.weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # The optimizer changes copies, so that the model stays as it is.
        self.copies = [torch.nn.Parameter(weight.detach().clone()) for weight in self.weights]
        self.optimizer = torch.optim.AdamW(self.copies)
        self.features: torch.Tensor | None = None
        self.seconds_per_text = 0.0
        self._until_end = ExitStack()
        if args.cache_frozen_features and TEXT in getattr(model, "frozen_towers", ()):
            self._compute_features()
        elif args.cache_frozen_features:
            self._compute_states()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._until_end.close()

    def _compute_features(self) -> None:
        some = [self.texts[index % len(self.texts)] for index in range(_MEASURED_TEXTS)]
        embedder = Embedder(self.model.tower_features, self.processor, batch_size=self.args.per_device_eval_batch_size)
        began = time.perf_counter()
        with self._autocast():
            features = embedder.encode_text(some, language=self.language, normalize=False)
        self.seconds_per_text = (time.perf_counter() - began) / len(some)
        self.features = torch.from_numpy(features).to(self.model.device)

    def _compute_states(self) -> None:
        folder = self._until_end.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        half_frozen = HalfFrozenText.of(self.model, self.processor, self.args, cache_dir=folder)
        if half_frozen is None:
            return
        some = dict.fromkeys(self.texts[: max(self.args.per_device_train_batch_size, _FEW)])
        half_frozen.add(some)
        began = time.perf_counter()
        half_frozen.compute()
        self.seconds_per_text = (time.perf_counter() - began) / len(some)
        half_frozen.start(is_sharded=False)
        self._until_end.callback(half_frozen.stop)

    def _autocast(self) -> torch.autocast:
        return autocasting(self.model.device, self.args.chosen_precision.name)

    def run(self, count: int) -> float:
        """The seconds of a step on `count` texts."""
        chosen = [index % len(self.texts) for index in range(count)]
        began = time.perf_counter()
        if self.features is None:
            batch = [self.texts[index] for index in chosen]
            inputs = self.processor(text=batch, language=self.language, return_tensors="pt").to(self.model.device)
        else:
            inputs = {"text_features": self.features[[index % len(self.features) for index in chosen]]}
        native = torch.zeros(count, self.model.config.projection_dim, device=self.model.device)
        with self._autocast():
            loss = self.model(**inputs, paired_text_features=native, return_loss=True, return_logits=False).loss
        loss.backward()
        for copied, weight in zip(self.copies, self.weights, strict=True):
            copied.grad, weight.grad = weight.grad, None
        self.optimizer.step()
        loss.item()  # waits for an accelerator
        return time.perf_counter() - began
