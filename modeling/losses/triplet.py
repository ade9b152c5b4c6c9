"""The triplet losses that SMALR and cross-lingual consistency share (Burns et al. 2020, arXiv 2004.04312).

The candidates are all triplets of a minibatch. For each anchor and positive, the N triplets that violate the margin
most count, as in the code of two-branch networks (Wang et al. 2018, arXiv 1704.03470) and of MULE, on which SMALR
builds. These are the triplets with the N negatives nearest to the anchor, whichever its positive: a matrix of
distances and one `topk` find them, and no tensor of all triplets is allocated.
"""

from typing import Any

import torch
from torch import Tensor


def top_violation_triplet_loss(
    distances: Tensor,
    positives: Tensor,
    *,
    negatives: Tensor | None = None,
    margin: float = 0.05,
    top_n: int = 10,
    furthest_positive: bool = False,
) -> Tensor:
    """Computes the mean of max(0, margin + d(anchor, positive) - d(anchor, negative)) over the most violated triplets.

    For each anchor and positive, the `top_n` triplets that violate the margin most count, or all of them if there are
    fewer negatives; triplets that keep the margin count as 0. Without any triplet, the loss is 0 (equation 1, section
    3.1).

    Args:
        distances: distances of the anchors (rows) to what they are compared with (columns); negated scores work too.
        positives: the pairs that belong together.
        negatives: the pairs that do not; by default, all that are not positive.
        margin: m in equation 1.
        top_n: N in section 3.1.
        furthest_positive: use only the furthest positive of each anchor, as neighborhood constraints do.

    Returns:
        A scalar, or one loss for each of several groups.

    Shape:
        distances: [A, B]; positives, negatives: [A, B] bool; result: []. For G groups: [G, A, B] and [G].

    Raises:
        ValueError: if a mask is not boolean or has another shape, or `top_n` is below 1.

    Examples:
        >>> distances = pairwise_distances(image_embeds, text_embeds)
        >>> loss = top_violation_triplet_loss(distances, same_label(image_ids, caption_image_ids))
    """
    negatives = ~positives if negatives is None else negatives
    for name, mask in (("positives", positives), ("negatives", negatives)):
        if mask.dtype != torch.bool or mask.shape != distances.shape or distances.dim() not in (2, 3):
            raise ValueError(
                f"distances must be [A, B] or [G, A, B] and {name} the same in bool, but they are "
                f"{list(distances.shape)} and {list(mask.shape)} {mask.dtype}"
            )
    if top_n < 1:
        raise ValueError(f"top_n={top_n} must be at least 1")
    if distances.dim() == 2:
        options: dict[str, Any] = {"margin": margin, "top_n": top_n, "furthest_positive": furthest_positive}
        return top_violation_triplet_loss(distances[None], positives[None], negatives=negatives[None], **options)[0]
    count = min(top_n, distances.shape[2])
    with torch.no_grad():  # selects the pairs that count; only their distances receive a gradient
        nearest = distances.masked_fill(~negatives, torch.inf).topk(count, largest=False, sorted=False).indices
        if furthest_positive:
            group, anchor = positives.any(2).nonzero(as_tuple=True)  # [P]
            furthest = distances.masked_fill(~positives, -torch.inf).argmax(2, keepdim=True)
        else:
            group, anchor, other = positives.nonzero(as_tuple=True)
        exists = negatives.gather(2, nearest)[group, anchor]  # [P, N]; an anchor may have fewer than N
    if furthest_positive:
        compared = distances.gather(2, torch.cat([furthest, nearest], 2))[group, anchor]  # [P, 1 + N]
        positive, negative = compared[:, :1], compared[:, 1:]
    else:
        positive, negative = distances[group, anchor, other][:, None], distances.gather(2, nearest)[group, anchor]
    violations = (margin + positive - negative).clamp(min=0) * exists
    totals = distances.new_zeros(2, len(distances))  # of each group: the sum of violations, and the number of triplets
    both = torch.stack([violations.sum(1), exists.sum(1).to(violations.dtype)])
    violated, triplets = totals.index_add(1, group, both)
    return violated / triplets.clamp(min=1)


def multimodal_triplet_loss(
    distances: Tensor,
    positives: Tensor,
    *,
    negatives: Tensor | None = None,
    sentence_weight: float = 1.5,
    margin: float = 0.05,
    top_n: int = 10,
) -> Tensor:
    """Computes L_mm = triplet(I; Q+, Q-) + 1.5 triplet(Q; I+, I-) (equation 3).

    Args:
        distances: distances of images to sentences.
        positives: which sentences describe which images.
        negatives: which do not; by default, all others.
        sentence_weight: lambda_1, the weight of the triplets whose anchor is a sentence.
        margin, top_n: as in `top_violation_triplet_loss`.

    Returns:
        A scalar, or one loss for each of several groups, such as languages.

    Shape:
        distances: [n_images, n_sentences]; positives, negatives: the same, bool; result: []. For G groups: [G,
            n_images,
        n_sentences] and [G].
    """
    negatives = ~positives if negatives is None else negatives
    images = top_violation_triplet_loss(distances, positives, negatives=negatives, margin=margin, top_n=top_n)
    sentences = top_violation_triplet_loss(
        distances.mT, positives.mT, negatives=negatives.mT, margin=margin, top_n=top_n
    )
    return images + sentence_weight * sentences
