"""Reads the files of a benchmark from a folder, in the layout in which they were published.

No image is decoded: images are files that a corpus names, and a missing one is an error at once.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

from ...utils.errors import BenchmarkError, CorpusError
from ...utils.languages import normalize_language
from ..corpus.captions import CaptionRules, normalize_captions
from ..corpus.corpus import CAPTIONS, as_caption_corpus
from ..corpus.images import ImageRules
from ..corpus.text_files import read_json_lines, read_lines
from ..readers.bitext_files import bitexts
from ..readers.task_files import identifier_of, image_path, task_dataset, text_of
from ..readers.wit import addressed_images, load_wit
from .catalog import Benchmark
from .coco import (
    karpathy_images,
    karpathy_sentences,
    read_coco,
    read_coco_cn,
    read_flickr30k,
    read_italian,
    read_korean,
    read_machine_translations,
    read_multi30k,
    read_multi30k_translations,
    read_stair,
    read_xflickrco,
    read_xtd,
    read_yj,
)
from .layout import Layout, captions_in

# ---- Wikipedia ----
# Benchmarks on the images of Wikipedia, and Crossmodal-3600.
#
# WIT's own test split and IGLUE's part of it name images by their addresses. The images are in a folder `images`, at
# the paths of their addresses, as `readers.wit` describes it.

_WIT_FILES = "wit_v1.test.all-*-of-*.tsv"


def read_wit(layout: Layout, languages: tuple[str, ...]) -> Dataset | IterableDataset:
    """WIT's test split with reference captions. Rows and images that cannot be used are left out, with warnings that
    count and name them."""
    found = [pattern for pattern in (_WIT_FILES, f"{_WIT_FILES}.gz") if any(layout.root.glob(pattern))]
    if not found:
        raise layout.error(f"there is no file {_WIT_FILES}.gz")
    return load_wit(
        layout.root / found[0],
        layout.folder("images"),
        list(languages),
        texts=("reference",),
        min_languages=1,
        on_bad_row="skip",
        on_bad_image="skip",
        streaming=False,
    )


def read_iglue_wit(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """IGLUE's test images of WIT with reference captions, in one language or in several. Images that cannot be read
    are left out, with a warning that counts and names them."""
    images = addressed_images(layout.folder("images"))
    captions: dict[str, dict[str, list[str]]] = {}
    addresses: dict[str, str] = {}
    for language in languages:
        file = layout.file(f"annotations/test_{language}.jsonl")
        for line, record in read_json_lines(file):
            place = f"{file} line {line}"
            if normalize_language(identifier_of(record, "language", place)) != language:
                raise BenchmarkError(f"{place}: the language is {record['language']!r} in a file of {language}")
            name = identifier_of(record, "wit_ix", place)
            addresses.setdefault(name, identifier_of(record, "image_url", place))
            text = " ".join(text_of(record, "caption_reference_description", place).split())
            captions.setdefault(name, {}).setdefault(language, []).append(text)
    names = list(addresses)
    corpus = layout.corpus(
        {"image": images[addresses[name]], "image_id": name, "captions": captions_in(captions[name])} for name in names
    )
    return as_caption_corpus(
        corpus, images=ImageRules(skip=True), place=lambda row: f"IGLUE's WIT, image {names[row]}"
    )


def read_xm3600(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Crossmodal-3600: 3,600 images with captions in 36 languages."""
    file = layout.file("captions.jsonl")
    images = layout.folder("images")
    rows = []
    for line, record in read_json_lines(file):
        place = f"{file} line {line}"
        name = identifier_of(record, "image/key", place)
        captions = []
        for language in languages:
            of_language = record.get(language)
            if not isinstance(of_language, dict):
                raise BenchmarkError(f"{place}: there is no object {language!r} with captions")
            try:
                captions += normalize_captions(of_language.get("caption"), CaptionRules(language=language))
            except CorpusError as error:
                raise type(error)(f"{place}, {language!r}: {error}") from None
        image = image_path(images, f"{name}.jpg", place)
        rows.append({"image": image, "image_id": name, "captions": captions})
    return layout.corpus(rows)


# ---- Crisscrossed Captions ----
# Crisscrossed Captions (CxC; Parekh et al. 2021, arXiv 2004.15020): ratings from 0 to 5 of how alike two captions,
# two images, or a caption and an image of COCO are, on the test images of Karpathy's split.
#
#     sts_test.csv    caption1,caption2,agg_score,sampling_method
#     sis_test.csv    image1,image2,agg_score,sampling_method
#     sits_test.csv   caption,image,agg_score,sampling_method
#
# A caption is called `COCO_val2014:sentid:346617`, by its `sentid` in `dataset_coco.json`, an image by its file name.

# From this rating on, a pair is positive: texts, images, and a text with an image (section 4).
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
        texts: all captions, those of an image one after the other.
        image_of_text: the index of each caption's image.
        ratings: the rated pairs of `sts` (captions), `sis` (images) and `sits` (a caption and an image).
    """

    corpus: Dataset
    texts: list[str]
    image_of_text: list[int]
    ratings: dict[str, Ratings]

    def positives(self, kind: str) -> list[list[int]]:
        """The positive items of each caption (`sts`: other captions, `sits`: images) or image (`sis`: other images):
        those of COCO, and those with a rating from `POSITIVE` on. Ratings of captions and of images hold both ways."""
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
    """CxC's test set."""
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
    """The rated pairs of a file with this header."""
    indices = [known[column.rstrip("12")] for column in header]
    lines = read_lines(file)
    _, first_line = next(lines, (0, ""))
    names = first_line.split(",")
    if tuple(names) != (*header, *_LAST):
        raise BenchmarkError(f"{file}: expected the header {','.join((*header, *_LAST))}, and found {','.join(names)}")
    pairs, scores = [], []
    for line, text in lines:
        place = f"{file} line {line}"
        cells = next(csv.reader([text]))
        if len(cells) != len(names):
            raise BenchmarkError(f"{place}: {len(cells)} cells, where the header has {len(names)}")
        pair = [of.get(cell.rpartition(":")[2]) for cell, of in zip(cells[:2], indices, strict=True)]
        for cell, column, index in zip(cells[:2], header, pair, strict=True):
            if index is None:
                raise BenchmarkError(f"{place}: {cell!r} is no {column.rstrip('12')} of the test images")
        pairs.append(pair)
        try:
            scores.append(float(cells[2]))
        except ValueError:
            raise BenchmarkError(f"{place}: the rating {cells[2]!r} is not a number") from None
    if not pairs:
        raise BenchmarkError(f"{file} has no ratings")
    return Ratings(np.array(pairs), np.array(scores))


# ---- Tatoeba ----
# Tatoeba's sentences with English translations (Artetxe & Schwenk 2019, arXiv 1812.10464), as LASER's authors
# publish them: `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng`, whose lines correspond.

_FILE = re.compile(r"tatoeba\.([a-z]{3})-eng\.(?:\1|eng)")
_LEFT_OUT = "kzj"  # whose tag is that of `dtp`, which has files of its own
_LONGEST = 10_000  # characters of a sentence


def read_tatoeba(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """A translation corpus: the sentences in these languages, each with its English translation."""
    codes = [match[1] for path in sorted(layout.root.iterdir()) if (match := _FILE.fullmatch(path.name))]
    code_of = {normalize_language(code): code for code in codes if code != _LEFT_OUT}
    rows = []
    for language in languages:
        if language not in code_of:
            raise layout.error(f"there is no file tatoeba.CODE-eng.CODE in {language}")
        code = code_of[language]
        for side in (code, "eng"):
            layout.file(f"tatoeba.{code}-eng.{side}")
        (bitext,) = bitexts(layout.root / f"tatoeba.{code}-eng")
        for pair in bitext.read(_LONGEST):
            rows.append({"captions": captions_in({tag: [text] for tag, text in pair.texts})})
    return task_dataset(rows, {"captions": CAPTIONS}, layout.root)


# ---- All benchmarks ----

# Name of a benchmark -> what reads its folder: a corpus, or for its own protocol data of its own.
READERS: dict[str, Callable[[Layout, tuple[str, ...]], Any]] = {
    "coco-1k": read_coco,
    "coco-5k": read_coco,
    "coco-35l": read_machine_translations,
    "coco-cn": read_coco_cn,
    "coco-it": read_italian,
    "coco-ko": read_korean,
    "cxc": read_crisscrossed,
    "flickr30k": read_flickr30k,
    "iglue-wit": read_iglue_wit,
    "multi30k": read_multi30k,
    "multi30k-task1": read_multi30k_translations,
    "stair-1k": read_stair,
    "stair-5k": read_stair,
    "tatoeba": read_tatoeba,
    "wit": read_wit,
    "xflickrco": read_xflickrco,
    "xm3600": read_xm3600,
    "xtd": read_xtd,
    "yj": read_yj,
}


def read_benchmark(benchmark: Benchmark, root: str | Path, languages: tuple[str, ...]) -> Any:
    """What a benchmark's reader makes of its folder.

    Raises:
        BenchmarkError: for a folder that is not in the published layout.
        CorpusError: for what is wrong in a file, with its place.
    """
    if not Path(root).is_dir():
        raise BenchmarkError(f"{root}: there is no such folder; it should hold the files of {benchmark.name}")
    return READERS[benchmark.name](Layout(benchmark, Path(root)), languages)
