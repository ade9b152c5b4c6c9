"""The processors of MURAL and ETCL: texts of at most 64 tokens (Jain et al. 2021, sections 3.2 and A.1; Lee et al.
2022, section 3.3)."""

from .processing_dual_encoder import DualEncoderProcessor


class MuralProcessor(DualEncoderProcessor):
    """Prepares images and texts for a `MuralModel`.

    Examples:
        >>> processor = MuralProcessor(MuralImageProcessor(), train_wordpiece(captions, 8000))
        >>> inputs = processor(images=images, text=["ein rotes Auto"], language="de", return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)


class EtclProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `EtclModel`, as `MuralProcessor` does."""

    auto_classes = ("AutoProcessor",)
