"""Checks that stop the training if a loss, a gradient or a weight is NaN or infinite.

A loss is checked before its gradient is computed, gradients before the optimizer takes a step, and weights before they
are saved, so that checkpoints and results hold finite numbers only.
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
# An infinite max_grad_norm means that gradients are not clipped.
_MAY_BE_INFINITE = "max_grad_norm"


def check_finite(loss: Tensor, what: str, step: int) -> None:
    """Checks a loss before its gradient is computed.

    Args:
        loss: the loss [].
        what: name of the loss, for the error message.
        step: number of the training step, for the error message.

    Raises:
        NonFiniteError: if the loss is NaN or infinite.
    """
    if not loss.isfinite():
        raise NonFiniteError(
            f"the loss of {what} is {loss.item()} in step {step}; training stopped before it reached the weights. "
            f"{_ADVICE}"
        )


def raise_for_gradient(norm: Tensor | float, gradients: Mapping[str, Tensor], step: int) -> NoReturn:
    """Reports a gradient that is not finite.

    Args:
        norm: the norm of all gradients, NaN or infinite [].
        gradients: parameter name -> gradient after clipping.
        step: number of the training step, for the error message.

    Raises:
        NonFiniteError: always; the message names parameters.
    """
    names = non_finite(gradients)
    # If the norm is NaN, clipping has made all gradients NaN. Finite gradients can have an infinite norm.
    where = f" because of {_some(names)}" if 0 < len(names) < len(gradients) else ""
    raise NonFiniteError(
        f"the gradient's norm is {float(norm)} in step {step}{where}; training stopped before it reached the weights. "
        f"{_ADVICE}"
    )


def check_weights(weights: Mapping[str, Tensor], step: int) -> None:
    """Checks weights before they are saved.

    Args:
        weights: name -> tensor.
        step: number of the last training step, for the error message.

    Raises:
        NonFiniteError: if one of them is NaN or infinite.
    """
    if names := non_finite(weights):
        raise NonFiniteError(
            f"after step {step}, {len(names)} of {len(weights)} tensors are not finite: {_some(names)}. Nothing was "
            f"saved; older checkpoints are as they were. {_ADVICE}"
        )


def non_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors that hold NaN or infinity. Of sharded tensors, each process checks its own shard."""
    return [name for name, tensor in tensors.items() if not is_finite(tensor)]


def is_finite(tensor: Tensor | float) -> bool:
    """Whether all numbers of a tensor, or of this process's shard of it, are finite."""
    if not isinstance(tensor, Tensor):
        return math.isfinite(tensor)
    own = tensor.detach()
    if isinstance(own, DTensor):
        own = own.to_local()
    if own.is_sparse:
        own = own.coalesce().values()
    return model_folders.is_finite(own)


def check_numbers(arguments: Any) -> None:
    """Checks the numbers in training arguments, and in their dictionaries.

    Args:
        arguments: a data class of training arguments.

    Raises:
        TrainingSetupError: for a number that is NaN or infinite, and for a negative learning rate.
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
