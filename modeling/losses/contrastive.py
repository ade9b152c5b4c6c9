"""Contrastive losses over the cosines of a batch: `contrastive_loss` is the in-batch softmax of MURAL (section 3.1),
ETCL (equations 1 and 2), CLIP and ALIGN. Logits are computed one tile at a time and not kept for the backward pass.
Values and gradients equal those of the full matrix, with O(N * tile) instead of O(N^2) memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import ModelOutput

OutputT = TypeVar("OutputT", bound=ModelOutput)
CPU_TILE = 1024  # fits in the cache of a core
GPU_TILE = 4096  # takes 300 MB, and keeps a GPU busy for longer than its launch takes


def contrastive_loss(
    x: Tensor,
    y: Tensor,
    temperature: Tensor | float,
    *,
    margin: float = 0.0,
    label_smoothing: float = 0.0,
    positives: Tensor | None = None,
    tile_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the mean in-batch softmax cross-entropies over cosine logits, (x -> y, y -> x), in float32 at least.

    With `s_ij = cos(x_i, y_j)`, the logits are `(s_ij - margin * [i == j]) / temperature`. The target of row i is
    column i, and the target of column i is row i. Label smoothing spreads a probability of `label_smoothing` evenly
    over all candidates, including the target. The margin is additive (Yang et al. 2019).

    Args:
        x, y ([N, d]): embeddings, normalized or not; row i of `x` and row i of `y` belong together.
        positives ([N, N] bool, [N] or [K, N] integer): pairs off the diagonal that are also correct and therefore not
            negatives, as a mask or as labels: two rows belong together if any of the K groupings labels them equally.
        tile_size: rows and columns of a tile of logits, by default 1024 on a CPU and 4096 on a GPU.
    """
    tile_size = checked_tile_size(x, y, positives, tile_size)
    dtype = torch.promote_types(x.dtype, torch.float32)
    # Under autocast, the matrix product would run in half precision, which is too coarse for cosines divided by a
    # temperature of 0.01.
    with torch.autocast(x.device.type, enabled=False):
        temperature = torch.as_tensor(temperature, dtype=dtype, device=x.device)
        x = F.normalize(x.to(dtype), dim=-1) / temperature  # a product with a row of y is a logit
        y = F.normalize(y.to(dtype), dim=-1)
        right = (x * y).sum(-1) - margin / temperature  # [N], the logits of the correct pairs
        lse, mean = _TiledSoftmax.apply(x, y, right, positives, tile_size, label_smoothing > 0)
        losses = lse - (1 - label_smoothing) * right - label_smoothing * mean  # [2, N]
    return losses[0].mean(), losses[1].mean()


def symmetric_contrastive_loss(x: Tensor, y: Tensor, temperature: Tensor | float, **kwargs: Any) -> Tensor:
    """Adds both directions of `contrastive_loss`: L_i2t + L_t2i in MURAL, or one pair loss in ETCL (equation 2)."""
    forward, backward = contrastive_loss(x, y, temperature, **kwargs)
    return forward + backward


def triple_contrastive_loss(
    image: Tensor,
    text_a: Tensor,
    text_b: Tensor,
    temperature: Tensor | float,
    *,
    margin: float = 0.0,
    **options: Any,
) -> Tensor:
    """Computes ETCL's loss on images and captions in two languages (equation 4), the mean of the pair losses image-A,
    A-B and B-image. The margin applies to A-B."""
    image_a = symmetric_contrastive_loss(image, text_a, temperature, **options)
    a_b = symmetric_contrastive_loss(text_a, text_b, temperature, margin=margin, **options)
    b_image = symmetric_contrastive_loss(text_b, image, temperature, **options)
    return (image_a + a_b + b_image) / 3


# The output fields with vectors in the shared space.
_EMBEDDINGS = [
    f"{side}_{kind}" for side in ("text", "image", "paired_text", "masked_text") for kind in ("embeds", "features")
]


def mean_over_widths(loss: Callable[[OutputT], Tensor], output: OutputT, widths: Sequence[int]) -> Tensor:
    """Averages a loss of a `DualEncoderOutput`, which normalizes embeddings, over the whole ones and their first
    `widths` (Kusupati et al. 2022)."""
    if not widths:
        return loss(output)
    present = {name: value for name in _EMBEDDINGS if (value := output.get(name)) is not None}
    cut = [replace(output, **{name: value[:, :width] for name, value in present.items()}) for width in widths]
    return torch.stack([loss(each) for each in (output, *cut)]).mean()


def checked_tile_size(x: Tensor, y: Tensor, positives: Tensor | None, tile_size: int | None) -> int:
    """Checks the shapes of a loss's arguments, and returns the number of rows and columns of its tiles."""
    if x.shape != y.shape or x.dim() != 2:
        raise ValueError(f"x and y must both be [N, d], but are {list(x.shape)} and {list(y.shape)}")
    if positives is not None:
        shape = list(positives.shape)
        fits = shape == [len(x)] * 2 if positives.dtype == torch.bool else shape[-1:] == [len(x)] and len(shape) < 3
        if not fits or positives.is_floating_point():
            raise ValueError(f"positives of {len(x)} pairs are a mask or labels, not {shape} {positives.dtype}")
    return tile_size or (CPU_TILE if x.device.type == "cpu" else GPU_TILE)


class _TiledSoftmax(torch.autograd.Function):
    """Computes the log-sum-exps of the rows and columns of `x @ y.T` and, on request, the means of finite logits, [2,
    N] each, by tiles. `right` replaces the diagonal; other positives become -inf, which removes them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, right: Tensor, positives: Tensor | None, tile_size: int, with_mean: bool
    ) -> tuple[Tensor, Tensor]:
        count = len(x)
        ctx.tiles, ctx.with_mean = tiles_of(count, tile_size), with_mean
        lse = x.new_full((2, count), -torch.inf)
        total, finite = x.new_zeros(2, count), x.new_full((2, count), count)
        for rows, columns in ctx.tiles:
            logits, excluded = _tile(x, y, right, positives, rows, columns)
            lse[0, rows] = torch.logaddexp(lse[0, rows], logits.logsumexp(1))
            lse[1, columns] = torch.logaddexp(lse[1, columns], logits.logsumexp(0))
            if with_mean:
                if excluded is not None:
                    logits.masked_fill_(excluded, 0)
                    finite[0, rows] -= excluded.sum(1)
                    finite[1, columns] -= excluded.sum(0)
                total[0, rows] += logits.sum(1)
                total[1, columns] += logits.sum(0)
        ctx.save_for_backward(x, y, right, positives, lse, finite)
        return lse, total / finite

    @staticmethod
    def backward(ctx: Any, grad_lse: Tensor, grad_mean: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with create_graph=True; once_differentiable would not detect it here
            raise NotImplementedError("the contrastive loss has a first derivative only, not one of create_graph=True")
        x, y, right, positives, lse, finite = ctx.saved_tensors
        grad_x, grad_y, grad_right = torch.zeros_like(x), torch.zeros_like(y), torch.zeros_like(right)
        spread = grad_mean / finite
        with torch.autocast(x.device.type, enabled=False):
            for rows, columns in ctx.tiles:
                logits, excluded = _tile(x, y, right, positives, rows, columns)
                # The derivative of a log-sum-exp is the softmax, of a mean 1 / the number of its terms.
                grad = (logits - lse[0, rows, None]).exp_().mul_(grad_lse[0, rows, None])
                grad.addcmul_(logits.sub_(lse[1, columns]).exp_(), grad_lse[1, columns])
                if ctx.with_mean:
                    grad += spread[0, rows, None] + spread[1, columns]
                    if excluded is not None:
                        grad.masked_fill_(excluded, 0)
                if rows == columns:
                    grad_right[rows] = grad.diagonal()
                    grad.diagonal().zero_()
                if ctx.needs_input_grad[0]:
                    grad_x[rows].addmm_(grad, y[columns])
                if ctx.needs_input_grad[1]:
                    grad_y[columns].addmm_(grad.T, x[rows])
        return grad_x, grad_y, grad_right, None, None, None


def tiles_of(count: int, size: int) -> list[tuple[slice, slice]]:
    """Returns the rows and columns of the tiles of a matrix [count, count]."""
    parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    return [(rows, columns) for rows in parts for columns in parts]


def _tile(
    x: Tensor, y: Tensor, right: Tensor, positives: Tensor | None, rows: slice, columns: slice
) -> tuple[Tensor, Tensor | None]:
    """Returns a tile of logits, and the mask of its other positives, each [rows, columns]."""
    logits, excluded = x[rows] @ y[columns].T, other_positives(positives, rows, columns)
    if excluded is not None:
        logits.masked_fill_(excluded, -torch.inf)
    if rows == columns:
        logits.diagonal().copy_(right[rows])
    return logits, excluded


def other_positives(positives: Tensor | None, rows: slice, columns: slice) -> Tensor | None:
    """Returns which entries of a tile off the diagonal belong together, as a new tensor [rows, columns]."""
    if positives is None:
        return None
    if positives.dtype == torch.bool:
        together = positives[rows, columns].clone()
    else:
        groupings = positives if positives.dim() == 2 else positives[None]  # [K, N]
        together = reduce(torch.logical_or, (labels[rows, None] == labels[columns] for labels in groupings))
    return together.fill_diagonal_(False) if rows == columns else together
