"""MURAL's processor: texts of at most 64 tokens (sections 3.2 and A.1)."""

from .processing_dual_encoder import DualEncoderProcessor


class MuralProcessor(DualEncoderProcessor):
    """Prepares images and texts for a `MuralModel`.

    Examples:
        >>> processor = MuralProcessor(MuralImageProcessor(), train_wordpiece(captions, 8000))
        >>> inputs = processor(images=images, text=["ein rotes Auto"], language="de", return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)


__all__ = ["MuralProcessor"]
