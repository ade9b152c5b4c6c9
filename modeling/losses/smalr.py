"""The losses of SMALR (Burns et al. 2020, arXiv 2004.04312); L_mm is `triplet.multimodal_triplet_loss`.

    L = L_mm + 1e-4 L_mask + 1e-6 L_adv + 5e-2 L_nc                                                     (equation 4)

Sentences are arranged by language and image, so constraints on every pair of languages take few operations.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .triplet import normalize_wide, normalized_distances, same_label, top_violation_triplet_loss


class SentenceGrid(NamedTuple):
    """Indices of sentences by language and image. The n-th sentences about an image in each language share a column,
    so translations in the same order do (`SentenceCollator` samples them together)."""

    indices: Tensor  # [L, K], index of the sentence in each cell; 0 in empty cells
    is_there: Tensor  # [L, K], which cells hold a sentence
    image_ids: Tensor  # [K], the image of each column


def sentence_grid(image_ids: Tensor, language_ids: Tensor) -> SentenceGrid:
    """Arranges sentences in a grid, by the image [S] and the language [S] of each."""
    _, language = language_ids.unique(return_inverse=True)
    images, image = image_ids.unique(return_inverse=True)
    number = _occurrence(language * len(images) + image)
    size = len(image_ids)
    columns, column = (image * size + number).unique(return_inverse=True)
    indices = image_ids.new_full((int(language.max()) + 1 if size else 0, len(columns)), -1)
    indices[language, column] = torch.arange(size, device=image_ids.device)
    return SentenceGrid(indices.clamp(min=0), indices >= 0, images[columns // max(size, 1)])


def _occurrence(values: Tensor) -> Tensor:
    """Returns how many equal values precede each value, [S] -> [S]."""
    order = values.argsort(stable=True)
    _, counts = values[order].unique_consecutive(return_counts=True)
    firsts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    occurrence = torch.empty_like(order)
    occurrence[order] = torch.arange(len(order), device=order.device) - firsts
    return occurrence


def neighborhood_loss(
    sentences: Tensor,
    image_ids: Tensor,
    language_ids: Tensor,
    *,
    margin: float = 0.05,
    top_n: int = 10,
    only_across: bool = False,
) -> Tensor:
    """Computes L_nc [], which makes sentences [S, d] about one image neighbors, within and across languages (section
    3.3). The loss is the mean over every ordered pair of languages, including each language with itself unless
    `only_across`. Sentences of the first language are anchors; the positive is the farthest sentence about the same
    image in the second, by cosine distance. Pairs of languages without such sentences are left out."""
    if not len(sentences) == len(image_ids) == len(language_ids):
        raise ValueError(
            f"{len(sentences)} sentences came with {len(image_ids)} labels and {len(language_ids)} languages"
        )
    grid = sentence_grid(image_ids, language_ids)
    same_image = same_label(grid.image_ids, grid.image_ids)  # [K, K]
    itself = torch.eye(len(same_image), dtype=torch.bool, device=same_image.device)
    others = normalize_wide(sentences[grid.indices.flatten()])  # [L * K, d]
    losses = []
    for row, anchors in enumerate(others.split(len(itself))):
        distances = normalized_distances(anchors, others).unflatten(1, grid.indices.shape).transpose(0, 1)  # [L, K, K]
        exist = grid.is_there[row, :, None] & grid.is_there[:, None, :]  # [L, K, K]
        positives = exist & same_image
        positives[row] &= ~itself  # a sentence is not its own neighbor
        negatives = exist & ~same_image
        found = top_violation_triplet_loss(
            distances, positives, negatives=negatives, margin=margin, top_n=top_n, furthest_positive=True
        )
        counts = positives.any(2).any(1)
        counts[row] &= not only_across
        losses.append(found[counts])
    return torch.cat(losses).mean() if any(map(len, losses)) else sentences.sum() * 0


def adversarial_language_loss(
    means: Tensor, weight: Tensor, bias: Tensor, language_ids: Tensor, *, reversal: float
) -> Tensor:
    """Computes L_adv []: a linear classifier, `weight` [L, d] and `bias` [L], learns the language of the L2-normalized
    mean [N, d] of a sentence's words, and the embeddings learn to hide it. The gradient is reversed before it reaches
    them (section 3.3, after MULE; Ganin & Lempitsky 2015, arXiv 1409.7495), and multiplied by `reversal`."""
    reversed_means = _ReverseGradient.apply(nn.functional.normalize(means, dim=-1), reversal)
    return nn.functional.cross_entropy(nn.functional.linear(reversed_means, weight, bias), language_ids)


class _ReverseGradient(torch.autograd.Function):
    """Returns `x` unchanged; its gradient is multiplied by -weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.weight * gradient, None


def reversal_schedule(progress: float) -> float:
    """Returns 2 / (1 + exp(-10 p)) - 1, the factor of the reversed gradient at fraction p of training: from 0 to 1."""
    return 2 / (1 + math.exp(-10 * progress)) - 1


def masked_reconstruction_loss(masked: Tensor, predicted: Tensor, sentences: Tensor) -> Tensor:
    """Computes |l2(S_i^m + S_i') - l2(S_i)| + |l2(S_j^m + S_j') - l2(S_j)| [] (L_mask, equation 2), the mean over the
    pairs, of representations [2, N, d] in languages i and j: of masked sentences, S^m, with the predictions S' added
    to them, and of unmasked ones, S. The norms are not squared; l2 normalizes."""
    reconstructed = nn.functional.normalize(masked + predicted, dim=-1)
    errors = (reconstructed - nn.functional.normalize(sentences, dim=-1)).norm(dim=-1)  # [2, N, d] -> [2, N]
    return errors.sum(0).mean()
