"""Collators of contrastive training: they turn examples into the inputs of a dual encoder, with labels of the positive
pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .mixture import ExampleKey
from .task_data import IDENTITIES, IDENTITY_COLUMNS, labels_of

# Columns of precomputed features, which take the place of the images or texts that they were computed from.
_FEATURES = ("image_features", "text_features", "paired_text_features")
# Text column -> the column of its language, and the prefix of its inputs to a dual encoder.
_TEXT_COLUMNS = {"text": ("language", ""), "text_a": ("language_a", ""), "text_b": ("language_b", "paired_")}


# (examples, seeds of their random transforms) -> a batch.
Collator = Callable[[list[dict[str, Any]], list[int]], dict[str, Tensor]]


class ContrastiveCollator:
    """Turns examples of one task into the inputs of a dual encoder and `positives`, the labels of positive pairs.

    Args:
        processor: the processor of the dual encoder.
        transform: (images, seeds) -> pixel values [N, 3, H, W]; None if the examples have features of their images.
        paired_processor: the processor of the translations, if another model reads them.
        segment: (texts, seeds, index of the text column) -> token ids, in place of the processor's tokenizer.
        equal_texts: whether pairs with an equal text, on the same side, are positives of each other, as pairs with the
            same image always are.
    """

    def __init__(
        self,
        processor: Any,
        transform: Callable[[list[Any], list[int]], Tensor] | None,
        paired_processor: Any | None = None,
        segment: Callable[[list[str], list[int], int], dict[str, Tensor]] | None = None,
        *,
        equal_texts: bool = True,
    ) -> None:
        self.processor, self.transform, self.segment = processor, transform, segment
        self.equal_texts = equal_texts
        self.paired_processor = paired_processor or processor

    def __call__(self, examples: list[dict[str, Any]], seeds: list[int]) -> dict[str, Tensor]:
        columns = examples[0].keys()
        batch: dict[str, Tensor] = {}
        if "image" in columns:
            assert self.transform is not None
            batch["pixel_values"] = self.transform([example["image"] for example in examples], seeds)
        for name in columns & set(_FEATURES):
            chosen = [one_version(example[name], seed) for example, seed in zip(examples, seeds, strict=True)]
            batch[name] = torch.from_numpy(np.stack(chosen))
        for k, (column, (language, prefix)) in enumerate(_TEXT_COLUMNS.items()):
            if column in columns and f"{prefix}text_features" not in columns:
                texts = [example[column] for example in examples]
                languages = [example[language] for example in examples]
                processor = self.paired_processor if prefix else self.processor
                if self.segment:
                    encoded = self.segment(texts, seeds, k)
                else:
                    encoded = processor(text=texts, language=languages, return_tensors="pt")
                batch |= {prefix + name: value for name, value in encoded.items()}
        batch["positives"] = torch.from_numpy(self._labels(examples).T.copy())
        return batch

    def _labels(self, examples: list[dict[str, Any]]) -> np.ndarray:
        """The labels by which pairs are positives of each other [N, k]."""
        if IDENTITIES in examples[0]:
            return np.stack([example[IDENTITIES] for example in examples])
        columns = {name: [example[name] for example in examples] for name in IDENTITY_COLUMNS if name in examples[0]}
        return labels_of(columns, equal_texts=self.equal_texts)


class TaskCollator:
    """Turns the sampled examples of several tasks into a dict task -> batch.

    Args:
        collators: task -> collator of its examples.
    """

    def __init__(self, collators: dict[str, Collator]) -> None:
        self.collators = collators

    def __call__(self, sampled: list[tuple[ExampleKey, dict[str, Any]]]) -> dict[str, dict[str, Tensor]]:
        batches = {}
        for task, collate in self.collators.items():
            own = [(key, example) for key, example in sampled if key.task == task]
            batches[task] = collate([example for _, example in own], [key.seed for key, _ in own])
        return batches


def one_version(features: np.ndarray, seed: int) -> np.ndarray:
    """The features [F] of an image or a text; of several versions [V, F] of it, the one that a seed decides on."""
    if features.ndim == 1:
        return features
    return features[np.random.Generator(np.random.PCG64(seed)).integers(len(features))]
