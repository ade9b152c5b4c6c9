"""Optimizers: LAMB (You et al. 2020), learning rates for parts of a model, and a separate optimizer for each task."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import TrainerCallback
from transformers.training_args import OptimizerNames

from ..utils.errors import InputError

LAMB = "lamb"
ADAMAX = "adamax"


def parameter_groups(
    model: nn.Module,
    learning_rate: float,
    learning_rate_mapping: Mapping[str, float] | None = None,
    *,
    weight_decay: float = 0.0,
    decayed: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Returns an optimizer's parameter groups by learning rate and weight decay (of the parameters named in
    `decayed`). `learning_rate_mapping` is regular expression -> rate; the first that is found in a parameter's name
    decides. The two groups with `learning_rate` come first."""
    patterns = {re.compile(pattern): rate for pattern, rate in (learning_rate_mapping or {}).items()}
    members: dict[tuple[float, float], list[nn.Parameter]] = {
        (rate, decay): [] for rate in (learning_rate, *patterns.values()) for decay in (weight_decay, 0.0)
    }
    unused = set(patterns)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            match = next((pattern for pattern in patterns if pattern.search(name)), None)
            unused.discard(match)
            rate = learning_rate if match is None else patterns[match]
            members[rate, weight_decay if name in decayed else 0.0].append(parameter)
    if unused:
        missing = ", ".join(sorted(repr(pattern.pattern) for pattern in unused))
        raise InputError(f"learning_rate_mapping: no trained parameter matches {missing}")
    return [{"params": parameters, "lr": rate, "weight_decay": decay} for (rate, decay), parameters in members.items()]


class Lamb(Optimizer):
    """LAMB: Adam with the step of each tensor scaled to the norm of the tensor (You et al. 2020, algorithm 2). With
    the bias-corrected moments m and v, `r = m / (sqrt(v) + eps) + weight_decay * w` and `w -= lr * |w| / |r| * r`; if
    a norm is zero, the ratio `|w| / |r|` is 1. Neither the ratio nor the gradient is clipped."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                self._update(weight, weight.grad, group)

    def _update(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[weight], group["betas"]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
        state["step"] += 1
        mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = (square / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        step = (mean / (1 - beta1 ** state["step"])).div_(denominator)
        if group["weight_decay"]:
            step.add_(weight, alpha=group["weight_decay"])
        weight_norm, step_norm = weight.norm(), step.norm()
        ratio = torch.where((weight_norm > 0) & (step_norm > 0), weight_norm / step_norm, 1.0)
        weight.add_(step.mul_(ratio * -group["lr"]))


class TaskOptimizer(Optimizer):
    """A separate optimizer for each task over the same weights, each with its own gradients, state and learning rate.
    MURAL trains its text-text task with a tenth of the learning rate of the image-text task (section 3.2). LAMB and
    Adam need separate optimizers for that: their steps do not depend on the scale of the gradient, so scaling the loss
    has no effect. Gradients, which are clipped to the norm `max_norm`, are computed task by task:
    `with optimizer.gradients_of("image_text"): loss.backward()`."""

    def __init__(self, optimizers: dict[str, Optimizer], max_norm: float = math.inf) -> None:
        first, *_ = optimizers.values()
        super().__init__(first.param_groups, {})
        self.optimizers, self.max_norm = optimizers, max_norm
        self.gradients: dict[str, dict[Tensor, Tensor]] = {task: {} for task in optimizers}
        self.grad_norm = torch.zeros(())
        self._share_groups()

    def _share_groups(self) -> None:
        # A scheduler then sets the learning rate of each task.
        self.param_groups = [group for optimizer in self.optimizers.values() for group in optimizer.param_groups]

    def _weights(self) -> Iterator[Tensor]:
        yield from {id(weight): weight for group in self.param_groups for weight in group["params"]}.values()

    @contextmanager
    def gradients_of(self, task: str) -> Iterator[None]:
        """A context in which `weight.grad` is the gradient of a task, and backward passes add to it."""
        own = self.gradients[task]
        for weight in self._weights():
            weight.grad = own.get(weight)
        yield
        for weight in self._weights():
            if weight.grad is not None:
                own[weight] = weight.grad
                weight.grad = None

    def clip_gradients(self) -> None:
        """Clips the gradient of each task to `max_norm`; `grad_norm` [] is then the largest norm before clipping."""
        norms = []
        for task, own in self.gradients.items():
            gradients = list(own.values())
            norms.append(torch.nn.utils.get_total_norm(gradients))
            if not norms[-1].isfinite():
                raise InputError(
                    f"the gradient's norm is {norms[-1].item()} in task {task!r}; training stopped before it reached "
                    "the weights"
                )
            factor = (self.max_norm / (norms[-1] + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor)
        self.grad_norm = torch.stack(norms).max()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        self.clip_gradients()
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
            raise InputError(f"the checkpoint has tasks {sorted(state_dict)}, this run has {sorted(self.optimizers)}")
        for task, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state_dict[task])
        self._share_groups()


class BoundTemperature(TrainerCallback):
    """Resets a learned temperature to its lower bound if it fell below, after every optimizer step."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if bound := getattr(model, "bound_temperature", None):  # None, if the model has no temperature
            bound()


def check_task_settings(args: Any) -> None:
    """Checks that task settings do not contradict each other, and have an effect."""
    optimizer = str(getattr(args.optim, "value", args.optim))
    if optimizer in (OptimizerNames.LOMO, OptimizerNames.ADALOMO):
        raise InputError(f"optim={optimizer!r} updates the weights in each backward pass, and a step has several")
    if not args.task_learning_rates:
        return
    if optimizer.startswith("schedule_free"):
        raise InputError(f"task_learning_rates: the optimizers of several tasks cannot share weights in {optimizer!r}")
    if args.learning_rate_mapping:
        raise InputError("task_learning_rates and learning_rate_mapping set the same rates: leave out one of them")
    weights = {task: weight for task, weight in (args.task_weights or {}).items() if weight != 1}
    if weights and optimizer != OptimizerNames.SGD:  # whose steps grow with the gradient
        raise InputError(
            f"task_weights {weights} has no effect with task_learning_rates, because the steps of {optimizer!r} do "
            "not depend on the scale of the loss; lower the rate instead"
        )
