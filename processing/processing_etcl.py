"""ETCL's processor: MURAL's image transforms and any multilingual vocabulary (the paper uses LaBSE's), with texts
of at most 64 tokens (Lee et al. 2022, section 3.3)."""

from .processing_dual_encoder import DualEncoderProcessor


class EtclProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `EtclModel`.

    Examples:
        >>> processor = EtclProcessor(MuralImageProcessor(), train_wordpiece(captions, 8000))
        >>> inputs = processor(images=images, text=["ein rotes Auto"], language="de", return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)


__all__ = ["EtclProcessor"]
