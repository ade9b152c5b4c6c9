"""Collators of contrastive training: they turn examples into the inputs of a dual encoder, with labels of the positive
pairs; and into images with all their captions, for methods that learn from several captions of an image at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.corpus import describe, languages_of
from .mixture import IDENTITIES, IDENTITY_COLUMNS, ExampleKey, identity_label, labels_of, seed_of_step
from .views import ImageFeatures, Images, images_of

# Columns of precomputed features, which replace the images or texts they were computed from.
_FEATURES = ("image_features", "text_features", "paired_text_features")
# Text column -> the column of its language, and the prefix of its inputs to a dual encoder.
_TEXT_COLUMNS = {"text": ("language", ""), "text_a": ("language_a", ""), "text_b": ("language_b", "paired_")}


# (examples, seeds of their random transforms) -> a batch.
Collator = Callable[[list[dict[str, Any]], list[int]], dict[str, Tensor]]


class ContrastiveCollator:
    """Turns examples of one task into the inputs of a dual encoder and `positives`, the labels of positive pairs.

    Args:
        processor: the processor of the dual encoder.
        transform: (images, seeds) -> pixel values [N, 3, H, W]; None if the examples have image features.
        paired_processor: the processor of the translations, if another model reads them.
        segment: (texts, seeds, index of the text column) -> token ids, instead of the processor's tokenizer.
        equal_texts: whether pairs with an equal text on the same side are positives of each other. Pairs with the same
            image always are.
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
            batch[name] = torch.from_numpy(np.stack([example[name] for example in examples]))
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
        """Returns the labels that determine which pairs are positives of each other [N, k]."""
        if IDENTITIES in examples[0]:
            return np.stack([example[IDENTITIES] for example in examples])
        columns = {name: [example[name] for example in examples] for name in IDENTITY_COLUMNS if name in examples[0]}
        return labels_of(columns, equal_texts=self.equal_texts)


class TaskCollator:
    """Turns sampled examples of several tasks into a dict task -> batch."""

    def __init__(self, collators: dict[str, Collator]) -> None:
        self.collators = collators

    def __call__(self, sampled: list[tuple[ExampleKey, dict[str, Any]]]) -> dict[str, dict[str, Tensor]]:
        batches = {}
        for task, collate in self.collators.items():
            own = [(key, example) for key, example in sampled if key.task == task]
            batches[task] = collate([example for _, example in own], [key.seed for key, _ in own])
        return batches


# ---- Several captions of an image at once ----


class CaptionedImages:
    """Examples {image, image_id, captions: {language: [texts]}} of the images that have captions in all languages.

    If the corpus has features instead of images, the examples have a column `image_features` instead of `image`.

    Args:
        corpus: a caption corpus, or a translation corpus, whose examples have no image.
        languages: languages of the captions; by default all.
        with_images: whether to read the images or their features.
    """

    def __init__(self, corpus: Dataset, languages: Sequence[str] | None = None, *, with_images: bool = True) -> None:
        present = languages_of(corpus)
        self.languages = normalize_languages(list(languages or present))
        captions = corpus.select_columns("captions")[:]["captions"]
        wanted = set(self.languages)
        complete = [wanted <= {caption["language"] for caption in row} for row in captions]
        self.rows = np.flatnonzero(complete)
        if not len(self.rows):
            languages_wanted = ", ".join(self.languages)
            raise CorpusError(f"no row has captions in all of {languages_wanted}; the corpus has {describe(present)}")
        self.corpus = corpus
        self._captions = [_by_language(captions[row], self.languages) for row in self.rows]
        names = corpus["image_id"] if "image_id" in corpus.column_names else [str(row) for row in range(len(corpus))]
        self._names = [names[row] for row in self.rows]
        images = images_of(corpus) if with_images and {"image", "features"} & set(corpus.column_names) else None
        self.images = images if isinstance(images, Images) else None
        self.features = images if isinstance(images, ImageFeatures) else None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples: list[dict[str, Any]] = [
            {"image_id": self._names[index], "captions": self._captions[index]} for index in indices
        ]
        if self.features is not None:
            features = self.features[self.rows[indices].tolist()]
            return [example | {"image_features": own} for example, own in zip(examples, features, strict=True)]
        if self.images is None:
            return examples
        read = (self.images[int(self.rows[index])] for index in indices)
        return [example | {"image": image} for example, image in zip(examples, read, strict=True)]

    def without_images(self) -> "CaptionedImages":
        """Returns the same examples without their images."""
        return CaptionedImages(self.corpus, self.languages, with_images=False)


def _by_language(captions: list[dict[str, str]], languages: list[str]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {language: [] for language in languages}
    for caption in captions:
        if caption["language"] in texts:
            texts[caption["language"]].append(caption["text"])
    return texts


class SentenceCollator:
    """Turns examples of `CaptionedImages` into the inputs of a word-level dual encoder and `positives`.

    Languages in which an image has equally many captions use the same sample: their n-th sentences are then
    translations of each other if the corpus lists translations in the same order (as `translation_pairs` assumes).

    Args:
        processor: the model's processor.
        transform: (images, seeds) -> pixel values [M, 3, H, W].
        sentences: number of captions sampled for each image and language. Captions repeat if an image has fewer.
        languages: number of languages sampled for each batch; by default all.
        num_processes: number of processes, which use the same languages in a step.
    """

    def __init__(
        self,
        processor: Any,
        transform: Callable[[list[Any], list[int]], Tensor],
        sentences: int,
        languages: int | None = None,
        num_processes: int = 1,
    ) -> None:
        self.processor, self.transform, self.sentences = processor, transform, sentences
        self.languages, self.num_processes = languages, num_processes

    def __call__(self, examples: list[dict[str, Any]], seeds: list[int]) -> dict[str, Tensor]:
        texts, languages, language_ids, labels = [], [], [], []
        sampled = self._sample_languages(list(examples[0]["captions"]), seed_of_step(seeds, self.num_processes))
        for example, seed in zip(examples, seeds, strict=True):
            rng = np.random.Generator(np.random.PCG64(seed))
            orders: dict[int, np.ndarray] = {}  # by the number of captions
            for k, language in sampled.items():
                captions = example["captions"][language]
                order = orders.setdefault(len(captions), rng.permutation(len(captions)))
                texts += [captions[order[n % len(order)]] for n in range(self.sentences)]
                languages += [language] * self.sentences
                language_ids += [k] * self.sentences
                labels += [identity_label(example["image_id"])] * self.sentences
        encoded = self.processor(text=texts, language=languages, return_tensors="pt")
        # A processor with a vocabulary for each language already returns language_ids.
        batch = {"language_ids": torch.tensor(language_ids)} | dict(encoded)
        if "image" in examples[0]:
            batch["pixel_values"] = self.transform([example["image"] for example in examples], seeds)
        if "image_features" in examples[0]:
            batch["image_features"] = torch.from_numpy(np.stack([example["image_features"] for example in examples]))
        if batch.keys() & {"pixel_values", "image_features"}:
            batch["text_labels"] = torch.tensor(labels)
            batch["image_labels"] = torch.tensor([identity_label(example["image_id"]) for example in examples])
        batch["positives"] = torch.tensor([labels])
        return batch

    def _sample_languages(self, languages: list[str], seed: int) -> dict[int, str]:
        """Samples the languages of a batch (index -> language) with the seed of the first example of its step."""
        if self.languages is None or self.languages >= len(languages):
            return dict(enumerate(languages))
        rng = np.random.default_rng([seed, len(languages)])
        chosen = sorted(rng.choice(len(languages), self.languages, replace=False).tolist())
        return {k: languages[k] for k in chosen}
