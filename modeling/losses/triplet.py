"""The triplet losses that SMALR and cross-lingual consistency share (Burns et al. 2020, arXiv 2004.04312). As in the
code of two-branch networks (Wang et al. 2018, arXiv 1704.03470) and of MULE, the N most violated triplets count for
each anchor and positive: those with the negatives nearest to the anchor. A matrix of distances and one `topk` find
them, without allocating a tensor of all triplets."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def top_violation_triplet_loss(
    distances: Tensor,
    positives: Tensor,
    *,
    negatives: Tensor | None = None,
    margin: float = 0.05,
    top_n: int = 10,
    furthest_positive: bool = False,
) -> Tensor:
    """Returns the mean of max(0, margin + d(anchor, positive) - d(anchor, negative)) over the `top_n` most violated
    triplets of each anchor and positive (equation 1, section 3.1); triplets within the margin, or none, give 0.

    Args:
        distances ([A, B]): of the anchors to the other items, or negated scores; G groups [G, A, B] give [G].
        positives, negatives ([A, B] bool): the pairs that belong together, and those that do not, by default the rest.
        furthest_positive: use only the farthest positive of each anchor, as neighborhood constraints do.

    Examples:
        >>> distances = pairwise_distances(image_embeds, text_embeds)
        >>> loss = top_violation_triplet_loss(distances, same_label(image_ids, caption_image_ids))
    """
    negatives = ~positives if negatives is None else negatives
    _check_masks(distances, positives, negatives)
    has_groups = distances.dim() == 3
    if not has_groups:
        distances, positives, negatives = distances[None], positives[None], negatives[None]
    count = min(top_n, distances.shape[2])
    with torch.no_grad():  # selects the pairs that count; only their distances receive a gradient
        nearest = distances.masked_fill(~negatives, torch.inf).topk(count, largest=False, sorted=False).indices
        if furthest_positive:
            furthest = distances.masked_fill(~positives, -torch.inf).argmax(2, keepdim=True)
            positives = torch.zeros_like(positives).scatter(2, furthest, positives.any(2, keepdim=True))
        group, anchor, other = positives.nonzero(as_tuple=True)  # [P]
        exists = negatives.gather(2, nearest)[group, anchor]  # [P, N]; an anchor may have fewer than N
    positive, negative = distances[group, anchor, other][:, None], distances.gather(2, nearest)[group, anchor]
    violations = (margin + positive - negative).clamp(min=0) * exists
    totals = distances.new_zeros(2, len(distances))  # of each group: the sum of violations, and the number of triplets
    both = torch.stack([violations.sum(1), exists.sum(1).to(violations.dtype)])
    violated, triplets = totals.index_add(1, group, both)
    losses = violated / triplets.clamp(min=1)
    return losses if has_groups else losses[0]


def _check_masks(distances: Tensor, *masks: Tensor) -> None:
    for mask in masks:
        if mask.dtype != torch.bool or mask.shape != distances.shape:
            raise ValueError(
                f"masks of {list(distances.shape)} distances are bool, not {list(mask.shape)} {mask.dtype}"
            )


def multimodal_triplet_loss(
    distances: Tensor,
    positives: Tensor,
    *,
    negatives: Tensor | None = None,
    sentence_weight: float = 1.5,
    **options: Any,
) -> Tensor:
    """Computes L_mm = triplet(I; Q+, Q-) + 1.5 triplet(Q; I+, I-) (equation 3), with images as rows and sentences as
    columns; `sentence_weight` is lambda_1. `options` are those of `top_violation_triplet_loss`."""
    negatives = ~positives if negatives is None else negatives
    images = top_violation_triplet_loss(distances, positives, negatives=negatives, **options)
    sentences = top_violation_triplet_loss(distances.mT, positives.mT, negatives=negatives.mT, **options)
    return images + sentence_weight * sentences


def annealed_hinge_loss(distances: Tensor, positives: Tensor, *, hardness: float = 1.0, margin: float = 0.2) -> Tensor:
    """Computes LIWE's hinge loss (`modeling_liwe`), the mean over all pairs that belong together, in each direction,
    and adds both; all others are negatives. `hardness` is k, from 0 (all negatives: learns fast at first) to 1 (only
    the hardest: gives the better result, as in VSE++, Faghri et al. 2018). The authors' code sums over the pairs of a
    batch instead, a factor that does not affect the steps of Adamax."""
    _check_masks(distances, positives)
    loss = _from_rows(distances, positives, hardness, margin)
    return loss + _from_rows(distances.T, positives.T, hardness, margin)


def _from_rows(distances: Tensor, positives: Tensor, hardness: float, margin: float) -> Tensor:
    anchor, other = positives.nonzero(as_tuple=True)  # [P]
    violations = (margin + distances[anchor, other][:, None] - distances[anchor]).clamp(min=0)  # [P, B]
    violations = violations.masked_fill(positives[anchor], 0)
    losses = (1 - hardness) * violations.sum(1) + hardness * violations.amax(1)
    return losses.sum() / max(len(losses), 1)


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    """Returns 1 - cos(x, y) of every row of `x` [A, d] and of `y` [B, d], [A, B], in float32 at least."""
    return normalized_distances(normalize_wide(x), normalize_wide(y))


def normalize_wide(x: Tensor) -> Tensor:
    """Returns the rows of `x` [N, d] with unit length, in float32 at least."""
    return F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)


def normalized_distances(x: Tensor, y: Tensor) -> Tensor:
    """Computes `pairwise_distances` for rows that are already normalized, as by `normalize_wide`."""
    # Under autocast the matrix product would run in half precision, whose rounding errors are as large as the margin.
    with torch.autocast(x.device.type, enabled=False):
        return 1 - x @ y.T


def same_label(rows: Tensor, columns: Tensor) -> Tensor:
    """Returns the mask [A, B] of the pairs with an equal label, such as the index of their image."""
    return rows[:, None] == columns[None, :]
