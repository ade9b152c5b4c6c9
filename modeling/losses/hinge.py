"""The hinge loss of LIWE (Wehrmann et al. 2019), which moves from the sum over all negatives to the hardest one.

All negatives together learn fast at first; the hardest alone (VSE++: Faghri et al. 2018) gives the better result in
the end. As in the authors' code, the loss of every anchor a and positive p, in both directions, is

    (1 - k) sum_n v(a, p, n) + k max_n v(a, p, n),    v(a, p, n) = max(0, margin + d(a, p) - d(a, n))

with a hardness k = 1 - rate^step that grows during training.
"""

import torch
from torch import Tensor


def annealed_hinge_loss(distances: Tensor, positives: Tensor, *, hardness: float = 1.0, margin: float = 0.2) -> Tensor:
    """Computes the mean hinge loss over all pairs that belong together, in each direction, and adds both directions.

    The authors' code adds up the pairs of a batch instead, a factor that does not change the steps of Adamax.

    Args:
        distances: distances of images to texts, or of texts to texts (`pairwise_distances`).
        positives: the pairs that belong together; all others are negatives.
        hardness: k, from 0 (all negatives) to 1 (the hardest alone).
        margin: how much further away than the positive a negative should be.

    Returns:
        A scalar.

    Shape:
        distances: [A, B]; positives: [A, B] bool; result: [].

    Raises:
        ValueError: if the mask is not boolean or has another shape, or `hardness` is not between 0 and 1.
    """
    if distances.dim() != 2 or positives.shape != distances.shape or positives.dtype != torch.bool:
        raise ValueError(
            f"distances must be [A, B] and positives the same in bool, but they are {list(distances.shape)} and "
            f"{list(positives.shape)} {positives.dtype}"
        )
    if not 0 <= hardness <= 1:
        raise ValueError(f"hardness={hardness} must be a fraction, from 0 to 1")
    forth = _from_rows(distances, positives, hardness, margin)
    return forth + _from_rows(distances.T, positives.T, hardness, margin)


def hinge_hardness(step: int, rate: float = 0.991) -> float:
    """Returns k = 1 - rate^step after a number of training steps: 0 at first, growing towards 1."""
    return 1 - rate**step


def _from_rows(distances: Tensor, positives: Tensor, hardness: float, margin: float) -> Tensor:
    anchor, other = positives.nonzero(as_tuple=True)  # [P]
    violations = (margin + distances[anchor, other][:, None] - distances[anchor]).clamp(min=0)  # [P, B]
    violations = violations.masked_fill(positives[anchor], 0)
    losses = (1 - hardness) * violations.sum(1) + hardness * violations.amax(1)
    return losses.sum() / max(len(losses), 1)
