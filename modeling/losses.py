"""Contrastive losses, as pure functions of embeddings.

`contrastive_loss` is the in-batch softmax over cosines of MURAL (section 3.1), ETCL (equations 1 and 2), CLIP and
ALIGN. Above `TILE_FROM` rows it runs in tiles: the same value and gradient, with O(N * tile) memory instead of O(N^2),
because the backward pass recomputes the logits of a tile instead of keeping them.
"""

from typing import Any

import torch
from torch import Tensor

from .triplet_losses import top_violation_triplet_loss as top_violation_triplet_loss

TILE_FROM = 4096
DEFAULT_TILE = 1024


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
    """In-batch softmax cross-entropy over cosine logits, in both directions.

    With `s_ij = cos(x_i, y_j)` the logits are `(s_ij - margin * [i == j]) / temperature`; the target of row i is
    column i and the reverse. Label smoothing spreads `label_smoothing` evenly over all classes, the target included.

    Args:
        x: one side of the pairs, need not be normalised.
        y: the other side; row i of `x` and row i of `y` belong together.
        temperature: divides the cosines; a tensor receives its gradient.
        margin: additive margin, in units of cosine (Yang et al. 2019).
        label_smoothing: between 0 and 1.
        positives: pairs beside the diagonal that are right too and must not count as negatives: either a boolean mask,
            or integer labels (pairs whose two rows carry an equal label in any of the K groupings).
        tile_size: rows and columns of a tile; default: dense up to 4096 rows, tiles of 1024 above.

    Returns:
        The mean losses `(x -> y, y -> x)`, float32 scalars (float64 for float64 input).

    Shape:
        x, y: [N, d]; temperature: []; positives: [N, N] bool, or [N] or [K, N] integer.

    Raises:
        ValueError: when `x` and `y`, or `positives`, do not fit, or `tile_size` is not positive.
    """
    if x.shape != y.shape or x.dim() != 2:
        raise ValueError(f"x and y must both be [N, d], but are {list(x.shape)} and {list(y.shape)}")
    count = len(x)
    if positives is not None:
        _check_positives(positives, count)
    if tile_size is not None and tile_size < 1:
        raise ValueError(f"tile_size={tile_size} must be at least 1")
    dtype = torch.promote_types(x.dtype, torch.float32)
    # Under autocast the matrix product would run in half precision; cosines divided by a temperature of 0.01 need
    # float32.
    with torch.autocast(x.device.type, enabled=False):
        x = torch.nn.functional.normalize(x.to(dtype), dim=-1)
        y = torch.nn.functional.normalize(y.to(dtype), dim=-1)
        temperature = torch.as_tensor(temperature, dtype=dtype, device=x.device)
        if tile_size is None:
            tile_size = count if count <= TILE_FROM else DEFAULT_TILE
        if tile_size >= count:
            logits = _logits(x, y, temperature, margin, positives, slice(0, count), slice(0, count))
            return _direction(logits, 1, label_smoothing).mean(), _direction(logits, 0, label_smoothing).mean()
        return _TiledContrastiveLoss.apply(x, y, temperature, margin, label_smoothing, positives, tile_size)


def _check_positives(positives: Tensor, count: int) -> None:
    if positives.dtype == torch.bool:
        fits = positives.shape == (count, count)
    else:
        fits = not positives.is_floating_point() and positives.dim() in (1, 2) and positives.shape[-1] == count
    if not fits:
        raise ValueError(
            f"positives of {count} pairs are [{count}, {count}] bool, or labels [{count}] or [K, {count}] of an "
            f"integer type; these are {list(positives.shape)} {positives.dtype}"
        )


def symmetric_contrastive_loss(x: Tensor, y: Tensor, temperature: Tensor | float, **kwargs: Any) -> Tensor:
    """The sum of both directions of `contrastive_loss`: L_i2t + L_t2i of MURAL, one pair loss of ETCL (equation 2)."""
    forward, backward = contrastive_loss(x, y, temperature, **kwargs)
    return forward + backward


def triple_contrastive_loss(
    image: Tensor,
    text_a: Tensor,
    text_b: Tensor,
    temperature: Tensor | float,
    *,
    text_text_temperature: Tensor | float | None = None,
    margin: float = 0.0,
    **options: Any,
) -> Tensor:
    """ETCL, equation 4."""
    images_a = symmetric_contrastive_loss(image, text_a, temperature, **options)
    tau = temperature if text_text_temperature is None else text_text_temperature
    texts = symmetric_contrastive_loss(text_a, text_b, tau, margin=margin, **options)
    images_b = symmetric_contrastive_loss(text_b, image, temperature, **options)
    return (images_a + texts + images_b) / 3


def _logits(
    x: Tensor, y: Tensor, temperature: Tensor, margin: float, positives: Tensor | None, rows: slice, columns: slice
) -> Tensor:
    """The logits of one tile, [rows, columns]; further positives are -inf, which takes them out of every softmax."""
    cosines = x[rows] @ y[columns].T
    diagonal = _diagonal(rows, columns, x.device)
    if margin:
        cosines = cosines - margin * diagonal.to(cosines.dtype)
    logits = cosines / temperature
    if positives is not None:
        logits = logits.masked_fill(_same(positives, rows, columns) & ~diagonal, -torch.inf)
    return logits


def _diagonal(rows: slice, columns: slice, device: torch.device) -> Tensor:
    """Which entries of a tile are right pairs, [rows, columns] bool."""
    row_index = torch.arange(rows.start, rows.stop, device=device)
    return row_index[:, None] == torch.arange(columns.start, columns.stop, device=device)[None, :]


def _same(positives: Tensor, rows: slice, columns: slice) -> Tensor:
    if positives.dtype == torch.bool:
        return positives[rows, columns]
    labels = positives if positives.dim() == 2 else positives[None]  # [K, N]
    return (labels[:, rows, None] == labels[:, None, columns]).any(0)


def _direction(logits: Tensor, dim: int, label_smoothing: float) -> Tensor:
    """Cross-entropy of each row (`dim=1`) or column (`dim=0`) against the diagonal, [N]."""
    loss = logits.logsumexp(dim) - (1 - label_smoothing) * logits.diagonal()
    if label_smoothing:
        valid = logits.isfinite()
        loss = loss - label_smoothing * logits.masked_fill(~valid, 0).sum(dim) / valid.sum(dim)
    return loss


class _TiledContrastiveLoss(torch.autograd.Function):
    """`contrastive_loss` for normalised `x` and `y`, one tile of logits at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        temperature: Tensor,
        margin: float,
        label_smoothing: float,
        positives: Tensor | None,
        tile_size: int,
    ) -> tuple[Tensor, Tensor]:
        count = len(x)
        tiles = [slice(start, min(start + tile_size, count)) for start in range(0, count, tile_size)]
        lse = x.new_full((2, count), -torch.inf)  # of rows, of columns
        total, valid = x.new_zeros(2, count), x.new_zeros(2, count)  # of finite logits, for label smoothing
        diagonal = x.new_empty(count)
        for rows in tiles:
            for columns in tiles:
                logits = _logits(x, y, temperature, margin, positives, rows, columns)
                if rows == columns:
                    diagonal[rows] = logits.diagonal()
                for side, index, dim in ((0, rows, 1), (1, columns, 0)):
                    lse[side, index] = torch.logaddexp(lse[side, index], logits.logsumexp(dim))
                    if label_smoothing:
                        finite = logits.isfinite()
                        total[side, index] += logits.masked_fill(~finite, 0).sum(dim)
                        valid[side, index] += finite.sum(dim)
        losses = lse - (1 - label_smoothing) * diagonal
        if label_smoothing:
            losses = losses - label_smoothing * total / valid
        ctx.save_for_backward(x, y, temperature, positives, lse, valid)
        ctx.margin, ctx.label_smoothing, ctx.tiles = margin, label_smoothing, tiles
        return losses[0].mean(), losses[1].mean()

    @staticmethod
    def backward(ctx: Any, grad_rows: Tensor, grad_columns: Tensor) -> tuple[Tensor | None, ...]:
        x, y, temperature, positives, lse, valid = ctx.saved_tensors
        grad_x, grad_y, grad_temperature = torch.zeros_like(x), torch.zeros_like(y), torch.zeros_like(temperature)
        grad_rows, grad_columns = grad_rows / len(x), grad_columns / len(x)
        for rows in ctx.tiles:
            for columns in ctx.tiles:
                logits = _logits(x, y, temperature, ctx.margin, positives, rows, columns)
                # d loss / d logits = softmax - (1 - eps) * [i == j] - eps / valid, for both directions
                grad = grad_rows * (logits - lse[0, rows, None]).exp_()
                grad += grad_columns * (logits - lse[1, None, columns]).exp_()
                if rows == columns:
                    grad.diagonal().sub_((1 - ctx.label_smoothing) * (grad_rows + grad_columns))
                if ctx.label_smoothing:
                    spread = grad_rows / valid[0, rows, None] + grad_columns / valid[1, None, columns]
                    grad -= ctx.label_smoothing * spread.masked_fill(logits.isinf(), 0)
                # logits = cosine / temperature, so d logits / d temperature = -logits / temperature
                grad_temperature -= (grad * logits.masked_fill(logits.isinf(), 0)).sum() / temperature
                grad /= temperature
                grad_x[rows] += grad @ y[columns]
                grad_y[columns] += grad.T @ x[rows]
        return grad_x, grad_y, grad_temperature, None, None, None, None
