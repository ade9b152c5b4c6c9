"""Optimizers: LAMB (You et al. 2020), learning rates for parts of a model, and an optimizer for each task."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.training_args import OptimizerNames

from ..utils.errors import TrainingSetupError
from .precision import FLOAT16
from .tower_training import checked_training


def parameter_groups(
    model: nn.Module,
    learning_rate: float,
    learning_rate_mapping: Mapping[str, float] | None = None,
    *,
    own_rates: Mapping[str, float] | None = None,
    weight_decay: float = 0.0,
    decayed: Collection[str] = (),
) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer, by learning rate and weight decay.

    Args:
        model: the model; parameters that need no gradient are left out.
        learning_rate: the learning rate of all other parameters. Their two groups, with and without weight decay, come
            first.
        learning_rate_mapping: regular expression, searched for in parameter names -> learning rate; the first match
            decides.
        own_rates: name of a parameter -> its learning rate, where no pattern matches.
        weight_decay: the weight decay of the parameters named in `decayed`; the others have none.
        decayed: names of the parameters with weight decay.

    Raises:
        TrainingSetupError: for a pattern that is not a regular expression, or that matches no trained parameter.
    """
    patterns = {_compiled(pattern): rate for pattern, rate in (learning_rate_mapping or {}).items()}
    members: dict[tuple[float, float], list[nn.Parameter]] = {
        (rate, decay): [] for rate in (learning_rate, *patterns.values()) for decay in (weight_decay, 0.0)
    }
    unused = set(patterns)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            match = next((pattern for pattern in patterns if pattern.search(name)), None)
            unused.discard(match)
            rate = (own_rates or {}).get(name, learning_rate) if match is None else patterns[match]
            members.setdefault((rate, weight_decay if name in decayed else 0.0), []).append(parameter)
    if unused:
        missing = ", ".join(sorted(repr(pattern.pattern) for pattern in unused))
        raise TrainingSetupError(f"learning_rate_mapping: no parameter is trained whose rate {missing} would decide")
    return [{"params": parameters, "lr": rate, "weight_decay": decay} for (rate, decay), parameters in members.items()]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise TrainingSetupError(f"learning_rate_mapping: {pattern!r} is no regular expression: {error}") from error


_LAMB_OPTIONS = {"lr", "betas", "eps", "weight_decay"}


class Lamb(Optimizer):
    """LAMB: Adam with the step of each tensor scaled to the norm of the tensor (You et al. 2020, algorithm 2).

    With the bias-corrected moments m and v, `r = m / (sqrt(v) + eps) + weight_decay * w` and
    `w -= lr * |w| / |r| * r`; if a norm is zero, the ratio `|w| / |r|` is 1. Neither the ratio nor the gradient is
    clipped.

    Args:
        params: parameters, or parameter groups.
        lr: learning rate.
        betas: decay rates of the two moments.
        eps: added to the denominator.
        weight_decay: weight decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"LAMB cannot use lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            # A weight may have had no gradient in earlier steps. Its moments then need another bias correction.
            by_age: dict[int, list[Tensor]] = {}
            for weight in weights:
                state = self.state[weight]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
                state["step"] += 1
                by_age.setdefault(state["step"], []).append(weight)
            for age, members in by_age.items():
                self._update(group, age, members)
        return loss

    def _update(self, group: dict[str, Any], age: int, weights: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        gradients = [weight.grad for weight in weights]
        means = [self.state[weight]["exp_avg"] for weight in weights]
        squares = [self.state[weight]["exp_avg_sq"] for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        denominators = torch._foreach_div(squares, 1 - beta2**age)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, group["eps"])
        steps = torch._foreach_div(means, 1 - beta1**age)
        torch._foreach_div_(steps, denominators)
        if group["weight_decay"]:
            torch._foreach_add_(steps, weights, alpha=group["weight_decay"])
        ratios = [
            torch.where((weight_norm > 0) & (step_norm > 0), weight_norm / step_norm, 1.0) * -group["lr"]
            for weight_norm, step_norm in zip(torch._foreach_norm(weights), torch._foreach_norm(steps), strict=True)
        ]
        torch._foreach_mul_(steps, ratios)
        torch._foreach_add_(weights, steps)


def refuse_moments_of_lamb(optimizer: Optimizer) -> None:
    """Has an optimizer refuse the state of LAMB, and LAMB that of any other one.

    The names in their states are the same, but their steps are not: an optimizer would continue from the moments of
    the other without a word. LAMB was the default of `optim` once.
    """

    def check(_optimizer: Optimizer, state: dict[str, Any]) -> None:
        of_lamb = [group.keys() - {"params", "initial_lr"} == _LAMB_OPTIONS for group in state["param_groups"]]
        if all(of_lamb) != isinstance(optimizer, Lamb):
            saved, advice = (
                ("LAMB", "set optim=lamb") if all(of_lamb) else ("another optimizer", "set optim as it was")
            )
            raise TrainingSetupError(
                f"optim: the checkpoint was trained with {saved}, and {type(optimizer).__name__} cannot continue with "
                f"its state; {advice}"
            )

    optimizer.register_load_state_dict_pre_hook(check)


class TaskOptimizer(Optimizer):
    """One optimizer for each task over the same weights, with gradients, state and learning rate of its own.

    MURAL trains its text-text task with a tenth of the learning rate of the image-text task (section 3.2). LAMB and
    Adam need separate optimizers for that: their steps do not depend on the scale of the gradient, so that scaling the
    loss has no effect.

    Gradients are computed task by task: `with optimizer.gradients_of("image_text"): loss.backward()`.

    Args:
        optimizers: task -> its optimizer.
    """

    def __init__(self, optimizers: dict[str, Optimizer]) -> None:
        self.optimizers = optimizers
        self.gradients: dict[str, dict[Tensor, Tensor]] = {task: {} for task in optimizers}
        self.defaults: dict[str, Any] = {}
        # The groups are the dictionaries of the optimizers, so that a scheduler sets the learning rate of each task.
        self.param_groups = [group for optimizer in optimizers.values() for group in optimizer.param_groups]
        self._optimizer_step_pre_hooks: dict[int, Any] = {}
        self._optimizer_step_post_hooks: dict[int, Any] = {}

    @property
    def state(self) -> dict[Any, Any]:
        return {task: optimizer.state for task, optimizer in self.optimizers.items()}

    def _weights(self) -> Iterator[Tensor]:
        seen: set[int] = set()
        for group in self.param_groups:
            for weight in group["params"]:
                if id(weight) not in seen:
                    seen.add(id(weight))
                    yield weight

    @contextmanager
    def gradients_of(self, task: str) -> Iterator[None]:
        """A context in which `weight.grad` is the gradient of a task, to which backward passes add."""
        own = self.gradients[task]
        for weight in self._weights():
            weight.grad = own.get(weight)
        yield
        for weight in self._weights():
            if weight.grad is not None:
                own[weight] = weight.grad
                weight.grad = None

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Clips the gradient of each task to `max_norm`, and returns the largest norm before clipping []."""
        norms = [torch.nn.utils.get_total_norm(list(own.values())) for own in self.gradients.values() if own]
        for norm, own in zip(norms, (own for own in self.gradients.values() if own), strict=True):
            scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(list(own.values()), scale)
        return torch.stack(norms).max()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for task, optimizer in self.optimizers.items():
            with self.gradients_of(task):
                optimizer.step()
        self.zero_grad()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for own in self.gradients.values():
            own.clear()
        for weight in self._weights():
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {task: optimizer.state_dict() for task, optimizer in self.optimizers.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if set(state_dict) != set(self.optimizers):
            raise TrainingSetupError(
                f"the checkpoint has tasks {sorted(state_dict)}, this run has {sorted(self.optimizers)}"
            )
        for task, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state_dict[task])
        self.param_groups = [group for optimizer in self.optimizers.values() for group in optimizer.param_groups]


# ---- The learned temperature ----
#
# Keeps the learned temperature of a dual encoder at or above its lower bound (see `modeling.modeling_dual_encoder`).


class BoundTemperature(TrainerCallback):
    """Resets a temperature that fell below its lower bound, after every step of the optimizer."""

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        bound = getattr(model, "bound_temperature", None)  # None, if the model has no temperature
        if bound is not None:
            bound()


# ---- Settings of tasks ----
# Settings of tasks and of parts of a model that contradict each other, or that would have no effect.

LAMB = "lamb"
ADAMAX = "adamax"

# Their steps grow with the gradient. Every other optimizer divides the gradient by its own size.
_SCALED_BY_GRADIENT = (OptimizerNames.SGD,)


def check_task_settings(args: Any) -> None:
    """Checks the weights and learning rates of tasks, beside each other and beside those of parts of the model.

    Args:
        args: `ContrastiveTrainingArguments`.

    Raises:
        TrainingSetupError: for settings that contradict each other, and for weights that would have no effect.
    """
    towers = checked_training(args.towers)
    optimizer = str(getattr(args.optim, "value", args.optim))
    if optimizer in (OptimizerNames.LOMO, OptimizerNames.ADALOMO):
        raise TrainingSetupError(
            f"optim={optimizer!r} updates the weights during each backward pass, and a step here has several: choose "
            "another one, such as adafactor"
        )
    if not args.task_learning_rates:
        return
    if optimizer.startswith("schedule_free"):
        raise TrainingSetupError(
            f"task_learning_rates: {optimizer!r} keeps two versions of the weights, which the optimizers of several "
            "tasks cannot share; leave one of them out"
        )
    if args.learning_rate_mapping:
        raise TrainingSetupError(
            "task_learning_rates and learning_rate_mapping both set the learning rate of the same weights: give one "
            "of them"
        )
    for tower, training in towers.items():
        if training.rate is not None:
            raise TrainingSetupError(
                f"task_learning_rates and towers.{tower}.rate both set the same rates: give one of them"
            )
    asked = args.asked_precision()
    if asked is not None and asked.name == FLOAT16:
        raise TrainingSetupError(
            "task_learning_rates cannot be used with float16, whose loss scaling supports one optimizer: use bfloat16"
        )
    _check_weights(args)


def _check_weights(args: Any) -> None:
    """Refuses weights of losses that an optimizer for each task divides away (section 3.1 of MURAL's paper has such
    weights, section 3.2 two learning rates)."""
    weights = {task: weight for task, weight in (args.task_weights or {}).items() if weight != 1}
    optimizer = str(getattr(args.optim, "value", args.optim))
    if weights and optimizer not in _SCALED_BY_GRADIENT:
        named = ", ".join(f"{task}: {weight:g}" for task, weight in weights.items())
        raise TrainingSetupError(
            f"task_weights {{{named}}} would have no effect: with task_learning_rates, every task has an optimizer of "
            f"its own, and the steps of {optimizer!r} do not depend on the scale of the loss. Leave task_weights out, "
            "and give a task with a lower weight a lower rate in task_learning_rates; or leave task_learning_rates "
            "out, so that one optimizer takes the gradient of the weighted sum"
        )
