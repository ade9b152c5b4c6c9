"""Turns the data of RC3's tasks into the inputs of a model: texts with their languages, images and regions.

The tasks are those of IGLUE, and multimodal translation (Zhou et al. 2023, RC3, appendix B); `data.readers` and
`data.emoji.tasks` read their data. Training batches also have `labels`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Image
from torch import Tensor

from ...utils.errors import CorpusError, InputError
from ...utils.languages import normalize_languages
from ..corpus.corpus import describe
from ..corpus.images import read_image
from .views import Example

# A mapping image_id -> regions, such as `RegionFeatures`; or a function from images to regions, such as a
# `RegionExtractor`, which computes them for every batch.
Regions = Mapping[str, np.ndarray] | Callable[[Sequence[Any]], np.ndarray]

# Number of images per text -> the image columns.
IMAGE_COLUMNS = {1: ("image",), 2: ("left_image", "right_image")}


class LabelledExamples:
    """Examples with `text`, `language`, `label` and images, from the data of a task. By default, texts in all
    languages are kept."""

    def __init__(self, dataset: Dataset, languages: Sequence[str] | None = None) -> None:
        missing = [name for name in ("text", "language", "label") if name not in dataset.column_names]
        if missing or not isinstance(dataset.features["label"], ClassLabel):
            raise CorpusError(
                f"the data of a task need text, language and a ClassLabel label, but have {dataset.features}"
            )
        tags = np.array(dataset["language"])
        if languages is not None:
            wanted = normalize_languages(list(languages))
            if absent := [tag for tag in wanted if tag not in tags]:
                present = {str(tag): int((tags == tag).sum()) for tag in np.unique(tags)}
                raise CorpusError(f"no row in {', '.join(absent)}; the data have {describe(present)}")
            dataset = dataset.select(np.flatnonzero(np.isin(tags, wanted)))
        self._images = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
        for name in self._images:
            dataset = dataset.cast_column(name, Image(decode=False))
        self._rows = dataset
        self.languages: list[str] = list(dataset["language"])
        self.answers: list[str] = dataset.features["label"].names
        # The answer of each row, or None.
        self.labels: list[str | None] = [None if k is None else self.answers[k] for k in dataset["label"]]

    @cached_property
    def texts(self) -> list[str]:
        return list(self._rows["text"])

    @cached_property
    def image_ids(self) -> list[str]:
        """Names of the image or images of each row; rows of data without names are numbered."""
        for columns in IMAGE_COLUMNS.values():
            names = [f"{name}_id" for name in columns]
            if set(names) <= set(self._rows.column_names):
                return ["\n".join(ids) for ids in zip(*(self._rows[name] for name in names), strict=True)]
        return [str(row) for row in range(len(self))]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        columns = self._rows[indices]
        examples = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for row, example in zip(indices, examples, strict=True):
            example["label"] = self.labels[row]
            example |= {name: read_image(example[name], f"row {row}") for name in self._images}
        return examples


class TaskInputs:
    """Turns examples into the inputs of a model that reads texts with images.

    Args:
        processor: an `Rc3Processor`.
        config: the model's configuration, which states whether it reads regions, patches or both, and how many images
            with each text.
        regions: the regions of images.
        transform: (images, seeds) -> pixel values [N, 3, H, W], for training; by default the processor's.
        training_regions: (images, seeds) -> regions [N, R, region_size], for training; by default `regions`.
    """

    def __init__(
        self,
        processor: Any,
        config: Any,
        regions: Regions | None = None,
        transform: Callable[[list[Any], list[int]], Tensor] | None = None,
        training_regions: Callable[[list[Any], list[int]], np.ndarray] | None = None,
    ) -> None:
        self.processor, self.config, self.regions, self.transform = processor, config, regions, transform
        self.training_regions = training_regions
        self._columns = IMAGE_COLUMNS[config.images_per_text]

    def __call__(self, examples: list[Example], seeds: list[int] | None = None) -> dict[str, Tensor]:
        """Returns the inputs [N, …] of examples; with seeds, they are augmented for training."""
        return self.texts(examples) | self.visuals(examples, seeds)

    def texts(self, examples: list[Example]) -> dict[str, Tensor]:
        texts, languages = zip(*((example["text"], example["language"]) for example in examples), strict=True)
        return dict(self.processor(text=list(texts), language=list(languages), return_tensors="pt"))

    def visuals(self, examples: list[Example], seeds: list[int] | None = None) -> dict[str, Tensor]:
        self._check_count(examples[0])
        inputs: dict[str, Tensor] = {}
        if self.config.has_patches and self._columns[0] in examples[0]:
            inputs |= self._pixels(examples, seeds)
        if self.config.has_regions and self.regions is not None:
            regions = self._regions(self.regions, examples, seeds)
            inputs |= self.processor(regions=self._by_text(regions), return_tensors="pt")
        if not inputs:
            raise InputError(
                f"the model reads {self.config.visual}, but the examples have {', '.join(examples[0])}"
                f"{'' if self.regions is None else ' and regions'}: give the images, or their regions"
            )
        return inputs

    def _regions(self, regions: Regions, examples: list[Example], seeds: list[int] | None) -> Sequence[np.ndarray]:
        """Returns the regions of all images of the examples."""
        images = [example.get(name) for example in examples for name in self._columns]
        if self.training_regions is not None and seeds is not None:
            return list(self.training_regions(images, self._image_seeds(seeds)))
        image_ids = [example[f"{name}_id"] for example in examples for name in self._columns]
        return regions_of(regions, image_ids, images)

    def _image_seeds(self, seeds: list[int]) -> list[int]:
        count = len(self._columns)
        return [count * seed + k for seed in seeds for k in range(count)]

    def _pixels(self, examples: list[Example], seeds: list[int] | None) -> dict[str, Tensor]:
        count = len(self._columns)
        images = [example[name] for example in examples for name in self._columns]
        if self.transform is None or seeds is None:
            return dict(self.processor(images=self._by_text(images), return_tensors="pt"))
        pixels = self.transform(images, self._image_seeds(seeds))
        return {"pixel_values": pixels if count == 1 else pixels.unflatten(0, (-1, count))}

    def _by_text(self, flat: Sequence[Any]) -> list[Any]:
        """Returns a flat list of images or regions in the processor's form: in pairs if each text has two."""
        count = len(self._columns)
        return list(flat) if count == 1 else [list(flat[k : k + count]) for k in range(0, len(flat), count)]

    def _check_count(self, example: Example) -> None:
        for count, columns in IMAGE_COLUMNS.items():
            if columns != self._columns and any(f"{name}_id" in example or name in example for name in columns):
                raise InputError(
                    f"the model reads {len(self._columns)} image(s) with a text, {', '.join(self._columns)}; the "
                    f"examples have {count}, {', '.join(columns)}"
                )


class LabelCollator:
    """Turns labelled examples into inputs and `labels`: indices [N] of the model's answers, or scores [N, answers]."""

    def __init__(self, inputs: TaskInputs, answers: Sequence[str], *, as_scores: bool = False) -> None:
        self.inputs, self.as_scores = inputs, as_scores
        self.indices = {answer: index for index, answer in enumerate(answers)}

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        for example in examples:
            check_answer(example["label"], self.indices, f"{example['text']!r}")
        labels = torch.tensor([self.indices[example["label"]] for example in examples])
        if self.as_scores:
            labels = torch.nn.functional.one_hot(labels, len(self.indices)).float()
        return self.inputs(examples, seeds) | {"labels": labels}


class TargetCollator:
    """Turns examples of `triplets` into encoder inputs, decoder inputs and labels, to translate `text_a` to
    `text_b`."""

    def __init__(self, inputs: TaskInputs) -> None:
        self.inputs = inputs

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        texts, languages = zip(*((example["text_b"], example["language_b"]) for example in examples), strict=True)
        target = self.inputs.processor(text_target=list(texts), target_language=list(languages), return_tensors="pt")
        return self.inputs(sources(examples), seeds) | dict(target)


def regions_of(regions: Regions, image_ids: Sequence[str], images: Sequence[Any]) -> Sequence[np.ndarray]:
    """Returns the regions of images, [R, region_size] each, looked up or computed."""
    return [regions[image_id] for image_id in image_ids] if isinstance(regions, Mapping) else list(regions(images))


def sources(examples: list[Example]) -> list[Example]:
    """Returns examples of `triplets` with the text to translate as `text`."""
    return [example | {"text": example["text_a"], "language": example["language_a"]} for example in examples]


def check_answer(answer: str | None, known: Mapping[str, int], place: str) -> None:
    """ """
    if answer not in known:
        some = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
        raise CorpusError(f"{place}: {answer!r} is none of the model's {len(known)} answers ({some})")
