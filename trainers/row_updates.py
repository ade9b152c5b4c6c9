"""AdamW for word tables of which the training texts use few rows: a step moves only rows that have had a gradient.

The moments of a row without a gradient so far are zero. AdamW multiplies such a row by `1 - lr * weight_decay`, and
does not move it otherwise, so that its moments need be neither read nor written. A multilingual vocabulary has 119 547
word pieces, and the texts of a language use a small part of them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.adamw import adamw

# Number of rows that are moved together: their weights, gradients and moments stay in a processor's cache.
_ROWS = 512


class RowAdamW(AdamW):
    """AdamW for weights of which some have sparse gradients, as `nn.Embedding` computes them with `sparse=True`.

    Rows that have had a gradient are moved as by AdamW, but for rounding; of other rows, the moments are not touched.
    The state has the names and shapes of AdamW's, so that each continues from the other's checkpoints.

    Args:
        params: parameters, or parameter groups.
        options: arguments of AdamW. `amsgrad`, `maximize`, `capturable` and `differentiable` do not apply to weights
            with sparse gradients.
    """

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        super().__init__(params, **options)
        self._moved: dict[Tensor, Tensor] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:  # also a part of `load_state_dict`
        super().__setstate__(state)
        self._moved = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        trained = [(w, group, w.grad) for group in self.param_groups for w in group["params"] if w.grad is not None]
        tables = [each for each in trained if each[2].is_sparse]
        for weight, *_ in tables:
            weight.grad = None  # which the base class would refuse
        super().step()
        for weight, group, gradient in tables:
            weight.grad = gradient
            self._move_rows(weight, group, gradient.coalesce())
        return loss

    def _move_rows(self, weight: Tensor, group: dict[str, Any], gradient: Tensor) -> None:
        state = self.state[weight]
        if not state:
            state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
            self._moved[weight] = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
        if weight not in self._moved:  # after a checkpoint was loaded
            self._moved[weight] = (state["exp_avg"] != 0).any(1) | (state["exp_avg_sq"] != 0).any(1)
        moved, rows, values = self._moved[weight], gradient.indices()[0], gradient.values()
        if group["weight_decay"]:
            weight.mul_(1 - group["lr"] * group["weight_decay"])
        absent = moved.index_fill(0, rows, False).nonzero()[:, 0]
        moved[rows] = True
        nothing = values.new_zeros(_ROWS, values.shape[1])
        parts = [*zip(rows.split(_ROWS), values.split(_ROWS), strict=True)]
        parts += [(part, nothing[: len(part)]) for part in absent.split(_ROWS)]
        for chosen, gradients in parts:
            held = [tensor.index_select(0, chosen) for tensor in (weight, state["exp_avg"], state["exp_avg_sq"])]
            _move(held, gradients, state["step"].clone(), group)
            for tensor, part in zip((weight, state["exp_avg"], state["exp_avg_sq"]), held, strict=True):
                tensor.index_copy_(0, chosen, part)
        state["step"] += 1


def _move(held: list[Tensor], gradient: Tensor, step: Tensor, group: dict[str, Any]) -> None:
    """Moves weights, whose decay was applied before, and their two moments by one step."""
    weights, means, squares = held
    adamw(
        [weights],
        [gradient],
        [means],
        [squares],
        [],
        [step],
        foreach=group["foreach"],
        fused=group["fused"],
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=group["lr"],
        weight_decay=0.0,
        eps=group["eps"],
        maximize=False,
    )


@contextmanager
def gradients_of_rows(tables: Iterable[nn.Embedding]) -> Iterator[None]:
    """A context in which tables have sparse gradients, with the rows that a batch reads."""
    tables = [table for table in tables if not table.sparse]
    for table in tables:
        table.sparse = True
    try:
        yield
    finally:
        for table in tables:
            table.sparse = False


@torch.no_grad()
def clip_by_norm(weights: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Clips gradients, of which some may be sparse.

    Args:
        weights: the weights.
        max_norm: the norm to which the gradient of all weights together is clipped.

    Returns:
        The norm before clipping [].
    """
    dense: list[Tensor] = []
    for weight in weights:
        if weight.grad is not None and weight.grad.is_sparse:
            weight.grad = weight.grad.coalesce()
            dense.append(weight.grad.values())
        elif weight.grad is not None:
            dense.append(weight.grad)
    norm = nn.utils.get_total_norm(dense)
    torch._foreach_mul_(dense, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
