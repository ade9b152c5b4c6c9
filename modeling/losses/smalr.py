"""The losses of SMALR (Burns et al. 2020, arXiv 2004.04312), as pure functions of tensors.

    L = L_mm + 1e-4 L_mask + 1e-6 L_adv + 5e-2 L_nc                                                     (equation 4)

L_mm is `multimodal_triplet_loss` in the module `triplet`. Sentences of several languages are arranged in a grid with
one row for each language, in which every column holds sentences about one image (`sentence_grid`): a constraint on
every language, or on every two languages, is then computed for all of them in few operations.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .distances import normalize_wide, normalized_distances, same_label
from .triplet import top_violation_triplet_loss


class SentenceGrid(NamedTuple):
    """Sentences by language and image. A column is of one image and of one number: the n-th sentence of an image in a
    language and the n-th in another are translations of one another, where there are translations.

    Args:
        indices: numbers of sentences; 0 where there is none.
        is_there: where there is one.
        image_ids: the image of each column.

    Shape:
        indices, is_there: [L, K]; image_ids: [K].
    """

    indices: Tensor
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
    indices = image_ids.new_full((int(language.max()) + 1 if size else 0, len(columns)), -1)
    indices[language, column] = torch.arange(size, device=image_ids.device)
    return SentenceGrid(indices.clamp(min=0), indices >= 0, images[columns // max(size, 1)])


def _occurrence(values: Tensor) -> Tensor:
    """How many equal values stand before each, [S] -> [S]."""
    order = values.argsort(stable=True)
    _, counts = values[order].unique_consecutive(return_counts=True)
    firsts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    occurrence = torch.empty_like(order)
    occurrence[order] = torch.arange(len(order), device=order.device) - firsts
    return occurrence


def neighbourhood_loss(
    sentences: Tensor,
    image_ids: Tensor,
    language_ids: Tensor,
    *,
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
    others = normalize_wide(sentences[grid.indices.flatten()])  # [L * K, d]
    losses = []
    for row, anchors in enumerate(others.split(len(itself))):
        distances = normalized_distances(anchors, others).unflatten(1, grid.indices.shape).transpose(0, 1)  # [L, K, K]
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
