"""ETCL's processor: MURAL's image transforms and any multilingual vocabulary (the paper: LaBSE's), texts of at most
64 tokens (Lee et al. 2022, section 3.3)."""

from .processing_dual_encoder import DualEncoderProcessor


class EtclProcessor(DualEncoderProcessor):
    """A `MuralImageProcessor` and a fast tokenizer, such as `train_wordpiece` returns or LaBSE's."""

    auto_classes = ("AutoProcessor",)


__all__ = ["EtclProcessor"]
