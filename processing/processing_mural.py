"""MURAL's processor: the paper's image transforms and a WordPiece vocabulary, texts of at most 64 tokens (sections
3.2 and A.1)."""

from .processing_dual_encoder import DualEncoderProcessor


class MuralProcessor(DualEncoderProcessor):
    """A `MuralImageProcessor` and a fast tokenizer, such as `train_wordpiece` returns."""

    auto_classes = ("AutoProcessor",)


__all__ = ["MuralProcessor"]
