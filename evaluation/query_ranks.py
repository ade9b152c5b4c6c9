"""The ranks of single queries, which are stored in addition to recall so that two models can be compared query by
query (`comparison`).

The ranks of a report `evaluation/validation.json` are in `evaluation/validation.ranks.npz`: the arrays of `QueryRanks`
for each test set and language.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..data.batching.retrieval_sets import RetrievalSet
from ..utils.errors import InputError
from .ranking import RetrievalRanks

# The test set of a report that only has languages, such as the result of `evaluate_retrieval`.
CAPTIONS = "captions"
_ENDING = ".ranks.npz"


@dataclass(frozen=True)
class QueryRanks:
    """The ranks of all queries in one language on one test set.

    In a task with labels, a query is a text with its images, and its rank is the rank of its label among all labels.
    In image classification, a query is an image with the name of its class. In bitext retrieval, a query is a text,
    which also takes the place of its image.

    Args:
        text_to_image: the ranks of texts as queries, [n_texts], as in `RetrievalRanks`.
        image_to_text: the ranks of images as queries, [n_images]; 0 for images without a text, and for all images if
            they are not queries.
        image_of_text: the index of each text's (first) image, [n_texts].
        queries: a digest of the texts, their images and all images in the gallery.
        images: a digest of the images in the gallery.
    """

    text_to_image: np.ndarray
    image_to_text: np.ndarray
    image_of_text: np.ndarray
    queries: str
    images: str

    @classmethod
    def of(cls, queries: RetrievalSet, ranks: RetrievalRanks) -> "QueryRanks":
        """Returns the ranks of the queries of a set."""
        images = _digest(queries.image_ids)
        return cls(
            text_to_image=ranks.text_to_image.astype(np.int32),
            image_to_text=ranks.image_to_text.astype(np.int32),
            image_of_text=np.array([right[0] for right in queries.text_to_images], dtype=np.int32),
            queries=_digest([images, *queries.texts, *queries.text_image_ids]),
            images=images,
        )

    @classmethod
    def of_labels(cls, texts: Sequence[str], image_ids: Sequence[str], ranks: np.ndarray) -> "QueryRanks":
        """Returns the ranks of the correct labels of texts with images.

        Args:
            texts: the texts [n_texts].
            image_ids: the id of each text's image or images.
            ranks: the rank of each text's label, from 1, [n_texts].
        """
        indices: dict[str, int] = {}
        image_of_text = [indices.setdefault(image, len(indices)) for image in image_ids]
        images = _digest(indices)
        return cls(
            text_to_image=ranks.astype(np.int32),
            image_to_text=np.zeros(len(indices), dtype=np.int32),
            image_of_text=np.array(image_of_text, dtype=np.int32),
            queries=_digest([images, *texts, *image_ids]),
            images=images,
        )

    @classmethod
    def joined(cls, parts: Sequence["QueryRanks"]) -> "QueryRanks":
        """Joins the ranks of the queries of several separately searched test sets, such as folds."""
        starts = np.cumsum([0, *(len(part.image_to_text) for part in parts[:-1])])
        return cls(
            text_to_image=np.concatenate([part.text_to_image for part in parts]),
            image_to_text=np.concatenate([part.image_to_text for part in parts]),
            image_of_text=np.concatenate([p.image_of_text + start for p, start in zip(parts, starts, strict=True)]),
            queries=_digest(part.queries for part in parts),
            images=_digest(part.images for part in parts),
        )


def of_captions(ranks: Mapping[str, QueryRanks]) -> dict[str, QueryRanks]:
    """Converts the ranks by language from `evaluate_retrieval` to ranks by test set and language."""
    return {f"{CAPTIONS}/{language}": each for language, each in ranks.items()}


def ranks_file(results: str | Path) -> Path:
    """Returns the path of the ranks that belong to a file of results."""
    return Path(results).with_suffix(_ENDING)


def write_ranks(file: Path, ranks: Mapping[str, QueryRanks]) -> None:
    """Writes ranks by test set and language, such as `captions/de`, to a compressed file."""
    arrays = {
        f"{name}/{field.name}": np.asarray(getattr(each, field.name))
        for name, each in ranks.items()
        for field in fields(QueryRanks)
    }
    with file.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def read_ranks(file: Path) -> dict[str, QueryRanks]:
    """Reads the ranks that `write_ranks` wrote, by test set and language; empty if there is no file."""
    if not file.is_file():
        return {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            names = dict.fromkeys(key.rpartition("/")[0] for key in arrays.files)
            return {name: _read(arrays, name) for name in names}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{file} is damaged, so its ranks cannot be read: {error}") from error


def _read(arrays: Mapping[str, np.ndarray], name: str) -> QueryRanks:
    given: dict[str, Any] = {field.name: arrays[f"{name}/{field.name}"] for field in fields(QueryRanks)}
    return QueryRanks(**given | {field: str(array) for field, array in given.items() if not array.ndim})


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
