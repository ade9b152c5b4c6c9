"""Texts with images, as RC3 reads them, of meaningless numbers."""

from typing import Any

import torch
from torch import Tensor

from tests.support.tiny_layers import encoder_decoder

# The initial weights are wider than usual, so an untrained model's outputs depend on its inputs.
TINY_RC3: dict[str, Any] = encoder_decoder(layers=2) | {
    "vocab_size": 30,
    "max_position_embeddings": 64,
    "init_std": 0.3,
    "region_size": 6,
    "image_size": 8,
    "patch_size": 4,
    "patch_width": 5,
    "mask_token_id": 3,
    "cls_token_id": 4,
    "image_separator_token_id": 5,
    "languages": ["en", "de", "zh"],
    "language_token_ids": [6, 7, 8],
}


def visio_textual_batch(images: int = 1) -> dict[str, Tensor]:
    """Four texts of different lengths, with regions and patches, either or neither, of 1 or 2 images each."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.tensor(
        [[0, 10, 11, 12, 6, 1, 1], [0, 13, 14, 15, 16, 17, 7], [0, 18, 8, 1, 1, 1, 1], [0, 19, 20, 6, 1, 1, 1]]
    )
    shape = (4,) if images == 1 else (4, images)
    by_row = (slice(None), *[None] * (len(shape) - 1))  # the same for all images of a row
    regions_of = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]).bool()
    patches_of = torch.tensor([1, 0, 1, 0]).bool()
    return {
        "input_ids": input_ids,
        "attention_mask": input_ids.ne(1).long(),
        "region_features": torch.randn(*shape, 3, 6, generator=generator),
        "region_mask": regions_of[by_row].expand(*shape, 3),
        "pixel_values": torch.randn(*shape, 3, 8, 8, generator=generator),
        "pixel_mask": patches_of[by_row].expand(*shape),
    }


@torch.no_grad()
def answers(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    if model.can_generate():
        found = {"written": model.generate(**batch, language="de", num_beams=3, max_new_tokens=8)}
    else:
        found = {name: value for name, value in model(**batch).items() if isinstance(value, Tensor)}
    return {name: value.clone(memory_format=torch.contiguous_format) for name, value in found.items()}
