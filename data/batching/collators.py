"""Collators of contrastive training: examples, or images with all their captions, become inputs of a dual encoder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.corpus import describe, languages_of
from .mixture import FEATURES_OF, seed_of_step
from .views import Example, Images, images_of

# Text column -> the column of its language, and the prefix of its inputs to a dual encoder.
_TEXT_COLUMNS = {"text": ("language", ""), "text_a": ("language_a", ""), "text_b": ("language_b", "paired_")}

ImageTransform = Callable[[list[Any], list[int]], Tensor]  # (images, seeds) -> pixel values [N, 3, H, W]


def identity_label(value: str) -> int:
    """Returns a 63-bit label of a string, which is the same in every process."""
    return int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "big") >> 1


def labels_of(columns: Mapping[str, Sequence[str]], *, equal_texts: bool = True) -> np.ndarray:
    """Returns the labels of examples, int64 [k, N], from their columns `image_id` and texts [N]. Positives of each
    other share a label in a row: by equal images or, with `equal_texts`, by equal texts on the same side."""
    names = [name for name in columns if name in ("image_id", *_TEXT_COLUMNS)]
    groups = [[name] for name in names]
    if not equal_texts:
        groups = [["image_id"]] if "image_id" in names else [names]  # a repeated pair is not its own negative
    joined = (zip(*(columns[name] for name in group), strict=True) for group in groups)
    return np.array([[identity_label("\0".join(values)) for values in each] for each in joined], dtype=np.int64)


@dataclass(eq=False)
class ContrastiveCollator:
    """Turns examples of one task into the inputs of a dual encoder and `positives`, the labels of positive pairs.
    `paired_processor` belongs to another model that reads the translations; `segment` turns (texts, seeds, index of
    the text column) into token ids instead of the processor's tokenizer."""

    processor: Any
    transform: ImageTransform
    paired_processor: Any = None
    segment: Callable[[list[str], list[int], int], dict[str, Tensor]] | None = None
    equal_texts: bool = field(default=True, kw_only=True)

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        columns = {name: [example[name] for example in examples] for name in examples[0]}
        batch: dict[str, Tensor] = {}
        if "image" in columns:
            batch["pixel_values"] = self.transform(columns["image"], seeds)
        for name in columns.keys() & {*FEATURES_OF.values()}:
            batch[name] = torch.from_numpy(np.stack(columns[name]))
        for k, (column, (language, prefix)) in enumerate(_TEXT_COLUMNS.items()):
            if column not in columns or f"{prefix}text_features" in columns:
                continue
            processor = (self.paired_processor if prefix else None) or self.processor
            if self.segment:
                encoded = self.segment(columns[column], seeds, k)
            else:
                encoded = processor(text=columns[column], language=columns[language], return_tensors="pt")
            batch |= {prefix + name: value for name, value in encoded.items()}
        batch["positives"] = torch.from_numpy(labels_of(columns, equal_texts=self.equal_texts))
        return batch


class CaptionedImages:
    """Examples {image, image_id, captions: {language: [texts]}} of the images with captions in all languages. Features
    replace images if the corpus has them; translation corpora, and `with_images=False`, give neither."""

    def __init__(self, corpus: Dataset, languages: Sequence[str] | None = None, *, with_images: bool = True) -> None:
        present = languages_of(corpus)
        self.languages = normalize_languages(list(languages or present))
        captions = [
            {tag: [each["text"] for each in row if each["language"] == tag] for tag in self.languages}
            for row in corpus.select_columns("captions")[:]["captions"]
        ]
        self.rows = np.flatnonzero([all(texts.values()) for texts in captions])
        if not len(self.rows):
            wanted = ", ".join(self.languages)
            raise CorpusError(f"no row has captions in all of {wanted}; the corpus has {describe(present)}")
        names = corpus["image_id"] if "image_id" in corpus.column_names else [str(row) for row in range(len(corpus))]
        self._examples = [{"image_id": names[row], "captions": captions[row]} for row in self.rows]
        self.images = images_of(corpus) if with_images and {"image", "features"} & set(corpus.column_names) else None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        examples: list[Example] = [self._examples[index] for index in indices]
        if self.images is None:
            return examples
        column = "image" if isinstance(self.images, Images) else "image_features"
        cells = self.images[self.rows[indices].tolist()]
        return [example | {column: cell} for example, cell in zip(examples, cells, strict=True)]


@dataclass(eq=False)
class SentenceCollator:
    """Turns examples of `CaptionedImages` into the inputs of a word-level dual encoder and `positives`: `sentences`
    captions of each image and language, repeated if there are fewer, in `languages` sampled languages (None: all), the
    same in all processes of a step. Languages in which an image has equally many captions use one sample: their n-th
    sentences are translations of each other if the corpus lists them in one order, as `translation_pairs` assumes."""

    processor: Any
    transform: ImageTransform
    sentences: int
    languages: int | None = None
    num_processes: int = 1

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        names = list(examples[0]["captions"])
        chosen = list(range(len(names)))
        if self.languages is not None and self.languages < len(names):
            rng = np.random.default_rng([seed_of_step(seeds, self.num_processes), len(names)])
            chosen = sorted(rng.choice(len(names), self.languages, replace=False).tolist())
        image_labels = [identity_label(example["image_id"]) for example in examples]
        texts, languages, language_ids, labels = [], [], [], []
        for example, seed, label in zip(examples, seeds, image_labels, strict=True):
            rng = np.random.Generator(np.random.PCG64(seed))
            orders: dict[int, np.ndarray] = {}  # by the number of captions
            for k in chosen:
                captions = example["captions"][names[k]]
                order = orders.setdefault(len(captions), rng.permutation(len(captions)))
                texts += [captions[order[n % len(order)]] for n in range(self.sentences)]
                languages += [names[k]] * self.sentences
                language_ids += [k] * self.sentences
                labels += [label] * self.sentences
        encoded = self.processor(text=texts, language=languages, return_tensors="pt")
        # A processor with a vocabulary for each language already returns language_ids.
        batch = {"language_ids": torch.tensor(language_ids)} | dict(encoded)
        if "image" in examples[0]:
            batch["pixel_values"] = self.transform([example["image"] for example in examples], seeds)
        if "image_features" in examples[0]:
            batch["image_features"] = torch.from_numpy(np.stack([example["image_features"] for example in examples]))
        if batch.keys() & {"pixel_values", "image_features"}:
            batch |= {"text_labels": torch.tensor(labels), "image_labels": torch.tensor(image_labels)}
        batch["positives"] = torch.tensor([labels])
        return batch
