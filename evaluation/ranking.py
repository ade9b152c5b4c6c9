"""Ranks and recall of text-image retrieval, from embeddings or scores; and the ranks of single queries, so that two
models can be compared query by query (`comparison`).

The usual protocol (Karpathy & Fei-Fei 2015, arXiv 1412.2306) counts a query's best-ranked correct item; an image can
have any number of texts, and a text any number of correct images. For image-to-text retrieval, MLA's protocol (arXiv
2206.11091, released code) ranks images by their best text, so several texts of one wrong image count as one; its R@5
and R@10 are never below the usual ones. Ties count against the query: an item with the same score as the correct item
is ranked before it, so a collapsed model, which computes the same embedding for everything, has a recall of 0.
"""

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batching.views import RetrievalSet
from ..inference.cross_encoder import Scores
from ..inference.embedder import COSINE_TIE, SCORES_AT_ONCE, finite_matrix, unit_rows
from ..utils.errors import InputError

PROTOCOLS = ("standard", "mla")
RECALL_AT = (1, 5, 10)


@dataclass(frozen=True)
class RetrievalRanks:
    """The rank of the best-ranked correct item of each query, from 1: texts [n_texts] and images [n_images]. An image
    without a text is not a query and has rank 0; it stays in the gallery for texts."""

    text_to_image: np.ndarray
    image_to_text: np.ndarray

    def recalls(self) -> dict[str, float]:
        """The recall in percent, `t2i_r1`, …, `i2t_r10`; `mean_recall`, the mean of the six; `n_images`, `n_texts`."""
        from ..metrics.retrieval_recall.retrieval_recall import recalls_of_ranks  # `evaluate` is slow to import

        return recalls_of_ranks(self.text_to_image, self.image_to_text)


def embedding_ranks(
    image_embeddings: np.ndarray,
    text_embeddings: np.ndarray,
    text_to_images: Sequence[Sequence[int]],
    *,
    protocol: str = "standard",
) -> RetrievalRanks:
    """Ranks by cosine similarity of embeddings [n_images, d] and [n_texts, d], without holding the whole score matrix
    in memory; `text_to_images` has the indices of each text's correct images, at least one."""
    sizes = len(text_embeddings), len(image_embeddings)
    return ranks_by(
        *cosine_scores(image_embeddings, text_embeddings), text_to_images, *sizes, protocol=protocol, tie=COSINE_TIE
    )


def score_ranks(
    scores: np.ndarray, text_to_images: Sequence[Sequence[int]], *, protocol: str = "standard"
) -> RetrievalRanks:
    """Ranks by any scores [n_texts, n_images], where higher means more similar; only equal scores tie."""
    matrix = finite_matrix(scores, "scores")
    sides: tuple[Scores, Scores] = (lambda rows: matrix[rows], lambda rows: matrix.T[rows])
    return ranks_by(*sides, text_to_images, *matrix.shape, protocol=protocol, tie=0.0)


def cosine_scores(images: np.ndarray, texts: np.ndarray) -> tuple[Scores, Scores]:
    """Functions for the cosines of some texts with all images, and of some images with all texts."""
    image_rows, text_rows = unit_rows(images), unit_rows(texts)
    return (lambda rows: text_rows[rows] @ image_rows.T), (lambda rows: image_rows[rows] @ text_rows.T)


def neighbor_ranks(embeddings: np.ndarray, right: Sequence[Sequence[int]]) -> np.ndarray:
    """The rank of each item's best correct item among all other items by cosine, from 1, or 0 for items without a
    correct one; ties count against it. `right` has the indices of each item's correct items, without itself."""
    rows = unit_rows(embeddings)

    def scores(chosen: Tensor) -> Tensor:
        cosines = rows[chosen] @ rows.T
        cosines[torch.arange(len(chosen)), chosen] = -math.inf  # an item does not find itself
        return cosines

    return _best_ranks(scores, right, len(rows), COSINE_TIE)


def chance_recalls(n_images: int) -> dict[str, float]:
    """The recall of a random ranking in percent, if each text has one correct image: `t2i_r1`, `t2i_r5`, `t2i_r10`."""
    return {f"t2i_r{k}": 100.0 * (1.0 - max(0, n_images - k) / n_images) for k in RECALL_AT}


def ranks_by(
    image_scores: Scores,
    text_scores: Scores,
    text_to_images: Sequence[Sequence[int]],
    n_texts: int,
    n_images: int,
    *,
    protocol: str,
    tie: float,
    at_once: int = SCORES_AT_ONCE,
) -> RetrievalRanks:
    """Ranks by scores that are computed for some queries at a time, at ascending positions, and may differ between
    directions: of texts with all images, and of images with all texts. Scores that differ by less than `tie` tie; at
    most `at_once` scores, or those of one query, are held at a time."""
    check_protocol(protocol)
    if len(text_to_images) != n_texts:
        raise ValueError(f"there are {n_texts} texts, but correct images for {len(text_to_images)}")
    image_to_texts: list[list[int]] = [[] for _ in range(n_images)]
    for text, images in enumerate(text_to_images):
        if not len(images):
            raise ValueError(f"text {text} has no correct image among the {n_images}")
        for image in images:
            if not 0 <= image < n_images:
                raise ValueError(f"text {text} names image {image}, but there are {n_images} (0 to {n_images - 1})")
            image_to_texts[image].append(text)
    text_images = _pairs(text_to_images) if protocol == "mla" else None
    return RetrievalRanks(
        text_to_image=_best_ranks(image_scores, text_to_images, n_images, tie, at_once),
        image_to_text=_best_ranks(text_scores, image_to_texts, n_texts, tie, at_once, grouped=text_images),
    )


def _best_ranks(
    scores_of: Scores,
    right: Sequence[Sequence[int]],
    n_items: int,
    tie: float,
    at_once: int = SCORES_AT_ONCE,
    grouped: tuple[Tensor, Tensor] | None = None,
) -> np.ndarray:
    """The rank of each query's best correct item [n_queries]: one plus the number of wrong items with at least its
    score. With `grouped`, pairs of an item and its group, wrong groups are counted, by their best wrong item."""
    ranks = torch.zeros(len(right), dtype=torch.long)
    queries = torch.tensor([query for query, items in enumerate(right) if len(items)], dtype=torch.long)
    for chunk in queries.split(max(1, at_once // n_items)):
        row, item = _pairs([right[query] for query in chunk])
        scores = scores_of(chunk)  # [rows, n_items]
        best = torch.full((len(chunk),), -math.inf, dtype=scores.dtype)
        best = best.scatter_reduce(0, row, scores[row, item], "amax")
        ranked_before = scores >= best[:, None] - tie
        ranked_before[row, item] = False
        if grouped is not None:
            members, group = grouped
            counts = torch.zeros(len(chunk), int(group.max()) + 1, dtype=torch.int32)  # [rows, n_groups]
            ranked_before = counts.index_add_(1, group, ranked_before[:, members].int()) > 0
        ranks[chunk] = 1 + ranked_before.sum(1)
    return ranks.numpy()


def _pairs(lists: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The pairs (position of a list, member of the list) as two index vectors."""
    outer = torch.repeat_interleave(torch.tensor([len(members) for members in lists]))
    return outer, torch.tensor([member for members in lists for member in members], dtype=torch.long)


def percent_within(ranks: np.ndarray, k: int) -> float:
    """The percentage of ranks up to k; NaN if there are no ranks."""
    return 100.0 * float(np.mean(ranks <= k)) if len(ranks) else math.nan


def check_protocol(protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise ValueError(f"unknown protocol {protocol!r}; use one of {', '.join(map(repr, PROTOCOLS))}")


# ---- The ranks of single queries: `results.ranks.npz` has the arrays of `QueryRanks` by test set and language ----


@dataclass(frozen=True)
class QueryRanks(RetrievalRanks):
    """The ranks of all queries in one language on one test set: of texts [n_texts] and of images [n_images], as in
    `RetrievalRanks`; the index of each text's (first) image [n_texts]; and digests of the queries with the gallery,
    and of its images. In a task with labels, a query is a text with its images, or an image with the name of its
    class, and its rank is the rank of its label among all labels."""

    image_of_text: np.ndarray
    queries: str
    images: str

    @classmethod
    def of(cls, queries: RetrievalSet, ranks: RetrievalRanks) -> "QueryRanks":
        """The ranks of the queries of a set."""
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
        """The ranks, from 1, of the correct labels of texts with the ids of their image or images."""
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


def ranks_file(results: str | Path) -> Path:
    return Path(results).with_suffix(".ranks.npz")


def write_ranks(file: Path, ranks: Mapping[str, QueryRanks]) -> None:
    """Writes ranks by test set and language, such as `captions/de`, to a compressed file."""
    arrays = {
        f"{name}/{field}": np.asarray(value) for name, each in ranks.items() for field, value in vars(each).items()
    }
    with file.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def read_ranks(file: Path) -> dict[str, QueryRanks]:
    """Reads the ranks that `write_ranks` wrote, by test set and language; empty if there is no file."""
    if not file.is_file():
        return {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            read: dict[str, dict[str, Any]] = {}
            for key in arrays.files:
                name, _, field = key.rpartition("/")
                array = arrays[key]
                read.setdefault(name, {})[field] = array if array.ndim else str(array)
        return {name: QueryRanks(**given) for name, given in read.items()}
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{file} is damaged, so its ranks cannot be read: {error}") from error


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def over_languages(name: str, values: Mapping[str, float]) -> dict[str, float]:
    """Returns the mean of a metric over the languages as `name`, and each language's value as `name_<language>`."""
    mean = sum(values.values()) / len(values)
    return {name: mean} | {f"{name}_{language}": value for language, value in values.items()}
