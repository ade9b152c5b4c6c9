"""SigLIP's loss over the cosines of a batch (Zhai et al. 2023, section 3.2), computed in tiles as in `contrastive`."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .contrastive import checked_tile_size, other_positives, tiles_of


def sigmoid_loss(
    x: Tensor,
    y: Tensor,
    temperature: Tensor | float,
    bias: Tensor | float,
    *,
    positives: Tensor | None = None,
    tile_size: int | None = None,
) -> Tensor:
    """Computes SigLIP's loss, which classifies each of the N^2 pairs independently: with the logits `l_ij = cos(x_i,
    y_j) / temperature + bias`, `-1/N sum_i (log sigmoid(l_ii) + sum_{j != i} log sigmoid(-l_ij))`. The paper begins
    with the temperature 0.1 and the bias -10, because nearly all pairs are negatives. Other `positives` count neither
    as positives nor as negatives; the other arguments are as in `contrastive_loss`."""
    tile_size = checked_tile_size(x, y, positives, tile_size)
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        temperature, bias = (torch.as_tensor(value, dtype=dtype, device=x.device) for value in (temperature, bias))
        x = F.normalize(x.to(dtype), dim=-1) / temperature  # a product with a row of y is a logit without its bias
        y = F.normalize(y.to(dtype), dim=-1)
        return _TiledSigmoid.apply(x, y, bias, positives, tile_size)


class _TiledSigmoid(torch.autograd.Function):
    """Computes SigLIP's loss for `x @ y.T + bias`, [], one tile at a time, and its gradients in the same pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, bias: Tensor, positives: Tensor | None, tile_size: int) -> Tensor:
        ctx.count = len(x)
        loss, grad_bias = x.new_zeros(()), x.new_zeros(())
        grad_x, grad_y = (torch.zeros_like(side) if ctx.needs_input_grad[k] else None for k, side in enumerate((x, y)))
        for rows, columns in tiles_of(ctx.count, tile_size):
            logits = (x[rows] @ y[columns].T).add_(bias)
            if (excluded := other_positives(positives, rows, columns)) is not None:
                logits.masked_fill_(excluded, -torch.inf)  # no loss and no gradient
            if rows == columns:
                logits.diagonal().neg_()
            # -log sigmoid(-l); from the threshold on it is l itself, with an error of exp(-l).
            loss += F.softplus(logits, threshold=40).sum()
            if not any(ctx.needs_input_grad[:3]):
                continue
            grad = logits.sigmoid_()
            if rows == columns:
                grad.diagonal().neg_()
            grad_bias += grad.sum()
            if grad_x is not None:
                grad_x[rows].addmm_(grad, y[columns])
            if grad_y is not None:
                grad_y[columns].addmm_(grad.T, x[rows])
        ctx.save_for_backward(grad_x, grad_y, grad_bias)
        return loss / ctx.count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with create_graph=True
            raise NotImplementedError("the sigmoid loss has a first derivative only, not one of create_graph=True")
        scale = gradient / ctx.count
        grads = [None if grad is None else grad * scale for grad in ctx.saved_tensors]
        return *grads, None, None
