"""The order of search results, with numpy alone."""

import numpy as np


def best_first(scores: np.ndarray, top: int) -> np.ndarray:
    """The positions of the `top` highest scores [n], highest first; equal scores in the order of their positions."""
    if top < len(scores):
        threshold = np.partition(scores, -top)[-top]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")[:top]]
