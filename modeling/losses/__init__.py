"""The losses, one module for each family. Trainers compute those of MURAL, ETCL and MLA: saved folders lack them."""

from .contrastive import contrastive_loss, symmetric_contrastive_loss, triple_contrastive_loss
from .interpolated import interpolated_contrastive_loss, relevance_regularization
from .sigmoid import sigmoid_loss
from .triplet import top_violation_triplet_loss

__all__ = [
    "contrastive_loss",
    "interpolated_contrastive_loss",
    "relevance_regularization",
    "sigmoid_loss",
    "symmetric_contrastive_loss",
    "top_violation_triplet_loss",
    "triple_contrastive_loss",
]
