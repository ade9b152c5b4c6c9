"""The processor of ETCL: texts of at most 64 tokens (Lee et al. 2022, section 3.3)."""

from .processing_dual_encoder import DualEncoderProcessor


class EtclProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `EtclModel`, as `MuralProcessor` does."""

    auto_classes = ("AutoProcessor",)
