"""Collators of RC3 (Zhou et al. 2023): its pre-training (section 2.3), and its tasks, which are those of IGLUE and
multimodal translation (appendix B). A batch of pre-training has one language pair (l_i, l_j). The seed of its first
example decides which one is l_i, so both get anchors, masked words and targets; and the partners: x̂_i has the
language of x_i, and x̂_j that of x_j. The seed of each example decides which of its words are masked."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
import torch
from datasets import ClassLabel, Dataset, Image
from torch import Tensor

from ...utils.errors import CorpusError, InputError
from ...utils.languages import normalize_languages
from ..corpus.corpus import describe
from ..corpus.images import read_image
from .collators import ImageTransform, labels_of
from .views import CorpusView, Example, Images

Batch = dict[str, Any]


@dataclass(eq=False)
class TripletCollator:
    """Turns images with two texts into a strictly or a weakly aligned batch of `Rc3ForPreTraining`. Examples have an
    `image`, `regions` or both; one of several versions of regions, [V, R, region_size], is sampled. Words of x_i are
    masked, and x_j is also encoded for the decoder, unless `mask_probability` is None (weakly aligned data)."""

    processor: Any
    mask_probability: float | None = None
    transform: ImageTransform | None = None  # by default the processor's

    def __call__(self, examples: list[Example], seeds: list[int]) -> Batch:
        rngs, batch_rng = [np.random.default_rng(seed) for seed in seeds], np.random.default_rng([seeds[0], 1])
        batch, second = _text_pairs(self.processor, examples, batch_rng)
        columns = {name: [example[name] for example in examples] for name in examples[0]}
        if "image" in columns and self.transform is not None:
            batch["pixel_values"] = self.transform(columns["image"], seeds)
        elif "image" in columns:
            batch |= self.processor(images=columns["image"], return_tensors="pt")
        if "regions" in columns:
            every = zip(columns["regions"], rngs, strict=True)
            regions = [own if own.ndim == 2 else own[rng.integers(len(own))] for own, rng in every]
            batch |= self.processor(regions=regions, return_tensors="pt")
        batch["partner"] = torch.from_numpy(partners(columns["image_id"], batch_rng))
        if self.mask_probability is not None:
            batch["masked"] = self._masked(batch["first"], rngs)
            batch["decoder"] = dict(self.processor(**second, return_tensors="pt"))
        return batch

    def _masked(self, texts: dict[str, Tensor], rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """Masks each text with separate random numbers, which do not depend on the rest of the batch."""
        masked, labels = texts["input_ids"].clone(), torch.full_like(texts["input_ids"], -100)
        for row, (rng, length) in enumerate(zip(rngs, texts["attention_mask"].sum(1).tolist(), strict=True)):
            generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
            text = {"input_ids": texts["input_ids"][row : row + 1, :length]}
            ids, original = self.processor.mask_words(text, self.mask_probability, generator)
            masked[row, :length], labels[row, :length] = ids[0], original[0]
        return {"input_ids": masked, "labels": labels}


@dataclass(eq=False)
class TranslationCollator:
    """Turns translation pairs into a parallel batch of `Rc3ForPreTraining`. Pairs that share a text or an `image_id`
    share an identity and are not negatives of each other."""

    processor: Any

    def __call__(self, examples: list[Example], seeds: list[int]) -> Batch:
        batch, _ = _text_pairs(self.processor, examples, np.random.default_rng([seeds[0], 1]))
        columns = {name: [each[name] for each in examples] for name in ("text_a", "text_b")}
        # A translation pair without an image has a unique identity.
        columns["image_id"] = [each.get("image_id", f"{each['text_a']}\n{each['text_b']}") for each in examples]
        return batch | {"identities": torch.from_numpy(labels_of(columns))}


def partners(image_ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Samples a partner with another image_id for each example: image_ids [B] -> a permutation [B]."""
    order = rng.permutation(len(image_ids))
    ids, group, counts = np.unique(np.asarray(image_ids)[order], return_inverse=True, return_counts=True)
    largest = int(counts.max())
    if 2 * largest > len(image_ids):
        raise InputError(
            f"{largest} of the {len(image_ids)} images of a batch show {str(ids[counts.argmax()])!r}: not every one "
            "can have a partner that shows something else"
        )
    # The examples are arranged in a circle, sorted by image. Two examples whose distance is the size of the largest
    # group are in different groups.
    circle = order[np.argsort(rng.permutation(len(ids))[group], kind="stable")]
    partner = np.empty_like(circle)
    partner[circle] = np.roll(circle, largest)
    return partner


def _text_pairs(processor: Any, examples: list[Example], rng: np.random.Generator) -> tuple[Batch, dict[str, Any]]:
    """Samples l_i by the generator of the batch, whose numbers are unrelated to those of its first example. Returns
    the text inputs `first` (x_i) and `second` (x_j), and x_j as the decoder's targets."""
    pairs = {tuple(sorted((example["language_a"], example["language_b"]))) for example in examples}
    ((first, _),) = (rng.permutation(pair) for pair in pairs)  # `one_pair_at_a_time` gives one
    batch: Batch = {}
    for name in ("first", "second"):
        sides = ["a" if (each["language_a"] == first) == (name == "first") else "b" for each in examples]
        chosen = [(each[f"text_{side}"], each[f"language_{side}"]) for each, side in zip(examples, sides, strict=True)]
        texts, languages = (list(column) for column in zip(*chosen, strict=True))
        encoded = processor(text=texts, language=languages, return_tensors="pt")
        batch[name] = {key: encoded[key] for key in ("input_ids", "attention_mask")}
    return batch, {"text_target": texts, "target_language": languages}


# ---- Inputs of tasks ----

# A mapping image_id -> regions, such as `RegionFeatures`; or a function from images to regions, such as a
# `RegionExtractor`, which computes them for every batch.
Regions = Mapping[str, np.ndarray] | Callable[[Sequence[Any]], np.ndarray]

# Number of images per text -> the image columns.
IMAGE_COLUMNS = {1: ("image",), 2: ("left_image", "right_image")}


class LabelledExamples:
    """The data of a task with `text`, `language`, `label` and images, in some languages; by default all."""

    def __init__(self, dataset: Dataset, languages: Sequence[str] | None = None) -> None:
        if not isinstance(dataset.features.get("label"), ClassLabel):
            raise CorpusError(
                f"the data of a task need text, language and a ClassLabel label, but have {dataset.features}"
            )
        if languages is not None:
            tags, wanted = np.array(dataset["language"]), normalize_languages(list(languages))
            if absent := [tag for tag in wanted if tag not in tags]:
                present = dict(zip(*np.unique(tags, return_counts=True), strict=True))
                raise CorpusError(f"no row in {', '.join(absent)}; the data have {describe(present)}")
            dataset = dataset.select(np.flatnonzero(np.isin(tags, wanted)))
        self._images = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
        for name in self._images:
            dataset = dataset.cast_column(name, Image(decode=False))
        self.rows = dataset
        self.languages: list[str] = list(dataset["language"])
        answers = dataset.features["label"].names
        self.labels: list[str | None] = [None if index is None else answers[index] for index in dataset["label"]]

    @property
    def image_ids(self) -> list[str]:
        """Names of the image or images of each row; rows of data without names are numbered."""
        for columns in IMAGE_COLUMNS.values():
            names = [f"{name}_id" for name in columns]
            if set(names) <= set(self.rows.column_names):
                return ["\n".join(ids) for ids in zip(*(self.rows[name] for name in names), strict=True)]
        return [str(row) for row in range(len(self))]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        examples: list[Example] = self.rows.__getitems__(indices)
        for row, example in zip(indices, examples, strict=True):
            example["label"] = self.labels[row]
            example |= {name: read_image(example[name], f"row {row}") for name in self._images}
        return examples


@dataclass(eq=False)
class TaskInputs:
    """Turns examples into the inputs of a model that reads texts with images. Its configuration states whether it
    reads regions, patches or both, and how many images with each text."""

    processor: Any
    config: Any
    regions: Regions | None = None
    transform: ImageTransform | None = None  # for training; by default the processor's
    # (images, seeds) -> regions [N, R, region_size], for training; by default `regions`.
    training_regions: Callable[[list[Any], list[int]], np.ndarray] | None = None

    def __call__(self, examples: list[Example], seeds: list[int] | None = None) -> dict[str, Tensor]:
        """Returns the inputs [N, …] of examples, those of `triplets` with the text to translate; with seeds, they are
        augmented for training."""
        names = ("text", "language") if "text" in examples[0] else ("text_a", "language_a")
        texts, languages = ([example[name] for example in examples] for name in names)
        inputs = dict(self.processor(text=texts, language=languages, return_tensors="pt"))
        count, given = self.config.images_per_text, examples[0]
        columns = IMAGE_COLUMNS[count]
        has_pixels = self.config.has_patches and columns[0] in given
        has_regions = self.config.has_regions and self.regions is not None
        named = all(name in given or f"{name}_id" in given for name in columns)
        if not named or not (has_pixels or has_regions):
            raise InputError(
                f"the model reads {', '.join(columns)} with a text, as {self.config.visual}; the examples have "
                f"{', '.join(given)}{'' if self.regions is None else ', and regions'}"
            )
        images = [example.get(name) for example in examples for name in columns]
        pairs = [slice(start, start + count) for start in range(0, len(images), count)]
        image_seeds = [count * seed + k for seed in seeds or () for k in range(count)]
        if has_pixels and self.transform is not None and seeds is not None:
            pixels = self.transform(images, image_seeds)
            inputs["pixel_values"] = pixels if count == 1 else pixels.unflatten(0, (-1, count))
        elif has_pixels:
            inputs |= self.processor(images=[images[pair] for pair in pairs], return_tensors="pt")
        if has_regions:
            if self.training_regions is not None and seeds is not None:
                regions: Sequence[np.ndarray] = list(self.training_regions(images, image_seeds))
            else:
                image_ids = [example[f"{name}_id"] for example in examples for name in columns]
                regions = regions_of(self.regions, image_ids, images)
            inputs |= self.processor(regions=[regions[pair] for pair in pairs], return_tensors="pt")
        return inputs


@dataclass(eq=False)
class LabelCollator:
    """Turns labelled examples into inputs and `labels`: indices [N] of the model's answers, or scores [N, answers]."""

    inputs: TaskInputs
    answers: Sequence[str]
    as_scores: bool = False

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        indices = {answer: index for index, answer in enumerate(self.answers)}
        for example in examples:
            check_answer(example["label"], indices, f"{example['text']!r}")
        labels = torch.tensor([indices[example["label"]] for example in examples])
        if self.as_scores:
            labels = torch.nn.functional.one_hot(labels, len(indices)).float()
        return self.inputs(examples, seeds) | {"labels": labels}


@dataclass(eq=False)
class TargetCollator:
    """Turns examples of `triplets` into inputs and decoder labels, to translate `text_a` to `text_b`."""

    inputs: TaskInputs

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        texts, languages = ([example[name] for example in examples] for name in ("text_b", "language_b"))
        targets = self.inputs.processor(text_target=texts, target_language=languages, return_tensors="pt")
        return self.inputs(examples, seeds) | dict(targets)


def regions_of(regions: Any, image_ids: Sequence[str], images: Sequence[Any]) -> Sequence[np.ndarray]:
    """Returns the `Regions` of images, [R, region_size] each, looked up or computed."""
    return [regions[image_id] for image_id in image_ids] if isinstance(regions, Mapping) else list(regions(images))


def check_answer(answer: str | None, known: Mapping[str, int], place: str) -> None:
    if answer not in known:
        some = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
        raise CorpusError(f"{place}: {answer!r} is none of the model's {len(known)} answers ({some})")


# ---- Retrieval: four candidates for each caption ----
# As in IGLUE's fine-tuning (Bugliarello et al. 2022, after ViLBERT; Zhou et al. 2023, RC3, appendix B): the image with
# its caption, which is correct, the image with a caption of a random other image, a random other image with the
# caption, and the image with a caption of one of the most similar images (a hard negative).

CANDIDATES = 4
_THUMBNAIL = (8, 8)
_ROWS = 1024  # number of images whose similarities are computed together
_ATTEMPTS = 1000  # number of random examples tried to find one with another image_id


class CandidateCollator:
    """Turns captioned images into the inputs of their candidates, one after another, and `labels`; seeds decide the
    candidates. Negatives have captions in the same language, so the language does not reveal the answer. `view` has
    the `image_text_pairs` of all candidates, and `neighbors` [rows, k] the rows of the images most similar to each row
    of its corpus; an example has the index of its row as `row`."""

    def __init__(self, inputs: TaskInputs, view: CorpusView, neighbors: np.ndarray) -> None:
        self.inputs, self.view, self.neighbors = inputs, view, neighbors
        self._captions = view.without_images()[:]
        self._by_language: dict[str, list[int]] = defaultdict(list)
        self._by_row: dict[tuple[int, str], list[int]] = defaultdict(list)
        for index, (row, caption) in enumerate(zip(view.rows.tolist(), self._captions, strict=True)):
            self._by_language[caption["language"]].append(index)
            self._by_row[row, caption["language"]].append(index)

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        rows: list[Example] = []
        for example, seed in zip(examples, seeds, strict=True):
            rng = np.random.Generator(np.random.PCG64(seed))
            caption, image = (self._other(example, rng) for _ in range(2))
            rows += [
                example,
                example | {"text": self._captions[caption]["text"]},
                self.view[image] | {"text": example["text"], "language": example["language"]},
                example | {"text": self._captions[self._hard(example, rng)]["text"]},
            ]
        # All captions of an example get the same augmented image.
        repeated = [seed for seed in seeds for _ in range(CANDIDATES)]
        return self.inputs(rows, repeated) | {"labels": torch.zeros(len(examples), dtype=torch.long)}

    def _other(self, example: Example, rng: np.random.Generator) -> int:
        """Returns the index of a random caption of another image in the same language."""
        captions = self._by_language[example["language"]]
        for _ in range(_ATTEMPTS):
            index = captions[rng.integers(len(captions))]
            if all(self._captions[index][name] != example[name] for name in ("image_id", "text")):
                return index
        raise CorpusError(
            f"{example['image_id']!r}: no other image has a caption in {example['language']}, so no negative can be "
            "sampled"
        )

    def _hard(self, example: Example, rng: np.random.Generator) -> int:
        """Returns the index of a caption of a similar image; of any image if no similar one has a usable caption."""
        for row in rng.permutation(self.neighbors[example["row"]]):
            own = self._by_row.get((int(row), example["language"]), ())
            if captions := [index for index in own if self._captions[index]["text"] != example["text"]]:
                return captions[rng.integers(len(captions))]
        return self._other(example, rng)


def most_similar(vectors: np.ndarray, concepts: Sequence[str], count: int = 100) -> np.ndarray:
    """Returns the indices [N, up to count] of the images that are most similar to each image, by the cosine of their
    vectors [N, d], and show another concept [N], unordered. IGLUE samples from about a hundred."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    _, group, sizes = np.unique(np.asarray(concepts), return_inverse=True, return_counts=True)
    count = min(count, len(unit) - int(sizes.max()))  # the most frequent concept has this many others
    similar_rows = np.empty((len(unit), count), dtype=np.int64)
    for start in range(0, len(unit), _ROWS):
        similar = unit[start : start + _ROWS] @ unit.T  # [rows, N]
        similar[group[start : start + _ROWS, None] == group] = -np.inf
        similar_rows[start : start + _ROWS] = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    return similar_rows


def image_vectors(images: Images | None, image_ids: Sequence[str], regions: Regions | None) -> np.ndarray:
    """Returns a vector for each image [N, d], to find similar images: the mean of its regions, as in IGLUE; without
    regions, its thumbnail minus its mean colour, which is our choice."""
    if regions is not None:
        means = []
        for some in (slice(start, start + _ROWS) for start in range(0, len(image_ids), _ROWS)):
            own = regions_of(regions, image_ids[some], [] if images is None else images[some])
            means += [features.mean(axis=0) for features in own]
        return np.stack(means)
    if images is None:
        raise CorpusError("hard captions come from similar images: give the images, or their regions")
    small = (image.resize(_THUMBNAIL, PIL.Image.Resampling.BOX) for image in images)
    thumbnails = np.stack([np.asarray(image, dtype=np.float32) for image in small])  # [N, 8, 8, 3]
    return (thumbnails - thumbnails.mean(axis=(1, 2), keepdims=True)).reshape(len(thumbnails), -1)
