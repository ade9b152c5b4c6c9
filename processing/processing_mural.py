"""The processor of MURAL: texts of at most 64 tokens (Jain et al. 2021, sections 3.2 and A.1)."""

from .processing_dual_encoder import DualEncoderProcessor


class MuralProcessor(DualEncoderProcessor):
    """Prepares images and texts for a `MuralModel`.

    Examples:
        >>> processor = MuralProcessor(MuralImageProcessor(), train_wordpiece(captions, 8000))
        >>> inputs = processor(images=images, text=["ein rotes Auto"], language="de", return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)
