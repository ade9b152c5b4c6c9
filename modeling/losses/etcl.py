"""ETCL's loss on triplets, three pair losses of `contrastive` (Lee et al. 2022, equation 4)."""

from typing import Any

from torch import Tensor

from .contrastive import symmetric_contrastive_loss


def triple_contrastive_loss(
    image: Tensor,
    text_a: Tensor,
    text_b: Tensor,
    temperature: Tensor | float,
    *,
    text_text_temperature: Tensor | float | None = None,
    margin: float = 0.0,
    **options: Any,
) -> Tensor:
    """Computes ETCL's loss on images and captions in two languages (equation 4), the mean of the pair losses image-A,
    A-B and B-image. The margin, and `text_text_temperature` if given, apply to A-B."""
    if text_text_temperature is None:
        text_text_temperature = temperature
    image_a = symmetric_contrastive_loss(image, text_a, temperature, **options)
    a_b = symmetric_contrastive_loss(text_a, text_b, text_text_temperature, margin=margin, **options)
    b_image = symmetric_contrastive_loss(text_b, image, temperature, **options)
    return (image_a + a_b + b_image) / 3
