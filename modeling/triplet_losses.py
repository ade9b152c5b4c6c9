"""The losses of SMALR (Burns et al. 2020, arXiv 2004.04312), as pure functions of tensors.

    L = L_mm + 1e-4 L_mask + 1e-6 L_adv + 5e-2 L_nc                                                     (equation 4)

All triplets of a minibatch are meant, and of each anchor and positive the N most violated count, as in the code of
two-branch networks (Wang et al. 2018, arXiv 1704.03470) and MULE, on which SMALR stands. They are the N nearest
negatives of the anchor, whichever its positive: a matrix of distances and one `topk` find them, and no tensor of
triplets is made. The paper's distance is the cosine's, the code's the Euclidean.

Sentences of several languages stand in a grid, one row for each language, in which a column is of one image
(`sentence_grid`): what is asked of every language, or of every two, is then asked of all in few operations.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

DISTANCES = ("cosine", "euclidean")
# The code's: keeps the square root differentiable where two vectors are equal.
_EUCLIDEAN_EPSILON = 1e-4


def pairwise_distances(x: Tensor, y: Tensor, distance: Literal["cosine", "euclidean"] = "cosine") -> Tensor:
    """Distances of every x to every y, in float32 at least.

    Args:
        x, y: embeddings; only the cosine normalises them.
        distance: `"cosine"`, 1 - cos(x, y), the paper's; or `"euclidean"`, sqrt(|x - y|^2 + 1e-4), the code's.

    Shape:
        x: [A, d]; y: [B, d]; result: [A, B].

    Raises:
        ValueError: for another distance, or embeddings that do not fit.
    """
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x and y must be [A, d] and [B, d], but are {list(x.shape)} and {list(y.shape)}")
    return _distances(_comparable(x, distance), _comparable(y, distance), distance)


def _comparable(x: Tensor, distance: str) -> Tensor:
    """Embeddings as `_distances` takes them."""
    if distance not in DISTANCES:
        raise ValueError(f"distance={distance!r} must be one of {', '.join(map(repr, DISTANCES))}")
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return nn.functional.normalize(x, dim=-1) if distance == "cosine" else x


def _distances(x: Tensor, y: Tensor, distance: str) -> Tensor:
    # Under autocast the matrix product would run in half precision, as coarse as the margin.
    with torch.autocast(x.device.type, enabled=False):
        if distance == "cosine":
            return 1 - x @ y.T
        squares = x.square().sum(1)[:, None] - 2 * x @ y.T + y.square().sum(1)
        return (squares.clamp(min=0) + _EUCLIDEAN_EPSILON).sqrt()


def same_label(rows: Tensor, columns: Tensor) -> Tensor:
    """The mask of the pairs that belong together: those with an equal label, such as the number of their image.

    Several sentences of an image carry its label each: `torch.arange(n_images).repeat_interleave(sample_size)`.

    Shape:
        rows: [A] integer; columns: [B] integer; result: [A, B] bool.
    """
    return rows[:, None] == columns[None, :]


class SentenceGrid(NamedTuple):
    """Sentences by language and image. A column is of one image and of one number: the n-th sentence of an image in a
    language and the n-th in another are translations of one another, where there are translations.

    Args:
        places: numbers of sentences; 0 where there is none.
        is_there: where there is one.
        image_ids: the image of each column.

    Shape:
        places, is_there: [L, K]; image_ids: [K].
    """

    places: Tensor
    is_there: Tensor
    image_ids: Tensor

    def same_image(self) -> Tensor:
        """Which columns are of the same image, [K, K] bool."""
        return same_label(self.image_ids, self.image_ids)


def sentence_grid(image_ids: Tensor, language_ids: Tensor) -> SentenceGrid:
    """The grid of sentences, from the image and the language of each.

    Shape:
        image_ids, language_ids: [S] integer.
    """
    _, language = language_ids.unique(return_inverse=True)
    images, image = image_ids.unique(return_inverse=True)
    number = _occurrence(language * len(images) + image)
    size = len(image_ids)
    columns, column = (image * size + number).unique(return_inverse=True)
    places = image_ids.new_full((int(language.max()) + 1 if size else 0, len(columns)), -1)
    places[language, column] = torch.arange(size, device=image_ids.device)
    return SentenceGrid(places.clamp(min=0), places >= 0, images[columns // max(size, 1)])


def _occurrence(values: Tensor) -> Tensor:
    """How many equal values stand before each, [S] -> [S]."""
    order = values.argsort(stable=True)
    _, counts = values[order].unique_consecutive(return_counts=True)
    firsts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    occurrence = torch.empty_like(order)
    occurrence[order] = torch.arange(len(order), device=order.device) - firsts
    return occurrence


def top_violation_triplet_loss(
    distances: Tensor,
    positives: Tensor,
    *,
    negatives: Tensor | None = None,
    margin: float = 0.05,
    top_n: int = 10,
    furthest_positive: bool = False,
) -> Tensor:
    """The mean of max(0, margin + d(anchor, positive) - d(anchor, negative)) over the most violated triplets.

    Of each anchor and positive, the `top_n` triplets that violate the margin most count, or as many as there are
    negatives; those that keep it count as 0. Without any triplet the loss is 0. (Equation 1; section 3.1.)

    Args:
        distances: from the anchors, the rows, to what they are compared with; the negated scores will do.
        positives: the pairs that belong together.
        negatives: the pairs that do not; by default all that are not positive.
        margin: m of equation 1.
        top_n: N of section 3.1.
        furthest_positive: let only the furthest positive of each anchor count, as neighbourhood constraints do.

    Shape:
        distances: [A, B]; positives, negatives: [A, B] bool; result: []. Or all of several groups, each with a loss of
        its own: [G, A, B] and [G].

    Raises:
        ValueError: when the masks are not boolean or do not fit, or `top_n` is not positive.
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
    with torch.no_grad():  # which pairs count; the gradient flows through these alone
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
    totals = distances.new_zeros(2, len(distances))  # of the groups: violations and triplets
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
    """L_mm = triplet(I; Q+, Q-) + 1.5 triplet(Q; I+, I-) (equation 3).

    Args:
        distances: from images to sentences.
        positives: which sentence is of which image.
        negatives: which is not; by default all others.
        sentence_weight: lambda_1, of the triplets whose anchor is a sentence.
        margin, top_n: as in `top_violation_triplet_loss`.

    Shape:
        distances: [n_images, n_sentences]; positives, negatives: the same, bool; result: []. Or all of several groups,
        such as languages, each with a loss of its own: [G, n_images, n_sentences] and [G].
    """
    negatives = ~positives if negatives is None else negatives
    images = top_violation_triplet_loss(distances, positives, negatives=negatives, margin=margin, top_n=top_n)
    sentences = top_violation_triplet_loss(
        distances.mT, positives.mT, negatives=negatives.mT, margin=margin, top_n=top_n
    )
    return images + sentence_weight * sentences


def neighbourhood_loss(
    sentences: Tensor,
    image_ids: Tensor,
    language_ids: Tensor,
    *,
    distance: Literal["cosine", "euclidean"] = "cosine",
    margin: float = 0.05,
    top_n: int = 10,
) -> Tensor:
    """L_nc: sentences of one image are to be neighbours, within a language and across languages (section 3.3).

    The mean over every two languages, in both orders, and each with itself: sentences of the first are anchors, with
    the furthest sentence of their image in the second for a positive. Languages that share no image (or, within a
    language, images with a single sentence) give no triplet and do not count. Distances are those of one language to
    all at a time.

    Args:
        sentences: averaged universal embeddings, or final ones.
        image_ids: the image of each sentence.
        language_ids: the language of each sentence.
        distance: as in `pairwise_distances`.
        margin, top_n: as in `top_violation_triplet_loss`.

    Shape:
        sentences: [S, d]; image_ids, language_ids: [S] integer; result: [].

    Raises:
        ValueError: when there is not one image and one language for each sentence.
    """
    if not len(sentences) == len(image_ids) == len(language_ids):
        raise ValueError(
            f"{len(sentences)} sentences came with {len(image_ids)} image_ids and {len(language_ids)} language_ids"
        )
    grid = sentence_grid(image_ids, language_ids)
    same_image = grid.same_image()
    itself = torch.eye(len(same_image), dtype=torch.bool, device=same_image.device)
    others = _comparable(sentences[grid.places.flatten()], distance)  # [L * K, d]
    losses = []
    for row, anchors in enumerate(others.split(len(itself))):
        distances = _distances(anchors, others, distance).unflatten(1, grid.places.shape).transpose(0, 1)  # [L, K, K]
        exist = grid.is_there[row, :, None] & grid.is_there[:, None, :]  # [L, K, K]
        positives = exist & same_image
        positives[row] &= ~itself  # a sentence is no neighbour of its own
        negatives = exist & ~same_image
        found = top_violation_triplet_loss(
            distances, positives, negatives=negatives, margin=margin, top_n=top_n, furthest_positive=True
        )
        losses.append(found[positives.any(2).any(1)])
    return torch.cat(losses).mean() if any(map(len, losses)) else sentences.sum() * 0


def adversarial_language_loss(
    means: Tensor, weight: Tensor, bias: Tensor, language_ids: Tensor, *, reversal: float
) -> Tensor:
    """L_adv: a linear classifier learns to tell a sentence's language, and the embeddings learn to hide it.

    Cross-entropy on the L2-normalised mean of a sentence's universal embeddings; what flows back to the embeddings is
    reversed (section 3.3, after MULE; Ganin & Lempitsky 2015, arXiv 1409.7495).

    Args:
        means: mean universal embedding of each sentence.
        weight, bias: the classifier's.
        language_ids: the right language of each sentence.
        reversal: weight of the reversed gradient, from `reversal_schedule`.

    Shape:
        means: [N, d]; weight: [L, d]; bias: [L]; language_ids: [N] integer; result: [].
    """
    reversed_means = reverse_gradient(nn.functional.normalize(means, dim=-1), reversal)
    return nn.functional.cross_entropy(nn.functional.linear(reversed_means, weight, bias), language_ids)


def reverse_gradient(x: Tensor, weight: float) -> Tensor:
    """`x` itself, whose gradient is multiplied by -weight."""
    return _ReverseGradient.apply(x, weight)


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.weight * gradient, None


def reversal_schedule(progress: float) -> float:
    """2 / (1 + exp(-10 p)) - 1, the weight of the reversed gradient after the fraction p of training: from 0 to 1.

    Raises:
        ValueError: when `progress` is not between 0 and 1.
    """
    if not 0 <= progress <= 1:
        raise ValueError(f"progress={progress} must be a fraction of the training, from 0 to 1")
    return 2 / (1 + math.exp(-10 * progress)) - 1


def masked_reconstruction_loss(masked: Tensor, predicted: Tensor, sentences: Tensor) -> Tensor:
    """L_mask = |l2(S_i^m + S_i') - l2(S_i)| + |l2(S_j^m + S_j') - l2(S_j)| (equation 2), the mean over sentence pairs.

    The norms are not squared; l2 normalises. The average and the recurrent representations have a loss each.

    Args:
        masked: representations of the masked sentences, S^m.
        predicted: what the shared layer adds to them, S'.
        sentences: representations of the unmasked sentences, S.

    Shape:
        masked, predicted, sentences: [2, N, d], the sentences in languages i and j; result: [].

    Raises:
        ValueError: when the three do not have this shape.
    """
    shapes = [list(tensor.shape) for tensor in (masked, predicted, sentences)]
    if shapes.count(shapes[0]) < 3 or masked.dim() != 3 or len(masked) != 2:
        raise ValueError(
            f"masked, predicted and sentences must all be [2, N, d], but are {', '.join(map(str, shapes))}"
        )
    reconstructed = nn.functional.normalize(masked + predicted, dim=-1)
    errors = (reconstructed - nn.functional.normalize(sentences, dim=-1)).norm(dim=-1)  # [2, N, d] -> [2, N]
    return errors.sum(0).mean()


def smalr_loss(
    multimodal: Tensor,
    mask: Tensor,
    adversarial: Tensor,
    neighbourhood: Tensor,
    *,
    mask_weight: float = 1e-4,
    adversarial_weight: float = 1e-6,
    neighbourhood_weight: float = 5e-2,
) -> Tensor:
    """L = L_mm + lambda_2 L_mask + lambda_3 L_adv + lambda_4 L_nc (equation 4, with the paper's weights).

    Shape:
        multimodal, mask, adversarial, neighbourhood, result: [].
    """
    weighted = mask_weight * mask + adversarial_weight * adversarial + neighbourhood_weight * neighbourhood
    return multimodal + weighted
