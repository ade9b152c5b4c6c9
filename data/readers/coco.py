"""Captions on the images of COCO 2014 (in the folders `train2014` and `val2014`) and of Flickr30K (`flickr30k-images`)
in their published layouts: training splits and benchmarks. No image is decoded, but a missing one is an error."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from datasets import Dataset

from ...utils.errors import CorpusError
from ..benchmarks import Benchmark, find_benchmark
from ..corpus.captions import RowCount, enumeration
from ..corpus.text_files import open_plain, read_json, read_lines, read_texts
from . import CORPUS, Record, aligned_texts, caption_row, captions_in, find_file, task_dataset, value_of
from .multi30k import load_multi30k

CocoTexts: TypeAlias = Literal["coco", "stair", "coco-cn", "korean", "yj"]
Split: TypeAlias = Literal["train", "val", "validation", "test"]
SplitRule: TypeAlias = Literal["karpathy", "mule"]
Texts = dict[str, list[str]]

_KARPATHY = "dataset_coco.json"
# Karpathy's `restval` are the images of COCO's validation split that he left for training; papers train on both.
_PARTS = {"train": ("train", "restval"), "val": ("val",), "validation": ("val",), "test": ("test",)}
_LANGUAGES = {"coco": "en", "stair": "ja", "coco-cn": "zh", "korean": "ko", "yj": "ja"}
# MULE's split (Kim et al. 2020, section 4.1): the number of images for validation, and for the test. Its own draw was
# not published, so images are drawn with this seed.
_MULE_IMAGES, _MULE_SEED = 1_000, 0
# The names of COCO's 2014 images contain the name of their folder.
_COCO_IMAGE = re.compile(r"COCO_(train2014|val2014)_\d{12}\.jpg")
_COCO_CN_LINE = re.compile(r"([^\t#]+)#\d+\t(.*\S.*)")
_FLICKR_IMAGES = "flickr30k-images"


def load_coco(
    folder: str | Path,
    split: Split = "train",
    *,
    captions: list[CocoTexts] | None = None,
    rule: SplitRule = "karpathy",
) -> Dataset:
    """Loads MSCOCO's images of 2014 with captions in one or several languages: `image`, `image_id` (the file name),
    `captions`. Images that none of `captions` describes are left out.

    Args:
        split: Karpathy's (Karpathy & Fei-Fei 2015); `train` includes his `restval`. COCO-CN has a separate split,
            which chooses its captions; by itself, it needs no file of Karpathy's.
        captions: `coco` (English, `dataset_coco.json`), the default; `stair` (Japanese,
            `stair_captions_v1.2_train.json` and `…_val.json`); `coco-cn` (Chinese, `imageid.human-written-caption.txt`
            and `coco-cn_train.txt`, `val`, `test`); `korean` (AI-Hub's `MSCOCO_train_val_Korean.json`); `yj`
            (Japanese, `yjcaptions26k_clean.json`, on 26,500 of the images).
        rule: `karpathy`, or `mule` (Kim et al. 2020), as in SMALR's table 1: 1,000 random images for validation and
            1,000 for the test, all with captions in each language of `captions`, and all other images for training. If
            fewer than 3,000 images have them, a third is drawn for each.

    Examples:
        >>> corpus = load_coco("mscoco", "test", captions=["coco", "coco-cn", "yj"], rule="mule")
    """
    chosen = list(dict.fromkeys(captions or ["coco"]))
    if unknown := [name for name in chosen if name not in _LANGUAGES]:
        raise CorpusError(f"captions: {', '.join(unknown)} is none of {', '.join(_LANGUAGES)}")
    return _coco(Path(folder), split, chosen, rule)


def _coco(root: Path, split: str, chosen: Sequence[str], rule: str = "karpathy", *, complete: bool = False) -> Dataset:
    """Makes the corpus of a split. With `complete`, an image without captions is an error."""
    parts = _parts(split)
    if chosen == ["coco-cn"] and rule == "karpathy":
        names, found, file = _coco_cn_captions(root, parts[0])
        rows = [_coco_row(root, f"{name}.jpg", {"zh": found[name]}, f"{file}: {name}") for name in names]
        return task_dataset(rows, CORPUS, root)
    if rule == "mule":  # which divides all images
        parts = ("train", "restval", "val", "test")
    texts = [(_LANGUAGES[name], found) for name in chosen if name != "coco" for found in _texts(root, name, parts)]
    rows = []
    for place, record in _karpathy(find_file(root, _KARPATHY), parts):
        image_id, name = value_of(record, "cocoid", place), value_of(record, "filename", place)
        own: Texts = {"en": _sentences(record, place)} if "coco" in chosen else {}
        for language, by_image in texts:
            if by_image.get(image_id):
                own.setdefault(language, []).extend(by_image[image_id])
        if own:
            rows.append(_coco_row(root, name, own, place))
        elif complete:
            raise CorpusError(f"{place}: {root} has no caption of {image_id} in {', '.join(chosen)}")
    return task_dataset(rows if rule == "karpathy" else _mule_split(rows, _parts(split)[0]), CORPUS, root)


def _mule_split(rows: list[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    languages = {row["image_id"]: {caption["language"] for caption in row["captions"]} for row in rows}
    everywhere = set[str]().union(*languages.values())
    complete = sorted(name for name, found in languages.items() if found == everywhere)
    np.random.default_rng(_MULE_SEED).shuffle(complete)
    size = min(_MULE_IMAGES, len(complete) // 3)
    if split == "train":
        return [row for row in rows if row["image_id"] not in complete[: 2 * size]]
    if not size:
        needed = ", ".join(sorted(everywhere))
        raise CorpusError(f"MULE's split needs three images or more with captions in {needed}, not {len(complete)}")
    held_out = {*(complete[:size] if split == "val" else complete[size : 2 * size])}
    return [row for row in rows if row["image_id"] in held_out]


def load_flickr30k(folder: str | Path, split: Split = "train") -> Dataset:
    """Loads Karpathy's split of Flickr30K with five English captions an image: `image`, `image_id` (the file name),
    `captions`, from a folder with `dataset_flickr30k.json` and the images in `flickr30k-images`."""
    rows = []
    for place, record in _karpathy(find_file(folder, "dataset_flickr30k.json"), _parts(split)[:1]):
        captions = captions_in({"en": _sentences(record, place)})
        name = value_of(record, "filename", place)
        rows.append(caption_row(Path(folder, _FLICKR_IMAGES), name, captions, place))
    return task_dataset(rows, CORPUS, folder)


def load_xtd(folder: str | Path, languages: list[str] | tuple[str, ...] | None = None) -> Dataset:
    """Loads the benchmark `xtd`: XTD's 1,000 images of MSCOCO, with XTD10's captions in eleven languages."""
    names_file = find_file(folder, "XTD10/test_image_names.txt")
    names = [name.strip() for name in read_texts(names_file)]
    texts: Texts = {}
    for language in find_benchmark("xtd").chosen(languages):
        name = f"test_1kcaptions_{'jp' if language == 'ja' else language}.txt"
        file = find_file(folder, *(f"{each}/{name}" for each in ("XTD10", "MIC", "STAIR")))
        texts[language] = aligned_texts(file, names)
    rows = []
    for line, name in enumerate(names):
        captions = {language: [own[line]] for language, own in texts.items()}
        rows.append(_coco_row(Path(folder), name, captions, f"{names_file} line {line + 1}"))
    return task_dataset(rows, CORPUS, folder)


def _parts(split: str) -> tuple[str, ...]:
    if split not in _PARTS:
        raise CorpusError(f"there is no split {split!r}; there are {', '.join(_PARTS)}")
    return _PARTS[split]


def _coco_row(root: Path, name: str, texts: Texts, place: str) -> dict[str, Any]:
    if (match := _COCO_IMAGE.fullmatch(name)) is None:
        raise CorpusError(f"{place}: {name!r} is not the name of an image of COCO 2014")
    return caption_row(root / match[1], name, captions_in(texts), place)


# ---- Files ----


def _records(file: Path, key: str | None = None) -> Iterator[Record]:
    """Yields the records of a JSON file: a list of objects, or an object with the list under a key."""
    content = read_json(file)
    if key is not None:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, list) or not all(isinstance(record, dict) for record in content):
        where = "a list of objects" if key is None else f"an object with a list of objects {key!r}"
        raise CorpusError(f"{file}: expected {where}, as it was published")
    return ((f"{file} entry {index}", record) for index, record in enumerate(content))


def _karpathy(file: Path, parts: Sequence[str]) -> Iterator[Record]:
    """Yields (place, record) for the images of `dataset_coco.json` or `dataset_flickr30k.json`, part by part."""
    records = list(_records(file, "images"))
    for part in parts:
        found = [(place, record) for place, record in records if value_of(record, "split", place) == part]
        if not found:
            raise CorpusError(f"{file}: no image has the split {part!r}")
        yield from found


def _listed(record: dict[str, Any], key: str, kind: type, place: str) -> list[Any]:
    values = record.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(each, kind) for each in values):
        raise CorpusError(f"{place}: {key!r} should be a list of {kind.__name__}, and is {values!r:.60}")
    return values


def _sentences(record: dict[str, Any], place: str) -> list[str]:
    return [value_of(sentence, "raw", place).strip() for sentence in _listed(record, "sentences", dict, place)]


def _texts(root: Path, name: str, parts: Sequence[str]) -> Iterator[Texts]:
    if name == "stair":
        # All of Karpathy's images but those of `train` are among COCO's validation images.
        for part in ("train", "val") if "train" in parts else ("val",):
            yield _annotations(find_file(root, f"stair_captions_v1.2/stair_captions_v1.2_{part}.json"))
    elif name == "korean":
        yield _korean_captions(find_file(root, "MSCOCO_train_val_Korean.json"))
    elif name == "yj":
        yield _annotations(find_file(root, "yjcaptions26k/yjcaptions26k_clean.json"))
    else:
        for split in (part for part in parts if part != "restval"):
            names, captions, _ = _coco_cn_captions(root, split)
            yield {str(int(image.rpartition("_")[2])): captions[image] for image in names}


def _annotations(file: Path) -> Texts:
    """Returns the captions of a file in COCO's format, by image id."""
    captions: Texts = {}
    for place, record in _records(file, "annotations"):
        own = captions.setdefault(value_of(record, "image_id", place), [])
        own.append(value_of(record, "caption", place).strip())
    return captions


def _korean_captions(file: Path) -> Texts:
    """Returns AI-Hub's Korean translations by image id, without empty ones, which a warning counts."""
    captions: Texts = {}
    count = RowCount(str(file))
    for place, record in _records(file):
        own = captions.setdefault(value_of(record, "id", place), [])
        for text in _listed(record, "caption_ko", str, place):
            if text.strip():
                own.append(text.strip())
                count.read += 1
            else:
                count.leave_out("empty captions", f"image {record['id']}")
    count.report()
    return captions


def _coco_cn_captions(root: Path, split: str) -> tuple[list[str], Texts, Path]:
    """Returns the image names of a COCO-CN split, without endings, name -> Chinese captions, and the names' file."""
    names_file, file = (
        find_file(root, f"coco-cn-version1805v1.1/{name}")
        for name in (f"coco-cn_{split}.txt", "imageid.human-written-caption.txt")
    )
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
# Crisscrossed Captions (CxC; Parekh et al. 2021, arXiv 2004.15020): ratings from 0 to 5 of how alike two captions
# (`sts_test.csv`), two images (`sis`), or a caption and an image (`sits`) are, on the test images of Karpathy's split.
# `COCO_val2014:sentid:346617` names a caption by its `sentid` in `dataset_coco.json`; a file name names an image.

# Pairs with at least this rating are positive: texts, images, and a text with an image (section 4).
POSITIVE = {"sts": 3.0, "sis": 2.5, "sits": 2.5}

_HEADERS = {"sts": ("caption1", "caption2"), "sis": ("image1", "image2"), "sits": ("caption", "image")}


class Ratings(NamedTuple):
    """Rated pairs: the indices [N, 2] of their captions or images in `Crisscrossed`, and their ratings [N]."""

    pairs: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class Crisscrossed:
    """CxC: the images as a caption corpus, their captions in the same order, the index of each caption's image, and
    the ratings of two captions (`sts`), two images (`sis`), and a caption with an image (`sits`)."""

    corpus: Dataset
    texts: list[str]
    image_of_text: list[int]
    ratings: dict[str, Ratings]

    def positives(self, kind: str) -> list[list[int]]:
        """Returns the positives of each caption (`sts`: captions, `sits`: images) or image (`sis`): COCO's pairs, and
        pairs rated at least `POSITIVE`. Ratings of captions and of images count in both directions."""
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


def _crisscrossed(root: Path, languages: Sequence[str]) -> Crisscrossed:
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    image_of_text: list[int] = []
    known: dict[str, dict[str, int]] = {"caption": {}, "image": {}}
    for place, record in _karpathy(find_file(root, _KARPATHY), ["test"]):
        name, own = value_of(record, "filename", place), _sentences(record, place)
        for sentence in record["sentences"]:
            known["caption"][value_of(sentence, "sentid", place)] = len(known["caption"])
        known["image"][name] = len(rows)
        texts += own
        image_of_text += [len(rows)] * len(own)
        rows.append(_coco_row(root, name, {"en": own}, place))
    ratings = {}
    for kind, header in _HEADERS.items():
        file = find_file(root, f"data/{kind}_test.csv")
        try:
            with io.TextIOWrapper(open_plain(file), "utf-8-sig", newline="") as stream:
                table = list(csv.DictReader(stream))
            pairs = [[known[name.rstrip("12")][row[name].rpartition(":")[2]] for name in header] for row in table]
            ratings[kind] = Ratings(np.array(pairs), np.array([float(row["agg_score"]) for row in table]))
        except (KeyError, TypeError, ValueError) as error:
            expected = f"{', '.join(header)} of the test images, and agg_score, their rating"
            raise CorpusError(f"{file}: expected {expected}: {error}") from error
    return Crisscrossed(task_dataset(rows, CORPUS, root), texts, image_of_text, ratings)


# ---- Benchmarks ----


def _read_coco(root: Path, languages: Sequence[str], *, captions: str) -> Dataset:
    return _coco(root, "test", [captions], complete=True)


def _read_multi30k(root: Path, languages: Sequence[str], *, described: tuple[str, ...]) -> Dataset:
    five = [language for language in languages if language in described]
    return load_multi30k(
        root / "data", "test_2016_flickr", tuple(languages), described=five, images=root / _FLICKR_IMAGES
    )


# Name of a benchmark -> the function that reads its folder: into a corpus, or data for a special protocol.
READERS: dict[str, Callable[[Path, tuple[str, ...]], Any]] = {
    "coco-1k": partial(_read_coco, captions="coco"),
    "coco-5k": partial(_read_coco, captions="coco"),
    "coco-cn": partial(_read_coco, captions="coco-cn"),
    "coco-ko": partial(_read_coco, captions="korean"),
    "cxc": _crisscrossed,
    "flickr30k": lambda root, languages: load_flickr30k(root, "test"),
    "multi30k": partial(_read_multi30k, described=("en", "de")),
    "multi30k-task1": partial(_read_multi30k, described=()),
    "stair-1k": partial(_read_coco, captions="stair"),
    "stair-5k": partial(_read_coco, captions="stair"),
    "xtd": load_xtd,
}


def read_benchmark(benchmark: Benchmark, root: str | Path, languages: tuple[str, ...]) -> Any:
    if not Path(root).is_dir():
        raise CorpusError(f"{root}: no such folder; it should hold the files of {benchmark.name}")
    return READERS[benchmark.name](Path(root), languages)
