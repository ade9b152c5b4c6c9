"""From examples to batches: images through the training transform, texts through the processor, right pairs
marked."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Features that were computed before stand in for what they were computed from.
_FEATURES = ("image_features", "paired_text_features")
# Which text columns become which inputs of a dual encoder.
_TEXT_COLUMNS = {"text": ("language", ""), "text_a": ("language_a", ""), "text_b": ("language_b", "paired_")}


# Examples and the seeds of their random transforms -> a batch.
Collator = Callable[[list[dict[str, Any]], list[int]], dict[str, Tensor]]


class ContrastiveCollator:
    """Examples of one task -> a dual encoder's inputs and `positives`.

    Args:
        processor: a dual encoder's processor.
        transform: images and their seeds -> pixel values [N, 3, H, W].
        paired_processor: of texts' translations, where another model reads them.
        segment: texts, seeds and a column's number -> token ids, in place of the processor's tokenizer.
    """

    def __init__(
        self,
        processor: Any,
        transform: Callable[[list[Any], list[int]], Tensor],
        paired_processor: Any | None = None,
        segment: Callable[[list[str], list[int], int], dict[str, Tensor]] | None = None,
    ) -> None:
        self.processor, self.transform, self.segment = processor, transform, segment
        self.paired_processor = paired_processor or processor

    def __call__(self, examples: list[dict[str, Any]], seeds: list[int]) -> dict[str, Tensor]:
        columns = examples[0].keys()
        batch: dict[str, Tensor] = {}
        if "image" in columns:
            batch["pixel_values"] = self.transform([example["image"] for example in examples], seeds)
        for name in columns & set(_FEATURES):
            batch[name] = torch.from_numpy(np.stack([example[name] for example in examples]))
        for number, (column, (language, prefix)) in enumerate(_TEXT_COLUMNS.items()):
            if column in columns and f"{prefix}text_features" not in columns:
                texts, languages = (
                    [example[column] for example in examples],
                    [example[language] for example in examples],
                )
                processor = self.paired_processor if prefix else self.processor
                if self.segment:
                    encoded = self.segment(texts, seeds, number)
                else:
                    encoded = processor(text=texts, language=languages, return_tensors="pt")
                batch |= {prefix + name: value for name, value in encoded.items()}
        batch["positives"] = torch.tensor(
            [[identity_label(example[c]) for example in examples] for c in self._identities(columns)]
        )
        return batch

    @staticmethod
    def _identities(columns: Any) -> list[str]:
        # Two pairs with the same image, or with the same text on either side, are right for each other as well.
        return [column for column in ("image_id", *_TEXT_COLUMNS) if column in columns]


class TaskCollator:
    """A batch of draws over several tasks -> {task: its batch}."""

    def __init__(self, collators: dict[str, Collator]) -> None:
        self.collators = collators

    def __call__(self, drawn: list[tuple[Any, dict[str, Any]]]) -> dict[str, dict[str, Tensor]]:
        batches = {}
        for task, collate in self.collators.items():
            mine = [(draw, example) for draw, example in drawn if draw.task == task]
            batches[task] = collate([example for _, example in mine], [draw.seed for draw, _ in mine])
        return batches


def identity_label(value: str) -> int:
    """A 63-bit label of a string, the same in every process."""
    return int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "big") >> 1
