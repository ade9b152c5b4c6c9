"""The contrastive losses of RC3 (Zhou et al. 2023, sections 2.3.3 and 2.3.4), as functions of Euclidean distances.

A negative that is farther from the anchor than the positive moves along the line between the two (after Wei et al.
2021), farther the better the model already is. No new representation has to be computed (equations 5 and 6):

    d~- = lambda d-,    lambda = (d+ / d-)^(zeta p_avg) where d- > d+, else 1
    loss = -log( exp(-d+) / (exp(-d+) + sum exp(-d~-)) )                                   (equations 7 and 9)

Equation 9 lacks its -log in print. lambda and p_avg carry no gradient, which the paper does not specify. Each step
contributes the mean of exp(-L) over its anchors to p_avg, the average probability that the paper describes.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class InterpolatedContrast(NamedTuple):
    """The mean loss over the anchors, with a gradient, and the mean probability of the positives among the unmoved
    negatives (exp of minus equation 4), without one. Its average over the last steps is the next p_avg."""

    loss: Tensor
    probability: Tensor


def interpolated_contrastive_loss(
    positive: Tensor,
    negatives: Tensor,
    average_probability: Tensor | float,
    *,
    slack: float = 0.9,
    valid: Tensor | None = None,
) -> InterpolatedContrast:
    """Computes the softmax cross-entropy over negated distances, with negatives moved closer (equations 4-9).

    Args:
        positive ([N]), negatives ([N, K]): the distances of each anchor to its positive, d+, and to its negatives, d-.
        average_probability ([]): p_avg, the mean of `probability` over the previous steps, from 0 (no interpolation).
        slack: zeta in equation 6.
        valid ([N, K] bool): the negatives that count; by default all. Without any, the loss of an anchor is 0.

    Examples:
        >>> to_second = distance_matrix(first, second)  # translations, [N, d] each
        >>> others = ~torch.eye(len(first), dtype=torch.bool)
        >>> contrast = interpolated_contrastive_loss(to_second.diagonal(), to_second, 0.5, valid=others)
    """
    if positive.dim() != 1 or negatives.dim() != 2 or len(positive) != len(negatives):
        raise ValueError(f"distances are [N] and [N, K], not {list(positive.shape)} and {list(negatives.shape)}")
    dtype = torch.promote_types(positive.dtype, torch.float32)
    positive, negatives = positive.to(dtype), negatives.to(dtype)
    with torch.no_grad():
        weights = (positive[:, None] / negatives) ** (slack * average_probability)  # lambda in equation 6
        weights = torch.where(negatives > positive[:, None], weights, 1)
        probability = _negative_log_probability(positive, negatives, valid).neg().exp().mean()
    loss = _negative_log_probability(positive, weights * negatives, valid).mean()
    return InterpolatedContrast(loss, probability)


def relevance_regularization(visio_textual: Tensor, textual: Tensor) -> Tensor:
    """Computes KL(P_vtr || P_tr), the mean over the anchors, [] (equations 10 to 12), which makes the distances
    between texts with an image follow those without it. Both distributions are the softmax of negated distances [N, K]
    to x_i, of another caption of the image and two captions of another image. Only the visio-textual distances receive
    a gradient, which the paper does not specify."""
    if visio_textual.dim() != 2 or visio_textual.shape != textual.shape:
        raise ValueError(f"distances must be [N, K], not {list(visio_textual.shape)} and {list(textual.shape)}")
    dtype = torch.promote_types(visio_textual.dtype, torch.float32)
    log_vtr = (-visio_textual.to(dtype)).log_softmax(dim=1)
    log_tr = (-textual.detach().to(dtype)).log_softmax(dim=1)
    return (log_vtr.exp() * (log_vtr - log_tr)).sum(1).mean()


def row_distances(x: Tensor, y: Tensor) -> Tensor:
    """Computes the Euclidean distance of each pair of rows, [..., d] -> [...]; for equal rows, the gradient is 0."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return torch.linalg.vector_norm(x.to(dtype) - y.to(dtype), dim=-1)


def distance_matrix(x: Tensor, y: Tensor) -> Tensor:
    """Computes the Euclidean distances of all rows, [A, d], [B, d] -> [A, B]; for equal rows, the gradient is 0."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    # A matrix product would lose small distances in the rounding errors of large squares.
    with torch.autocast(x.device.type, enabled=False):
        return torch.cdist(x.to(dtype), y.to(dtype), compute_mode="donot_use_mm_for_euclid_dist")


def share_nothing(identities: Tensor | None, count: int, device: torch.device) -> Tensor:
    """Returns which rows are negatives [N, N]: those without an equal label in `identities` [K, N], or all others."""
    if identities is None:
        return ~torch.eye(count, dtype=torch.bool, device=device)
    return (identities[:, None, :, None] != identities[None, :, None, :]).all(0).all(0)


def _negative_log_probability(positive: Tensor, negatives: Tensor, valid: Tensor | None) -> Tensor:
    """Returns -log of the positive's probability in the softmax of negated distances, [N]."""
    logits = -negatives
    if valid is not None:
        logits = logits.masked_fill(~valid, -torch.inf)
    return torch.cat([-positive[:, None], logits], dim=1).logsumexp(dim=1) + positive
