"""From the rows of a task's data to a visio-textual model's inputs: texts with their languages, images and regions.

The tasks are IGLUE's and multimodal translation (Zhou et al. 2023, RC3, appendix B); `iglue`, `multi30k` and
`emoji_tasks` read their data. A batch that is trained on also carries `labels`; one that is evaluated does not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Image
from torch import Tensor

from ...configuration.errors import CorpusError, InputError
from ...configuration.languages import normalize_languages
from ..corpus.corpus import describe
from ..corpus.images import read_image
from .views import Example

# Of images by `image_id`, such as `RegionFeatures`; or what finds those of several images, such as a
# `RegionExtractor`, whenever they are read.
Regions = Mapping[str, np.ndarray] | Callable[[Sequence[Any]], np.ndarray]

# The columns of a text's images and of their names, by how many there are.
IMAGE_COLUMNS = {1: ("image",), 2: ("left_image", "right_image")}


class LabelledExamples:
    """Rows with `text`, `language`, `label` and images as examples, in all their languages or some.

    Args:
        dataset: as the readers of the tasks give it.
        languages: of the texts; default: all.

    Raises:
        CorpusError: for columns that are missing, a language without a row.
        LanguageTagError: for an unknown language.
        BadImageError: for an image that cannot be read, when it is.
    """

    def __init__(self, dataset: Dataset, languages: Sequence[str] | None = None) -> None:
        missing = [name for name in ("text", "language", "label") if name not in dataset.column_names]
        if missing or not isinstance(dataset.features["label"], ClassLabel):
            raise CorpusError(f"a task's data need text, language and a ClassLabel label; here are {dataset.features}")
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
        # The answer of each row, None where it has none.
        self.labels: list[str | None] = [None if k is None else self.answers[k] for k in dataset["label"]]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        columns = self._rows[indices]
        examples = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for place, example in zip(indices, examples, strict=True):
            example["label"] = self.labels[place]
            example |= {name: read_image(example[name], f"row {place}") for name in self._images}
        return examples


class TaskInputs:
    """Examples -> the inputs of a model that reads texts beside images.

    Args:
        processor: an `Rc3Processor`.
        config: the model's: whether it reads regions, patches or both, and how many images with a text.
        regions: of images.
        transform: images and their seeds -> pixel values [N, 3, H, W], for training; default: the processor's.
        training_regions: images and their seeds -> regions [N, R, region_size], for training; default: `regions`.

    Raises:
        InputError: for examples with one image where the model reads two, or the reverse.
        InputError: for examples without anything that the model sees.
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
        """Inputs [N, …], to train with where there are seeds."""
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
            found = self._find(self.regions, examples, seeds)
            inputs |= self.processor(regions=self._by_text(found), return_tensors="pt")
        if not inputs:
            raise InputError(
                f"the model reads {self.config.visual}, and the examples have {', '.join(examples[0])}"
                f"{'' if self.regions is None else ' and regions'}: give the images, or their regions"
            )
        return inputs

    def _find(self, regions: Regions, examples: list[Example], seeds: list[int] | None) -> Sequence[np.ndarray]:
        """Those of all images of the examples."""
        images = [example.get(name) for example in examples for name in self._columns]
        if self.training_regions is not None and seeds is not None:
            return list(self.training_regions(images, self._image_seeds(seeds)))
        image_ids = [example[f"{name}_id"] for example in examples for name in self._columns]
        return regions_of(regions, image_ids, images)

    def _image_seeds(self, seeds: list[int]) -> list[int]:
        count = len(self._columns)
        return [count * seed + place for seed in seeds for place in range(count)]

    def _pixels(self, examples: list[Example], seeds: list[int] | None) -> dict[str, Tensor]:
        count = len(self._columns)
        images = [example[name] for example in examples for name in self._columns]
        if self.transform is None or seeds is None:
            return dict(self.processor(images=self._by_text(images), return_tensors="pt"))
        pixels = self.transform(images, self._image_seeds(seeds))
        return {"pixel_values": pixels if count == 1 else pixels.unflatten(0, (-1, count))}

    def _by_text(self, flat: Sequence[Any]) -> list[Any]:
        """What belongs to the texts one after the other, as the processor takes it: in pairs where there are two."""
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
    """Labelled examples -> inputs and `labels`: numbers [N], or scores [N, answers] of a model with a score for each.

    Args:
        inputs: of the model.
        answers: of the model, in order.
        as_scores: whether its labels are scores.

    Raises:
        CorpusError: for an answer that is none of the model's, or none at all.
    """

    def __init__(self, inputs: TaskInputs, answers: Sequence[str], *, as_scores: bool = False) -> None:
        self.inputs, self.as_scores = inputs, as_scores
        self.numbers = {answer: number for number, answer in enumerate(answers)}

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        for example in examples:
            check_answer(example["label"], self.numbers, f"{example['text']!r}")
        labels = torch.tensor([self.numbers[example["label"]] for example in examples])
        if self.as_scores:
            labels = torch.nn.functional.one_hot(labels, len(self.numbers)).float()
        return self.inputs(examples, seeds) | {"labels": labels}


class TargetCollator:
    """Texts with their translations and images -> inputs, and what the decoder reads and is to say.

    Examples are those of `triplets`: `text_a` is translated to `text_b`.

    Args:
        inputs: of the model.
    """

    def __init__(self, inputs: TaskInputs) -> None:
        self.inputs = inputs

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        texts, languages = zip(*((example["text_b"], example["language_b"]) for example in examples), strict=True)
        target = self.inputs.processor(text_target=list(texts), target_language=list(languages), return_tensors="pt")
        return self.inputs(sources(examples), seeds) | dict(target)


def regions_of(regions: Regions, image_ids: Sequence[str], images: Sequence[Any]) -> Sequence[np.ndarray]:
    """The regions of images, [R, region_size] each, looked up or found."""
    return [regions[image_id] for image_id in image_ids] if isinstance(regions, Mapping) else list(regions(images))


def sources(examples: list[Example]) -> list[Example]:
    """Examples of `triplets` with the text to translate as `text`."""
    return [example | {"text": example["text_a"], "language": example["language_a"]} for example in examples]


def check_answer(answer: str | None, known: Mapping[str, int], place: str) -> None:
    """
    Raises:
        CorpusError: for an answer that the model cannot give.
    """
    if answer not in known:
        some = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
        raise CorpusError(f"{place}: {answer!r} is none of the model's {len(known)} answers ({some})")
