"""Batches of image-text retrieval with four candidates for each caption, one of them correct, as IGLUE fine-tunes it
(Bugliarello et al. 2022, after ViLBERT; Zhou et al. 2023, RC3, appendix B).

    0  the image with its caption
    1  the image with a caption of a random other image
    2  a random other image with the caption
    3  the image with a caption of one of the most similar images (a hard negative)

The seed of an example decides its candidates.
"""

from collections.abc import Sequence

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from ...configuration.errors import CorpusError
from .task_inputs import Regions, TaskInputs, regions_of
from .views import CorpusView, Example, Images

CANDIDATES = 4
_THUMBNAIL = (8, 8)
_ROWS = 1024  # number of images whose similarities are computed together
_ATTEMPTS = 1000  # number of random examples that are tried to find one with another image_id


class CandidateCollator:
    """Turns captioned images into the inputs of their candidates, one after the other, and `labels`.

    The captions of negatives are in the language of the caption, so that the language does not reveal the answer.

    Args:
        inputs: makes the inputs of the model.
        view: the `image_text_pairs` that the examples and their candidates come from.
        neighbors: the rows with the most similar images for each row of the view's corpus, [rows, k], as returned by
            `most_similar`.

    Raises:
        CorpusError: if no other image has a caption in the language of an example.
    """

    def __init__(self, inputs: TaskInputs, view: CorpusView, neighbors: np.ndarray) -> None:
        self.inputs, self.view, self.neighbors = inputs, view, neighbors
        texts = view.without_images()[:]
        self._texts = [example["text"] for example in texts]
        self._languages = np.array([example["language"] for example in texts])
        self._concepts = np.array([example["image_id"] for example in texts])
        self._by_language = {
            language: np.flatnonzero(self._languages == language) for language in set(self._languages)
        }
        # The captions sorted by row, and the index of each row's first caption in them.
        order = np.argsort(view.rows, kind="stable")
        self._order, self._starts = order, np.searchsorted(view.rows[order], np.arange(len(neighbors) + 1))

    def __call__(self, examples: list[Example], seeds: list[int]) -> dict[str, Tensor]:
        rows: list[Example] = []
        for example, seed in zip(examples, seeds, strict=True):
            rng = np.random.Generator(np.random.PCG64(seed))
            caption, image = (self._other(example, rng) for _ in range(2))
            others = self.view.__getitems__([image])[0]
            rows += [
                example,
                example | {"text": self._texts[caption]},
                others | {"text": example["text"], "language": example["language"]},
                example | {"text": self._texts[self._hard(example, rng)]},
            ]
        # All captions of an example get the same augmented image.
        repeated = [seed for seed in seeds for _ in range(CANDIDATES)]
        return self.inputs(rows, repeated) | {"labels": torch.zeros(len(examples), dtype=torch.long)}

    def _other(self, example: Example, rng: np.random.Generator) -> int:
        """The index of a random caption of another image in the same language."""
        captions = self._by_language[example["language"]]
        for _ in range(_ATTEMPTS):
            index = int(captions[rng.integers(len(captions))])
            if self._concepts[index] != example["image_id"] and self._texts[index] != example["text"]:
                return index
        raise CorpusError(
            f"beside {example['image_id']!r} nothing has captions in {example['language']}: there is no wrong one"
        )

    def _hard(self, example: Example, rng: np.random.Generator) -> int:
        """The index of a caption of a similar image; of any image if no similar one has a caption in the language."""
        for row in rng.permutation(self.neighbors[example["row"]]):
            captions = [
                index
                for index in self._order[self._starts[row] : self._starts[row + 1]]
                if self._languages[index] == example["language"] and self._texts[index] != example["text"]
            ]
            if captions:
                return int(captions[rng.integers(len(captions))])
        return self._other(example, rng)


class WithRowIndex:
    """A view whose examples have the index of their row in the corpus as column `row`."""

    def __init__(self, view: CorpusView) -> None:
        self.view = view

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        examples = self.view.__getitems__(indices)
        return [example | {"row": int(self.view.rows[i])} for i, example in zip(indices, examples, strict=True)]


def most_similar(vectors: np.ndarray, concepts: Sequence[str], count: int = 100) -> np.ndarray:
    """Finds the images that are most similar to each image and show something else.

    Args:
        vectors: a vector for each image [N, d]; they are compared by cosine.
        concepts: what each image shows [N].
        count: number of similar images; IGLUE samples from about a hundred.

    Returns:
        Their indices, [N, count or less], in no particular order.

    Raises:
        CorpusError: if all images show the same thing.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    _, group, sizes = np.unique(np.asarray(concepts), return_inverse=True, return_counts=True)
    count = min(count, len(unit) - int(sizes.max()))  # the most frequent concept has this many others
    if count < 1:
        raise CorpusError("all images show the same: none is a wrong one for another")
    similar_rows = np.empty((len(unit), count), dtype=np.int64)
    for start in range(0, len(unit), _ROWS):
        similar = unit[start : start + _ROWS] @ unit.T  # [rows, N]
        similar[group[start : start + _ROWS, None] == group] = -np.inf
        similar_rows[start : start + _ROWS] = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    return similar_rows


def image_vectors(images: Images | None, image_ids: Sequence[str], regions: Regions | None) -> np.ndarray:
    """A vector for each image, by which similar images are found.

    Args:
        images: the images [N].
        image_ids: what each image shows [N].
        regions: the regions of the images.

    Returns:
        The mean of the regions of each image, as in IGLUE; without regions, its thumbnail minus its mean colour, which
        is our choice. [N, d]

    Raises:
        CorpusError: without images and regions.
    """
    if regions is not None:
        means = []
        for start in range(0, len(image_ids), _ROWS):
            some = slice(start, start + _ROWS)
            own = regions_of(regions, image_ids[some], [] if images is None else images[some])
            means += [features.mean(axis=0) for features in own]
        return np.stack(means)
    if images is None:
        raise CorpusError("hard captions are those of similar images: give the images, or their regions")
    small = (image.resize(_THUMBNAIL, PIL.Image.Resampling.BOX) for image in images)
    thumbnails = np.stack([np.asarray(image, dtype=np.float32) for image in small])  # [N, 8, 8, 3]
    return (thumbnails - thumbnails.mean(axis=(1, 2), keepdims=True)).reshape(len(thumbnails), -1)
