"""Captions and images that the contracts are tried on, and how tensors are compared."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from tests.support.made_once import MadeOnce

# Scripts with and without case, with and without spaces between words; texts of different lengths.
CAPTIONS = {
    "en": "a red car",
    "de": "ein rotes Auto, das schnell durch die Stadt fährt",
    "fr": "un chien gris",
    "th": "สุนัขสีน้ำตาลวิ่งเล่น",
    "zh": "一只灰狗",
    "ar": "قطة تجلس على النافذة",
}
LANGUAGES, TEXTS = list(CAPTIONS), list(CAPTIONS.values())


def drawn_images(count: int) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(count):
        height, width = rng.integers(33, 64, 2)
        ramp = np.linspace(rng.uniform(0, 200, 3), rng.uniform(0, 200, 3), width)[None]  # [1, width, 3]
        drawn.append(Image.fromarray((ramp + rng.uniform(0, 50, (height, width, 3))).astype(np.uint8)))
    return drawn


class Contract:
    factory: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def make(cls, request: pytest.FixtureRequest) -> Callable[[], tuple[PreTrainedModel, Any]]:
        factory = request.getfixturevalue(cls.factory)
        return partial(factory if isinstance(factory, MadeOnce) else MadeOnce(factory), **cls.options)

    @pytest.fixture
    def parts(self, make) -> tuple[PreTrainedModel, Any]:
        return make()

    @pytest.fixture
    def model(self, parts) -> PreTrainedModel:
        return parts[0]

    @pytest.fixture
    def processor(self, make, request: pytest.FixtureRequest) -> Any:
        if "parts" in request.fixturenames:
            return request.getfixturevalue("parts")[1]
        return make.func.processor(**make.keywords)

    @pytest.fixture
    def batch(self, processor) -> dict[str, Tensor]:
        return image_text_batch(processor)


def image_text_batch(processor: Any) -> dict[str, Tensor]:
    return dict(processor(images=drawn_images(len(TEXTS)), text=TEXTS, language=LANGUAGES, return_tensors="pt"))


def translation_batch(processor: Any) -> dict[str, Tensor]:
    """Texts with a translation each, for methods with a text-text task."""
    texts = dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt"))
    translations = processor(text=TEXTS[::-1], language=LANGUAGES[::-1], return_tensors="pt")
    return texts | {f"paired_{name}": value for name, value in translations.items()}


def split(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    text = {name: value for name, value in batch.items() if name != "pixel_values"}
    return text, {"pixel_values": batch["pixel_values"]}


@torch.no_grad()
def embeddings(model: PreTrainedModel, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    output = model(**batch)
    return {name: output[name] for name in ("text_embeds", "image_embeds")}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, **tolerance or {"rtol": 0, "atol": 0}, msg=lambda m, n=name: f"{n}: {m}"
        )
