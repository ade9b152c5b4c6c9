"""Four candidates for each caption, of which a model learns to tell the right one: how IGLUE fine-tunes retrieval
(Bugliarello et al. 2022, after ViLBERT; Zhou et al. 2023, RC3, appendix B).

    0  the image with its caption
    1  the image with a caption of any other
    2  any other image with the caption
    3  the image with a caption of one of those most like it: the hard one

Everything is drawn from an example's own seed.
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
_ROWS = 1024  # of the similarities that are computed together
_ATTEMPTS = 1000  # at a draw that is about something else


class CandidateCollator:
    """Captioned images -> the inputs of their candidates, one after the other, and `labels`: the right ones.

    Captions that come for others are in the language of the caption, so that the language gives nothing away.

    Args:
        inputs: of the model.
        view: where the examples come from, `image_text_pairs`, and their candidates.
        neighbours: rows of the view's corpus that are most like each one, [rows, k], as of `nearest`.

    Raises:
        CorpusError: when nothing else has a caption in an example's language.
    """

    def __init__(self, inputs: TaskInputs, view: CorpusView, neighbours: np.ndarray) -> None:
        self.inputs, self.view, self.neighbours = inputs, view, neighbours
        texts = view.without_images()[:]
        self._texts = [example["text"] for example in texts]
        self._languages = np.array([example["language"] for example in texts])
        self._concepts = np.array([example["image_id"] for example in texts])
        self._places = {language: np.flatnonzero(self._languages == language) for language in set(self._languages)}
        # Where the captions of each row stand.
        order = np.argsort(view.rows, kind="stable")
        self._order, self._starts = order, np.searchsorted(view.rows[order], np.arange(len(neighbours) + 1))

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
        # The same augmented image stands beside every caption.
        repeated = [seed for seed in seeds for _ in range(CANDIDATES)]
        return self.inputs(rows, repeated) | {"labels": torch.zeros(len(examples), dtype=torch.long)}

    def _other(self, example: Example, rng: np.random.Generator) -> int:
        """The place of any example about something else, in the same language."""
        places = self._places[example["language"]]
        for _ in range(_ATTEMPTS):
            place = int(places[rng.integers(len(places))])
            if self._concepts[place] != example["image_id"] and self._texts[place] != example["text"]:
                return place
        raise CorpusError(
            f"beside {example['image_id']!r} nothing has captions in {example['language']}: there is no wrong one"
        )

    def _hard(self, example: Example, rng: np.random.Generator) -> int:
        """The place of a caption of an image like the example's; of any where those have none in its language."""
        for row in rng.permutation(self.neighbours[example["row"]]):
            captions = [
                place
                for place in self._order[self._starts[row] : self._starts[row + 1]]
                if self._languages[place] == example["language"] and self._texts[place] != example["text"]
            ]
            if captions:
                return int(captions[rng.integers(len(captions))])
        return self._other(example, rng)


class WithRowIndex:
    """A view whose examples also say from which `row` of the corpus they come."""

    def __init__(self, view: CorpusView) -> None:
        self.view = view

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        examples = self.view.__getitems__(indices)
        return [example | {"row": int(self.view.rows[i])} for i, example in zip(indices, examples, strict=True)]


def most_similar(vectors: np.ndarray, concepts: Sequence[str], count: int = 100) -> np.ndarray:
    """The rows most like each one that show something else, [N, at most count], by cosine of vectors [N, d].

    IGLUE draws from about a hundred.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    _, group, sizes = np.unique(np.asarray(concepts), return_inverse=True, return_counts=True)
    count = min(count, len(unit) - int(sizes.max()))  # of whatever there is most, all others are left
    if count < 1:
        raise CorpusError("all images show the same: none is a wrong one for another")
    found = np.empty((len(unit), count), dtype=np.int64)
    for start in range(0, len(unit), _ROWS):
        similar = unit[start : start + _ROWS] @ unit.T  # [rows, N]
        similar[group[start : start + _ROWS, None] == group] = -np.inf
        found[start : start + _ROWS] = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    return found


def image_vectors(images: Images | None, image_ids: Sequence[str], regions: Regions | None) -> np.ndarray:
    """A vector for each image, [N, d]: the mean of its regions, as in IGLUE; without regions, a thumbnail of it
    without its mean colour [choice]."""
    if regions is not None:
        means = []
        for start in range(0, len(image_ids), _ROWS):
            some = slice(start, start + _ROWS)
            found = regions_of(regions, image_ids[some], [] if images is None else images[some])
            means += [features.mean(axis=0) for features in found]
        return np.stack(means)
    if images is None:
        raise CorpusError("hard captions are those of similar images: give the images, or their regions")
    small = (image.resize(_THUMBNAIL, PIL.Image.Resampling.BOX) for image in images)
    thumbnails = np.stack([np.asarray(image, dtype=np.float32) for image in small])  # [N, 8, 8, 3]
    return (thumbnails - thumbnails.mean(axis=(1, 2), keepdims=True)).reshape(len(thumbnails), -1)
