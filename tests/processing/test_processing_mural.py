import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer

from babelens import MuralProcessor
from babelens.processing.image_processing_mural import MuralImageProcessor
from tests.contracts import drawn_images
from tests.support.tiny_dual_encoders import bert_tokenizer


def computed_by_hand(image: Image.Image, resize: int, crop: int) -> np.ndarray:
    resized = np.asarray(image.convert("RGB").resize((resize, resize), Image.Resampling.BILINEAR), dtype=np.float64)
    start = (resize - crop) // 2
    return (resized[start : start + crop, start : start + crop] / 127.5 - 1).transpose(2, 0, 1)


@pytest.mark.parametrize(("resize", "crop"), [(346, 289), (37, 32)])
def test_pixels_are_those_computed_by_hand(resize, crop):
    processor = MuralImageProcessor(
        size={"height": resize, "width": resize}, crop_size={"height": crop, "width": crop}
    )
    found = processor(drawn_images(3), return_tensors="pt")["pixel_values"]
    expected = np.stack([computed_by_hand(image, resize, crop) for image in drawn_images(3)])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=2e-6)


def test_segment_numbers_of_berts_tokenizer_are_left_out(tmp_path):
    """Not every text tower has an input for them, and pipelines pass on everything that a tokenizer returns."""
    processor = MuralProcessor(MuralImageProcessor(), bert_tokenizer())
    assert set(processor(text="ein auto", language="de")) == {"input_ids", "attention_mask"}
    processor.save_pretrained(tmp_path)
    assert set(AutoTokenizer.from_pretrained(tmp_path)("ein auto")) == {"input_ids", "attention_mask"}
