"""The module with which sentence-transformers runs a saved cross-encoder; see `sentence_modules`."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers import AutoModelForMultipleChoice

from ..utils.errors import InputError
from .sentence_modules import SentenceModule, read_input
from .text_inputs import truncated_repr


class CrossEncoderModule(SentenceModule):
    """A model that scores pairs of a text and an image, in either order, in a `CrossEncoder`."""

    auto_model = AutoModelForMultipleChoice

    def make_inputs(self, inputs: Sequence[Any], language: str | None) -> dict[str, Tensor]:
        images, texts = [], []
        for index, pair in enumerate(inputs):
            read = [read_input(item, f"inputs[{index}]") for item in pair]
            found = [image for image, _, _ in read if image is not None]
            if len(read) != 2 or len(found) != 1:
                raise InputError(f"inputs[{index}] must be a pair of a text and an image, not {truncated_repr(pair)}")
            images += found
            texts += [(text, own) for image, text, own in read if image is None]
        return dict(self.processor(images=images, **self.read_texts(texts, language), return_tensors="pt"))

    def forward(self, features: dict[str, Any], language: str | None = None) -> dict[str, Any]:
        """Adds `scores`, float32 [N, 1]; `preprocess` has read `language`."""
        scores = self.model(**self.on_device(features)).scores.float()
        self.check_finite(scores, "scores")
        return features | {"scores": scores.unsqueeze(1)}
