"""Captions on the images of COCO 2014, in the folders `train2014` and `val2014`, and of Flickr30K, in the folder
`flickr30k-images`, in the layouts in which they were published: training splits and benchmarks.

Karpathy's `dataset_coco.json` (Karpathy & Fei-Fei 2015) has the English captions and the split. Captions in other
languages use COCO's format (`annotations` with `image_id` and `caption`: STAIR, YJ Captions), or other formats
(COCO-CN, XTD, AI-Hub's Korean). No image is decoded: images are files named in a corpus, and a missing one is an
error.
"""

import csv
import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from datasets import Dataset

from ...utils.errors import CorpusError
from ..benchmarks import Benchmark, find_benchmark
from ..corpus.captions import enumeration
from ..corpus.text_files import open_plain, read_json, read_lines, read_texts
from . import CORPUS, Record, identifier_of, image_path, task_dataset, text_of
from .multi30k import load_multi30k

logger = logging.getLogger(__name__)

CocoTexts: TypeAlias = Literal["coco", "stair", "coco-cn", "korean", "yj"]
Split: TypeAlias = Literal["train", "val", "validation", "test"]
SplitRule: TypeAlias = Literal["karpathy", "mule"]
Texts = dict[str, list[str]]

_KARPATHY = "dataset_coco.json"
# Karpathy's `restval` are the images of COCO's validation split that he left for training; papers train on both.
_PARTS = {"train": ("train", "restval"), "val": ("val",), "test": ("test",)}
_LANGUAGES = {"coco": "en", "stair": "ja", "coco-cn": "zh", "korean": "ko", "yj": "ja"}
# MULE's split (Kim et al. 2020, section 4.1): the images for validation, and for the test. Its own draw was not
# published, so images are drawn with this seed.
_MULE_IMAGES, _MULE_SEED = 1_000, 0
# The names of COCO's 2014 images contain the name of their folder.
_COCO_IMAGE = re.compile(r"COCO_(train2014|val2014)_\d{12}\.jpg")
_COCO_CN_LINE = re.compile(r"([^\t#]+)#\d+\t(.*\S.*)")
_XTD_NAMES = {"ja": "jp"}  # in the names of XTD's files
_XTD_FOLDERS = ("XTD10", "MIC", "STAIR")
_FLICKR_IMAGES = "flickr30k-images"


class _Layout(NamedTuple):
    """The folder of a benchmark."""

    name: str
    root: Path

    def file(self, *paths: str) -> Path:
        """Returns the first of these files that exists; each may be compressed, as `….gz`."""
        for path in paths:
            for file in (self.root / path, self.root / f"{path}.gz"):
                if file.is_file():
                    return file
        raise self._error(f"file {' or '.join(paths)}")

    def folder(self, path: str) -> Path:
        if not (self.root / path).is_dir():
            raise self._error(f"folder {path}")
        return self.root / path

    def row(self, name: str, texts: Texts, place: str) -> dict[str, Any]:
        """Returns the row of an image of COCO 2014."""
        if (match := _COCO_IMAGE.fullmatch(name)) is None:
            raise CorpusError(f"{place}: {name!r} is not the name of an image of COCO 2014")
        return _row(image_path(self.folder(match[1]), name, place), name, texts)

    def corpus(self, rows: Iterable[dict[str, Any]]) -> Dataset:
        return task_dataset(rows, CORPUS, self.root)

    def _error(self, missing: str) -> CorpusError:
        names = sorted(path.name for path in self.root.iterdir()) if self.root.is_dir() else []
        return CorpusError(
            f"{self.root} does not hold the benchmark {self.name} as it was published: there is no {missing}; it has "
            f"{enumeration(names, 8) or 'nothing'}. `babelens evaluate benchmark --benchmark {self.name}` shows what "
            "it needs"
        )


def load_coco(
    folder: str | Path,
    split: Split = "train",
    *,
    captions: list[CocoTexts] | None = None,
    rule: SplitRule = "karpathy",
) -> Dataset:
    """Loads MSCOCO's images of 2014 with captions in one language or in several.

    Columns: `image`, `image_id` (the file name), `captions`. Images that none of `captions` describes are left out.

    Args:
        folder: the folder, with `train2014`, `val2014` and the files of `captions`.
        split: Karpathy's split (Karpathy & Fei-Fei 2015): `train`, which includes his `restval`, `val`, also named
            `validation`, or `test`. COCO-CN has a separate split, which chooses its captions; alone, it needs no file
            of Karpathy's.
        captions: the captions, by default `["coco"]`:

            - `coco`: English, `dataset_coco.json`;
            - `stair`: Japanese, `stair_captions_v1.2_train.json` and `…_val.json`;
            - `coco-cn`: Chinese, `imageid.human-written-caption.txt` and `coco-cn_train.txt` (`val`, `test`);
            - `korean`: Korean, `MSCOCO_train_val_Korean.json`, of AI-Hub;
            - `yj`: Japanese, `yjcaptions26k_clean.json`, on 26,500 of the images.
        rule: who divides the images: `karpathy`, or `mule` (Kim et al. 2020), as in SMALR's table 1: 1,000 random
            images for validation and 1,000 for the test, all with captions in each language of `captions`, and all
            other images for training. If fewer than 3,000 images have them, a third is drawn for each.

    Examples:
        >>> corpus = load_coco("mscoco", "train", captions=["coco", "stair"])
        >>> corpus = load_coco("mscoco", "test", captions=["coco", "coco-cn", "yj"], rule="mule")
    """
    chosen = list(dict.fromkeys(captions or ["coco"]))
    if unknown := [name for name in chosen if name not in _LANGUAGES]:
        raise CorpusError(f"captions: {', '.join(unknown)} is none of {', '.join(get_args(CocoTexts))}")
    return _coco(_Layout("coco-5k", Path(folder)), _known(split), chosen, rule)


def _coco(
    layout: _Layout, split: str, chosen: Sequence[str], rule: str = "karpathy", *, complete: bool = False
) -> Dataset:
    """Makes the corpus of a split. With `complete`, an image without captions is an error."""
    if chosen == ["coco-cn"] and rule == "karpathy":
        names, found, file = _coco_cn_captions(layout, split)
        return layout.corpus(layout.row(f"{name}.jpg", {"zh": found[name]}, f"{file}: {name}") for name in names)
    # Karpathy's images of a split, or all of them, which MULE divides.
    splits = [split] if rule == "karpathy" else ["train", "val", "test"]
    texts = [(_LANGUAGES[name], found) for name in chosen if name != "coco" for found in _texts(layout, name, splits)]
    rows = []
    for place, record in _karpathy(layout.file(_KARPATHY), [part for each in splits for part in _PARTS[each]]):
        image_id, name = identifier_of(record, "cocoid", place), identifier_of(record, "filename", place)
        own: Texts = {"en": _sentences(record, place)} if "coco" in chosen else {}
        for language, by_image in texts:
            if by_image.get(image_id):
                own.setdefault(language, []).extend(by_image[image_id])
        if own:
            rows.append(layout.row(name, own, place))
        elif complete:
            raise CorpusError(f"{place}: {layout.root} has no caption of {image_id} for {layout.name}")
    return layout.corpus(rows if rule == "karpathy" else _mule_split(rows, split))


def _mule_split(rows: list[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    """Returns the rows of one of MULE's splits from the rows of all images."""
    languages = {row["image_id"]: {caption["language"] for caption in row["captions"]} for row in rows}
    everywhere = set[str]().union(*languages.values())
    complete = sorted(name for name, found in languages.items() if found == everywhere)
    np.random.default_rng(_MULE_SEED).shuffle(complete)
    size = min(_MULE_IMAGES, len(complete) // 3)
    held_out = {"val": {*complete[:size]}, "test": {*complete[size : 2 * size]}}
    if split == "train":
        return [row for row in rows if not any(row["image_id"] in names for names in held_out.values())]
    if not size:
        needed = ", ".join(sorted(everywhere))
        raise CorpusError(f"MULE's split needs three images or more with captions in {needed}, not {len(complete)}")
    return [row for row in rows if row["image_id"] in held_out[split]]


def load_flickr30k(folder: str | Path, split: Split = "train") -> Dataset:
    """Loads Flickr30K's images with five English captions each: `image`, `image_id` (the file name), `captions`.

    Args:
        folder: the folder, with `dataset_flickr30k.json` and the images in `flickr30k-images`.
        split: Karpathy's split, as in `load_coco`.
    """
    layout = _Layout("flickr30k", Path(folder))
    images = layout.folder(_FLICKR_IMAGES)
    rows = []
    for place, record in _karpathy(layout.file("dataset_flickr30k.json"), [_known(split)]):
        name = identifier_of(record, "filename", place)
        rows.append(_row(image_path(images, name, place), name, {"en": _sentences(record, place)}))
    return layout.corpus(rows)


def load_xtd(folder: str | Path, languages: list[str] | tuple[str, ...] | None = None) -> Dataset:
    """Loads XTD's 1,000 images of MSCOCO, each with a caption in each of eleven languages: the benchmark `xtd`.

    Args:
        folder: the folder, with XTD10's texts and the images.
        languages: languages of the captions; by default all.
    """
    layout = _Layout("xtd", Path(folder))
    names_file = layout.file("XTD10/test_image_names.txt")
    names = [name.strip() for name in read_texts(names_file)]
    captions: Texts = {}
    for language in find_benchmark("xtd").chosen(languages):
        name = f"test_1kcaptions_{_XTD_NAMES.get(language, language)}.txt"
        file = layout.file(*(f"{each}/{name}" for each in _XTD_FOLDERS))
        captions[language] = [text.strip() for text in read_texts(file)]
        if len(captions[language]) != len(names):
            raise CorpusError(
                f"{file} has {len(captions[language])} captions, and {names_file} the names of {len(names)} images"
            )
    return layout.corpus(
        layout.row(name, {tag: [texts[line]] for tag, texts in captions.items()}, f"{names_file} line {line + 1}")
        for line, name in enumerate(names)
    )


def _known(split: str) -> str:
    if split not in get_args(Split):
        raise CorpusError(f"there is no split {split!r}; there are {', '.join(_PARTS)}")
    return "val" if split == "validation" else split


def _row(image: str, name: str, texts: Texts) -> dict[str, Any]:
    captions = [{"language": language, "text": text} for language, each in texts.items() for text in each]
    return {"image": image, "image_id": name, "captions": captions}


# ---- Files ----


def _records(file: Path, key: str | None = None) -> list[dict[str, Any]]:
    """Returns the records of a JSON file: a list of objects, or such a list in an object under a key."""
    content = read_json(file)
    if key is not None:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, list) or not all(isinstance(record, dict) for record in content):
        where = "a list of objects" if key is None else f"an object with a list of objects {key!r}"
        raise CorpusError(f"{file}: expected {where}, as it was published")
    return content


def _karpathy(file: Path, parts: Sequence[str]) -> Iterator[Record]:
    """Yields (place, record) for the images of `dataset_coco.json` or `dataset_flickr30k.json`, part by part."""
    records = [(f"{file} image {index}", record) for index, record in enumerate(_records(file, "images"))]
    for part in parts:
        found = [(place, record) for place, record in records if identifier_of(record, "split", place) == part]
        if not found:
            raise CorpusError(f"{file}: no image has the split {part!r}")
        yield from found


def _sentences(record: dict[str, Any], place: str) -> list[str]:
    """Returns the captions of an image in Karpathy's file."""
    sentences = record.get("sentences")
    if not isinstance(sentences, list) or not sentences or not all(isinstance(each, dict) for each in sentences):
        raise CorpusError(f"{place}: 'sentences' should be a list of objects, and is {sentences!r:.60}")
    return [text_of(sentence, "raw", place).strip() for sentence in sentences]


def _texts(layout: _Layout, name: str, splits: list[str]) -> Iterator[Texts]:
    """Yields the captions of files by the id of the image."""
    if name == "stair":
        # All of Karpathy's images but those of `train` are among COCO's validation images.
        for part in ("train", "val") if "train" in splits else ("val",):
            file = f"stair_captions_v1.2_{part}.json"
            yield _annotations(layout.file(file, f"stair_captions_v1.2/{file}"))
    elif name == "korean":
        yield _korean_captions(layout)
    elif name == "yj":
        yield _annotations(layout.file("yjcaptions26k_clean.json", "yjcaptions26k/yjcaptions26k_clean.json"))
    else:
        for split in splits:
            names, captions, _ = _coco_cn_captions(layout, split)
            yield {str(int(image.rpartition("_")[2])): captions[image] for image in names}


def _annotations(file: Path) -> Texts:
    """Returns the captions of a file in COCO's format, by image id."""
    captions: Texts = {}
    for index, record in enumerate(_records(file, "annotations")):
        place = f"{file} annotation {index}"
        own = captions.setdefault(identifier_of(record, "image_id", place), [])
        own.append(text_of(record, "caption", place).strip())
    return captions


def _korean_captions(layout: _Layout) -> Texts:
    """Returns AI-Hub's Korean translations by image id, without empty ones, which a warning counts."""
    file = layout.file("MSCOCO_train_val_Korean.json")
    captions: Texts = {}
    empty: list[str] = []
    for index, record in enumerate(_records(file)):
        place, texts = f"{file} entry {index}", record.get("caption_ko")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise CorpusError(f"{place}: 'caption_ko' should be a list of texts, and is {texts!r:.60}")
        image_id = identifier_of(record, "id", place)
        captions[image_id] = [text.strip() for text in texts if text.strip()]
        empty += [image_id] * (len(texts) - len(captions[image_id]))
    if empty:
        logger.warning("%s: left out %d empty captions, of the images %s", file, len(empty), enumeration(empty))
    return captions


def _coco_cn_captions(layout: _Layout, split: str) -> tuple[list[str], Texts, Path]:
    """Returns the names of the images in a split of COCO-CN, without their endings; the captions that people wrote in
    Chinese, by name; and the file of the names."""
    folder = "coco-cn-version1805v1.1/"
    names_file = layout.file(f"coco-cn_{split}.txt", f"{folder}coco-cn_{split}.txt")
    file = layout.file("imageid.human-written-caption.txt", f"{folder}imageid.human-written-caption.txt")
    captions: Texts = {}
    for line, text in read_lines(file):
        if (match := _COCO_CN_LINE.fullmatch(text)) is None:
            raise CorpusError(f"{file} line {line}: expected NAME#INDEX, a tab and a caption, not {text!r:.60}")
        captions.setdefault(match[1], []).append(match[2].strip())
    names = list(dict.fromkeys(name.strip() for name in read_texts(names_file)))
    if absent := [name for name in names if name not in captions]:
        raise CorpusError(f"{file} has no caption of {enumeration(absent, shown=3)}")
    return names, captions, names_file


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


class Ratings(NamedTuple):
    """Rated pairs: the indices of the two items of each pair among the captions and images of `Crisscrossed`, [N, 2],
    and their ratings [N]."""

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


def _crisscrossed(layout: _Layout) -> Crisscrossed:
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    image_of_text: list[int] = []
    known: dict[str, dict[str, int]] = {"caption": {}, "image": {}}
    for place, record in _karpathy(layout.file(_KARPATHY), ["test"]):
        name, own = identifier_of(record, "filename", place), _sentences(record, place)
        for sentence in record["sentences"]:
            known["caption"][identifier_of(sentence, "sentid", place)] = len(known["caption"])
        known["image"][name] = len(rows)
        texts += own
        image_of_text += [len(rows)] * len(own)
        rows.append(layout.row(name, {"en": own}, place))
    files = {kind: layout.file(f"{kind}_test.csv", f"data/{kind}_test.csv") for kind in _HEADERS}
    ratings = {kind: _ratings(file, _HEADERS[kind], known) for kind, file in files.items()}
    return Crisscrossed(layout.corpus(rows), texts, image_of_text, ratings)


def _ratings(file: Path, header: tuple[str, str], known: dict[str, dict[str, int]]) -> Ratings:
    try:
        with io.TextIOWrapper(open_plain(file), "utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
        pairs = [[known[name.rstrip("12")][row[name].rpartition(":")[2]] for name in header] for row in rows]
        return Ratings(np.array(pairs), np.array([float(row["agg_score"]) for row in rows]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{file}: expected {', '.join(header)} of the test images, and agg_score, their rating: {error}"
        ) from error


# ---- Benchmarks ----


def _read_coco(layout: _Layout, languages: Sequence[str], *, captions: str) -> Dataset:
    return _coco(layout, "test", [captions], complete=True)


def _read_multi30k(layout: _Layout, languages: Sequence[str], *, described: tuple[str, ...]) -> Dataset:
    images, folder = layout.folder(_FLICKR_IMAGES), layout.folder("data")
    five = [language for language in languages if language in described]
    return load_multi30k(folder, "test_2016_flickr", tuple(languages), described=five, images=images)


# Name of a benchmark -> the function that reads its folder: into a corpus, or data for a special protocol.
READERS: dict[str, Callable[[_Layout, tuple[str, ...]], Any]] = {
    "coco-1k": partial(_read_coco, captions="coco"),
    "coco-5k": partial(_read_coco, captions="coco"),
    "coco-cn": partial(_read_coco, captions="coco-cn"),
    "coco-ko": partial(_read_coco, captions="korean"),
    "cxc": lambda layout, languages: _crisscrossed(layout),
    "flickr30k": lambda layout, languages: load_flickr30k(layout.root, "test"),
    "multi30k": partial(_read_multi30k, described=("en", "de")),
    "multi30k-task1": partial(_read_multi30k, described=()),
    "stair-1k": partial(_read_coco, captions="stair"),
    "stair-5k": partial(_read_coco, captions="stair"),
    "xtd": lambda layout, languages: load_xtd(layout.root, languages),
}


def read_benchmark(benchmark: Benchmark, root: str | Path, languages: tuple[str, ...]) -> Any:
    """Reads the files of a benchmark from its folder."""
    if not Path(root).is_dir():
        raise CorpusError(f"{root}: there is no such folder; it should hold the files of {benchmark.name}")
    return READERS[benchmark.name](_Layout(benchmark.name, Path(root)), languages)
