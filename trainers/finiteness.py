"""Training stops where a number is no longer one: losses, gradients and weights that are NaN or infinite.

A loss is checked before its gradient is computed, gradients before the optimiser steps, and weights before they are
saved, so that neither a checkpoint nor a result holds what is not finite.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from torch import Tensor
from torch.distributed.tensor import DTensor

from ..configuration import model_folders
from ..configuration.errors import NonFiniteError, TrainingSetupError

_ADVICE = "A lower learning rate, a longer warm-up or max_grad_norm may help."
# Without a bound is what an infinite one means.
_MAY_BE_INFINITE = "max_grad_norm"


def check_finite(loss: Tensor, what: str, step: int) -> None:
    """
    Args:
        loss: what would be learned from next [].
        what: it is the loss of.
        step: the number of the step.

    Raises:
        NonFiniteError: when it is NaN or infinite.
    """
    if not loss.isfinite():
        raise NonFiniteError(
            f"the loss of {what} is {loss.item()} in step {step}; training stopped before it reached the weights. "
            f"{_ADVICE}"
        )


def raise_for_gradient(norm: Tensor | float, gradients: Mapping[str, Tensor], step: int) -> NoReturn:
    """
    Args:
        norm: of all gradients, NaN or infinite [].
        gradients: by parameter, as clipping left them.
        step: the number of the step.

    Raises:
        NonFiniteError: always.
    """
    found = non_finite(gradients)
    # Clipping has multiplied all gradients by NaN if the norm is; and finite gradients can have an infinite norm.
    where = f" because of {_some(found)}" if 0 < len(found) < len(gradients) else ""
    raise NonFiniteError(
        f"the gradient's norm is {float(norm)} in step {step}{where}; training stopped before it reached the weights. "
        f"{_ADVICE}"
    )


def check_weights(weights: Mapping[str, Tensor], step: int) -> None:
    """
    Raises:
        NonFiniteError: when one of them is NaN or infinite.
    """
    if found := non_finite(weights):
        raise NonFiniteError(
            f"after step {step}, {len(found)} of {len(weights)} tensors are not finite: {_some(found)}. Nothing was "
            f"saved; older checkpoints are as they were. {_ADVICE}"
        )


def non_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors that hold NaN or infinity. Of tensors that several processes share, each looks at its
    own part."""
    return [name for name, tensor in tensors.items() if not is_finite(tensor)]


def is_finite(tensor: Tensor | float) -> bool:
    """Whether there is neither NaN nor infinity in a tensor, or in this process's part of it."""
    if not isinstance(tensor, Tensor):
        return math.isfinite(tensor)
    own = tensor.detach()
    if isinstance(own, DTensor):
        own = own.to_local()
    if own.is_sparse:
        own = own.coalesce().values()
    return model_folders.is_finite(own)


def check_numbers(arguments: Any) -> None:
    """
    Args:
        arguments: a data class of training arguments.

    Raises:
        TrainingSetupError: for a number that is NaN or infinite, also in a dictionary, and for a negative rate.
    """
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        within = {f"{field.name}[{key!r}]": number for key, number in value.items()} if isinstance(value, dict) else {}
        for name, number in {field.name: value, **within}.items():
            is_infinite = isinstance(number, float) and not math.isfinite(number)
            if is_infinite and (name != _MAY_BE_INFINITE or math.isnan(number)):
                raise TrainingSetupError(f"{name}={number} must be a finite number")
    if isinstance(arguments.learning_rate, int | float) and arguments.learning_rate < 0:
        raise TrainingSetupError(f"learning_rate={arguments.learning_rate} must not be negative")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
