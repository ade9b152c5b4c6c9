"""The losses, as pure functions of tensors: one module for each family.

    contrastive     the softmax over the cosines of a batch: MURAL, ETCL, CLIP, ALIGN, MLA
    sigmoid         SigLIP's loss over the same cosines, for MLA on a SigLIP
    interpolated    RC3's softmax over Euclidean distances, with negatives that are moved towards the anchor
    triplet         SMALR's triplets with the most violated margins, LIWE's hinge loss, and the distances for both
    smalr           the losses that align SMALR's languages

The names below are the public ones. Models import the modules, so a published folder contains only the losses of its
method.
"""

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
