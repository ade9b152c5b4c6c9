"""The hinge loss of LIWE (Wehrmann et al. 2019): from the sum over all negatives to the hardest one.

All negatives together train fast at first, the hardest alone (VSE++: Faghri et al. 2018) trains best in the end; the
loss moves from one to the other, as in the authors' code:

    (1 - k) sum_n v(a, p, n) + k max_n v(a, p, n),    v(a, p, n) = max(0, margin + d(a, p) - d(a, n))

for every anchor a and positive p, in both directions, with k = 1 - rate^step.
"""

import torch
from torch import Tensor


def annealed_hinge_loss(distances: Tensor, positives: Tensor, *, hardness: float = 1.0, margin: float = 0.2) -> Tensor:
    """The mean over all pairs that belong together, in each direction; both directions are added. The code adds up the
    pairs of a batch instead, a factor to which Adamax is blind.

    Args:
        distances: of images to texts, or of texts to texts, such as `pairwise_distances` gives.
        positives: the pairs that belong together; all others are negatives.
        hardness: k, from 0, all negatives, to 1, the hardest alone.
        margin: by which a negative should be further away than the positive.

    Shape:
        distances: [A, B]; positives: the same, bool; result: [].

    Raises:
        ValueError: when the masks are not boolean or do not fit, or `hardness` is no fraction.
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
    """k = 1 - rate^step, after that many steps of training: from 0 towards 1."""
    return 1 - rate**step


def _from_rows(distances: Tensor, positives: Tensor, hardness: float, margin: float) -> Tensor:
    anchor, other = positives.nonzero(as_tuple=True)  # [P]
    violations = (margin + distances[anchor, other][:, None] - distances[anchor]).clamp(min=0)  # [P, B]
    violations = violations.masked_fill(positives[anchor], 0)
    losses = (1 - hardness) * violations.sum(1) + hardness * violations.amax(1)
    return losses.sum() / max(len(losses), 1)
