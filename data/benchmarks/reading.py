"""Reads the files of a benchmark from a folder, in the layout in which they were published.

No image is decoded: images are files named in a corpus, and a missing one is an error immediately.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ...utils.errors import CorpusError
from ..corpus.text_files import read_lines
from ..readers.task_files import identifier_of, text_of
from .catalog import Benchmark
from .coco import (
    Layout,
    captions_in,
    karpathy_images,
    karpathy_sentences,
    read_coco,
    read_coco_cn,
    read_flickr30k,
    read_korean,
    read_multi30k,
    read_multi30k_translations,
    read_stair,
    read_xtd,
)

# ---- Crisscrossed Captions ----
# Crisscrossed Captions (CxC; Parekh et al. 2021, arXiv 2004.15020): ratings from 0 to 5 of how alike two captions,
# two images, or a caption and an image of COCO are, on the test images of Karpathy's split.
#
#     sts_test.csv    caption1,caption2,agg_score,sampling_method
#     sis_test.csv    image1,image2,agg_score,sampling_method
#     sits_test.csv   caption,image,agg_score,sampling_method
#
# `COCO_val2014:sentid:346617` names a caption by its `sentid` in `dataset_coco.json`; a file name names an image.

# Pairs with at least this rating are positive: texts, images, and a text with an image (section 4).
POSITIVE = {"sts": 3.0, "sis": 2.5, "sits": 2.5}

_HEADERS = {"sts": ("caption1", "caption2"), "sis": ("image1", "image2"), "sits": ("caption", "image")}
_LAST = ("agg_score", "sampling_method")


@dataclass(frozen=True)
class Ratings:
    """Rated pairs.

    Args:
        pairs: the indices of the two items of each pair among the captions and images of `Crisscrossed`, [N, 2].
        scores: their ratings [N].
    """

    pairs: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class Crisscrossed:
    """The captions and images of CxC with their ratings.

    Args:
        corpus: the images, as a caption corpus.
        texts: all captions, grouped by image.
        image_of_text: the index of each caption's image.
        ratings: the rated pairs of `sts` (captions), `sis` (images) and `sits` (a caption and an image).
    """

    corpus: Dataset
    texts: list[str]
    image_of_text: list[int]
    ratings: dict[str, Ratings]

    def positives(self, kind: str) -> list[list[int]]:
        """Returns the positives of each caption (`sts`: other captions, `sits`: images) or image (`sis`: other
        images): COCO's pairs, and pairs rated at least `POSITIVE`. Ratings of captions and of images count in both
        directions."""
        ratings = self.ratings[kind]
        pairs = ratings.pairs[ratings.scores >= POSITIVE[kind]].tolist()
        if kind == "sits":
            pairs += enumerate(self.image_of_text)
        if kind == "sts":
            for _, own in groupby(range(len(self.texts)), key=self.image_of_text.__getitem__):
                pairs += combinations(own, 2)
        found: list[set[int]] = [set() for _ in range(len(self.corpus) if kind == "sis" else len(self.texts))]
        for first, second in pairs:
            found[first].add(second)
            if kind != "sits":
                found[second].add(first)
        return [sorted(items if kind == "sits" else items - {index}) for index, items in enumerate(found)]


def read_crisscrossed(layout: Layout, languages: tuple[str, ...]) -> Crisscrossed:
    """Reads CxC's test set."""
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    image_of_text: list[int] = []
    captions: dict[str, int] = {}
    images: dict[str, int] = {}
    for place, record in karpathy_images(layout.file("dataset_coco.json"), "test"):
        name = identifier_of(record, "filename", place)
        own = []
        for sentence in karpathy_sentences(record, place):
            captions[identifier_of(sentence, "sentid", place)] = len(texts)
            own.append(text_of(sentence, "raw", place).strip())
            texts.append(own[-1])
            image_of_text.append(len(images))
        images[name] = len(rows)
        image = layout.coco_image(name, place)
        rows.append({"image": image, "image_id": name, "captions": captions_in({"en": own})})
    known = {"caption": captions, "image": images}
    files = {kind: layout.file(f"{kind}_test.csv", f"data/{kind}_test.csv") for kind in _HEADERS}
    ratings = {kind: _ratings(file, _HEADERS[kind], known) for kind, file in files.items()}
    return Crisscrossed(layout.corpus(rows), texts, image_of_text, ratings)


def _ratings(file: Path, header: tuple[str, str], known: dict[str, dict[str, int]]) -> Ratings:
    """Returns the rated pairs of a file with this header."""
    indices = [known[column.rstrip("12")] for column in header]
    lines = read_lines(file)
    _, first_line = next(lines, (0, ""))
    names = first_line.split(",")
    if tuple(names) != (*header, *_LAST):
        raise CorpusError(f"{file}: expected the header {','.join((*header, *_LAST))}, and found {','.join(names)}")
    pairs, scores = [], []
    for line, text in lines:
        place = f"{file} line {line}"
        cells = next(csv.reader([text]))
        if len(cells) != len(names):
            raise CorpusError(f"{place}: {len(cells)} cells, where the header has {len(names)}")
        pair = [of.get(cell.rpartition(":")[2]) for cell, of in zip(cells[:2], indices, strict=True)]
        for cell, column, index in zip(cells[:2], header, pair, strict=True):
            if index is None:
                raise CorpusError(f"{place}: {cell!r} is not a {column.rstrip('12')} of the test images")
        pairs.append(pair)
        try:
            scores.append(float(cells[2]))
        except ValueError:
            raise CorpusError(f"{place}: the rating {cells[2]!r} is not a number") from None
    if not pairs:
        raise CorpusError(f"{file} has no ratings")
    return Ratings(np.array(pairs), np.array(scores))


# ---- All benchmarks ----

# Name of a benchmark -> the function that reads its folder: into a corpus, or data for a special protocol.
READERS: dict[str, Callable[[Layout, tuple[str, ...]], Any]] = {
    "coco-1k": read_coco,
    "coco-5k": read_coco,
    "coco-cn": read_coco_cn,
    "coco-ko": read_korean,
    "cxc": read_crisscrossed,
    "flickr30k": read_flickr30k,
    "multi30k": read_multi30k,
    "multi30k-task1": read_multi30k_translations,
    "stair-1k": read_stair,
    "stair-5k": read_stair,
    "xtd": read_xtd,
}


def read_benchmark(benchmark: Benchmark, root: str | Path, languages: tuple[str, ...]) -> Any:
    """Runs a benchmark's reader on its folder."""
    if not Path(root).is_dir():
        raise CorpusError(f"{root}: there is no such folder; it should hold the files of {benchmark.name}")
    return READERS[benchmark.name](Layout(benchmark, Path(root)), languages)
