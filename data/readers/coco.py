"""Captions on the images of COCO 2014 (in the folders `train2014` and `val2014`) and of Flickr30K (`flickr30k-images`)
in their published layouts: training splits and benchmarks. No image is decoded, but a missing one is an error."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from datasets import Dataset
from pyarrow import csv

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..batching.views import CaptionIndex
from ..benchmarks import find_benchmark
from ..corpus.corpus import RowCount, captions_in, enumeration, listed
from ..corpus.files import read_json, read_lines, read_texts
from . import caption_row, find_file, task_dataset, value_of

Split: TypeAlias = Literal["train", "val", "validation", "test"]
Texts = dict[str, list[str]]

_KARPATHY = "dataset_coco.json"
# Karpathy's `restval` are the images of COCO's validation split that he left for training; papers train on both.
_PARTS = {"train": ("train", "restval"), "val": ("val",), "validation": ("val",), "test": ("test",)}
_LANGUAGES = {"coco": "en", "stair": "ja", "coco-cn": "zh", "korean": "ko", "yj": "ja"}
# The file of captions, and in it the key of the list of records, and those of a record's image id and its captions.
_ANNOTATIONS: dict[str, tuple[str, str | None, str, str]] = {
    "stair": ("stair_captions_v1.2/stair_captions_v1.2_{part}.json", "annotations", "image_id", "caption"),
    "korean": ("MSCOCO_train_val_Korean.json", None, "id", "caption_ko"),
    "yj": ("yjcaptions26k/yjcaptions26k_clean.json", "annotations", "image_id", "caption"),
}
# MULE's split (Kim et al. 2020, section 4.1): the number of images for validation, and for the test. Its own draw was
# not published, so images are drawn with this seed.
_MULE_IMAGES, _MULE_SEED = 1_000, 0
# The names of COCO's 2014 images contain the name of their folder.
_COCO_IMAGE = re.compile(r"COCO_(train2014|val2014)_\d{12}\.jpg")
_COCO_CN_LINE = re.compile(r"([^\t#]+)#\d+\t(.*\S.*)")
_FLICKR_IMAGES = "flickr30k-images"
_MULTI30K_SPLITS = {"validation": "val", "test": "test_2016_flickr"}


def load_coco(
    folder: str | Path,
    split: Split = "train",
    *,
    captions: list[Literal["coco", "stair", "coco-cn", "korean", "yj"]] | None = None,
    rule: Literal["karpathy", "mule"] = "karpathy",
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
    """
    return _coco(Path(folder), split, list(dict.fromkeys(captions or ["coco"])), rule)


def _coco(root: Path, split: str, chosen: Sequence[str], rule: str = "karpathy", *, complete: bool = False) -> Dataset:
    """Makes the corpus of a split. With `complete`, an image without captions is an error."""
    parts = _parts(split)
    if chosen == ["coco-cn"] and rule == "karpathy":
        found = _coco_cn_captions(root, parts[0])
        rows = [_coco_row(root, f"{name}.jpg", {"zh": own}, name) for name, own in found.items()]
        return task_dataset(rows, root)
    if rule == "mule":  # which divides all images
        parts = ("train", "restval", "val", "test")
    captions: dict[str, Texts] = defaultdict(dict)  # of each image
    for name in chosen:
        for image_id, text in _texts(root, name, parts):
            captions[image_id].setdefault(_LANGUAGES[name], []).append(text)
    rows = []
    for place, record, name, sentences in _karpathy(find_file(root, _KARPATHY), parts):
        image_id = value_of(record, "cocoid", place)
        english = {"en": sentences} if "coco" in chosen else {}
        if own := english | captions.get(image_id, {}):
            rows.append(_coco_row(root, name, own, place))
        elif complete:
            raise CorpusError(f"{place}: {root} has no caption of {image_id} in {', '.join(chosen)}")
    return task_dataset(rows if rule == "karpathy" else _mule_split(rows, _parts(split)[0]), root)


def _mule_split(rows: list[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    languages = {row["image_id"]: {caption["language"] for caption in row["captions"]} for row in rows}
    everywhere = set[str]().union(*languages.values())
    complete = sorted(name for name, found in languages.items() if found == everywhere)
    np.random.default_rng(_MULE_SEED).shuffle(complete)
    size = min(_MULE_IMAGES, len(complete) // 3)
    if split == "train":
        return [row for row in rows if row["image_id"] not in complete[: 2 * size]]
    held_out = {*(complete[:size] if split == "val" else complete[size : 2 * size])}
    return [row for row in rows if row["image_id"] in held_out]


def load_flickr30k(folder: str | Path, split: Split = "train") -> Dataset:
    """Loads Karpathy's split of Flickr30K with five English captions an image: `image`, `image_id` (the file name),
    `captions`, from a folder with `dataset_flickr30k.json` and the images in `flickr30k-images`."""
    rows = [
        caption_row(Path(folder, _FLICKR_IMAGES), name, captions_in({"en": sentences}), place)
        for place, _, name, sentences in _karpathy(find_file(folder, "dataset_flickr30k.json"), _parts(split)[:1])
    ]
    return task_dataset(rows, folder)


def load_multi30k(
    folder: str | Path,
    split: str = "train",
    languages: list[str] | tuple[str, ...] = ("en", "de", "fr", "cs"),
    *,
    described: list[str] | tuple[str, ...] = (),
    images: str | Path | None = None,
) -> Dataset:
    """Loads a caption corpus of Multi30K (Elliott et al. 2016), Flickr30K's images with translations of a sentence
    (its task 1), for `triplets`; or with five descriptions each in English and in German (its task 2), from the files
    of its repository:

        train.en.gz  train.de.gz  train.fr.gz    one sentence in each line, plain or compressed; the lines correspond
        train.1.en.gz  …  train.5.de.gz          the descriptions of task 2, five files for each language
        train.txt or train_images.txt            the file name of the image of each line

    Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`.

    Args:
        folder: of these files; or the repository's `task1`, with sentences in `raw` and the names of the images in
            `image_splits`; or the folder that holds `task1` and `task2`.
        split: `train`, `val`, `test_2016_flickr`, `test_2017_flickr`, `test_2017_mscoco` or `test_2018_flickr`;
            `validation` and `test` are `val` and `test_2016_flickr`. Task 2 has `train`, `val` and `test_2016`.
        described: languages with the five descriptions of task 2 instead of the sentence of task 1. The papers
            evaluate retrieval with `["en", "de"]` here, and one sentence in French and Czech. Descriptions are not
            translations of each other: use `triplets` and `translation_pairs` for the other languages.
    """
    split = _MULTI30K_SPLITS.get(split, split)
    tags, five = normalize_languages(list(languages)), normalize_languages(list(described))
    if absent := [tag for tag in five if tag not in tags]:
        raise CorpusError(f"described: {', '.join(absent)} is not among the languages {', '.join(tags)}")
    files = {"task2": [(tag, f"{number}.{tag}") for tag in five for number in range(1, 6)]} if five else {}
    if not five or len(five) < len(tags):
        files["task1"] = [(tag, tag) for tag in tags if tag not in five]
    texts: dict[str, Texts] = {}  # of each image, by language
    for task, endings in files.items():
        part = split.removesuffix("_flickr") if task == "task2" else split
        names_file = find_file(folder, *(f"{task}/image_splits/{part}{ending}" for ending in (".txt", "_images.txt")))
        found = _aligned(names_file, [(tag, find_file(folder, f"{task}/raw/{part}.{end}")) for tag, end in endings])
        if texts and (absent := [name for name in found if name not in texts]):
            raise CorpusError(f"{folder}: task2 does not name {absent[0]!r}, which has sentences in task1")
        texts = {name: texts.get(name, {}) | own for name, own in found.items()}
    rows = [
        caption_row(images, name, captions_in({tag: own[tag] for tag in tags}), str(names_file))
        for name, own in texts.items()
    ]
    return task_dataset(rows, names_file)


def load_xtd(folder: str | Path, languages: list[str] | tuple[str, ...] | None = None) -> Dataset:
    """Loads the benchmark `xtd`: XTD's 1,000 images of MSCOCO, with XTD10's captions in eleven languages."""
    names_file, files = find_file(folder, "XTD10/test_image_names.txt"), []
    for language in find_benchmark("xtd").chosen(languages):
        name = f"test_1kcaptions_{'jp' if language == 'ja' else language}.txt"
        files.append((language, find_file(folder, *(f"{each}/{name}" for each in ("XTD10", "MIC", "STAIR")))))
    found = _aligned(names_file, files)
    return task_dataset([_coco_row(Path(folder), *each, str(names_file)) for each in found.items()], folder)


def _parts(split: str) -> tuple[str, ...]:
    if split not in _PARTS:
        raise CorpusError(f"there is no split {split!r}; there are {', '.join(_PARTS)}")
    return _PARTS[split]


def _coco_row(root: Path, name: str, texts: Texts, place: str) -> dict[str, Any]:
    if (match := _COCO_IMAGE.fullmatch(name)) is None:
        raise CorpusError(f"{place}: {name!r} is not the name of an image of COCO 2014")
    return caption_row(root / match[1], name, captions_in(texts), place)


# ---- Files ----


def _aligned(names_file: Path, files: Sequence[tuple[str, Path]]) -> dict[str, Texts]:
    """Returns the texts of each image by language, from files (language, file) whose lines correspond to the names of
    the images. The number of the caption follows the name in Multi30K's `test_2017_mscoco`."""
    names = [name.strip().partition("#")[0] for name in read_texts(names_file)]
    texts: dict[str, Texts] = {name: {} for name in names}
    for language, file in files:
        lines = read_texts(file)
        if len(lines) != len(names):
            raise CorpusError(f"{file} has {len(lines)} sentences for {len(names)} images")
        for name, text in zip(names, lines, strict=True):
            texts[name].setdefault(language, []).append(text.strip())
    return texts


def _records(file: Path, key: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Returns (place, record) of a JSON file: a list of objects, or an object with the list under a key."""
    records = read_json(file) if key is None else read_json(file, dict)[key]
    return [(f"{file} entry {index}", record) for index, record in enumerate(records)]


def _karpathy(file: Path, parts: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], str, list[str]]]:
    """Yields (place, record, name of the image, captions) from `dataset_coco.json` or `dataset_flickr30k.json`, part
    by part."""
    records = _records(file, "images")
    for part in parts:
        found = [(place, record) for place, record in records if value_of(record, "split", place) == part]
        if not found:
            raise CorpusError(f"{file}: no image has the split {part!r}")
        for place, record in found:
            sentences = record.get("sentences")
            if not isinstance(sentences, list) or not sentences:
                raise CorpusError(f"{place}: 'sentences' should be a list of captions, and is {sentences!r:.60}")
            captions = [value_of(sentence, "raw", place).strip() for sentence in sentences]
            yield place, record, value_of(record, "filename", place), captions


def _texts(root: Path, name: str, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (image id, caption) from the files of captions that have those of some parts of Karpathy's split."""
    if name == "coco-cn":
        for split in (part for part in parts if part != "restval"):
            for image, captions in _coco_cn_captions(root, split).items():
                yield from ((str(int(image.rpartition("_")[2])), text) for text in captions)
    elif name != "coco":  # whose captions are in Karpathy's file
        path, key, image, caption = _ANNOTATIONS[name]
        # All of Karpathy's images but those of `train` are among COCO's validation images.
        for part in ("train", "val") if "{part}" in path and "train" in parts else ("val",):
            yield from _annotations(find_file(root, path.format(part=part)), key, image, caption)


def _annotations(file: Path, key: str | None, image: str, caption: str) -> Iterator[tuple[str, str]]:
    """Yields (image id, caption) without empty captions, which a warning counts."""
    count = RowCount(str(file))
    for place, record in _records(file, key):
        image_id = value_of(record, image, place)
        for text in listed(record.get(caption)):
            if text.strip():
                count.read += 1
                yield image_id, text.strip()
            else:
                count.leave_out("empty captions", f"image {image_id}")
    count.report()


def _coco_cn_captions(root: Path, split: str) -> Texts:
    """Returns the Chinese captions of a COCO-CN split by the name of the image, without its ending."""
    names_file, file = (
        find_file(root, f"coco-cn-version1805v1.1/{name}")
        for name in (f"coco-cn_{split}.txt", "imageid.human-written-caption.txt")
    )
    captions: Texts = defaultdict(list)
    for line, text in read_lines(file):
        if (match := _COCO_CN_LINE.fullmatch(text)) is None:
            raise CorpusError(f"{file} line {line}: expected NAME#INDEX, a tab and a caption, not {text!r:.60}")
        captions[match[1]].append(match[2].strip())
    names = [name.strip() for name in read_texts(names_file)]
    if absent := [name for name in dict.fromkeys(names) if name not in captions]:
        raise CorpusError(f"{file} has no caption of {enumeration(absent, shown=3)}")
    return {name: captions[name] for name in names}


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
    the ratings by kind."""

    corpus: Dataset
    texts: list[str]
    image_of_text: list[int]
    ratings: dict[str, Ratings]

    def positives(self, kind: str) -> list[list[int]]:
        """Returns the positives of each caption (`sts`: captions, `sits`: images) or image (`sis`): COCO's pairs, and
        pairs rated at least `POSITIVE`. Ratings of captions and of images count in both directions."""
        ratings = self.ratings[kind]
        pairs = ratings.pairs[ratings.scores >= POSITIVE[kind]].tolist()
        found: list[set[int]] = [set() for _ in range(len(self.corpus) if kind == "sis" else len(self.texts))]
        if kind == "sits":
            pairs += enumerate(self.image_of_text)
        elif kind == "sts":
            for _, own in groupby(range(len(self.texts)), key=self.image_of_text.__getitem__):
                pairs += combinations(own, 2)
        for first, second in pairs:
            found[first].add(second)
            if kind != "sits":
                found[second].add(first)
        return [sorted(items - {k} if kind != "sits" else items) for k, items in enumerate(found)]


def _crisscrossed(root: Path, languages: Sequence[str]) -> Crisscrossed:
    rows: list[dict[str, Any]] = []
    known: dict[str, dict[str, int]] = {"caption": {}, "image": {}}
    for place, record, name, own in _karpathy(find_file(root, _KARPATHY), ["test"]):
        for sentence in record["sentences"]:
            known["caption"][value_of(sentence, "sentid", place)] = len(known["caption"])
        known["image"][name] = len(rows)
        rows.append(_coco_row(root, name, {"en": own}, place))
    ratings = {}
    for kind, header in _HEADERS.items():
        table = csv.read_csv(find_file(root, f"data/{kind}_test.csv"))
        columns = ((known[name.rstrip("12")], table[name].to_pylist()) for name in header)
        pairs = [[index[each.rpartition(":")[2]] for each in named] for index, named in columns]
        ratings[kind] = Ratings(np.array(pairs).T, table["agg_score"].to_numpy().astype(np.float64))
    corpus = task_dataset(rows, root)
    captions = CaptionIndex(corpus)
    return Crisscrossed(corpus, captions.texts.to_pylist(), captions.rows.tolist(), ratings)


# ---- Benchmarks ----


def _read_coco(captions: str, root: Path, languages: Sequence[str]) -> Dataset:
    return _coco(root, "test", [captions], complete=True)


def _read_multi30k(described: Sequence[str], root: Path, languages: Sequence[str]) -> Dataset:
    five, folder = [tag for tag in languages if tag in described], root / "data"
    return load_multi30k(folder, "test", tuple(languages), described=five, images=root / _FLICKR_IMAGES)


# Name of a benchmark -> the function that reads its folder: into a corpus, or data for a special protocol.
READERS: dict[str, Callable[[Path, tuple[str, ...]], Any]] = {
    **dict.fromkeys(("coco-1k", "coco-5k"), partial(_read_coco, "coco")),
    "coco-cn": partial(_read_coco, "coco-cn"),
    "coco-ko": partial(_read_coco, "korean"),
    "cxc": _crisscrossed,
    "flickr30k": lambda root, languages: load_flickr30k(root, "test"),
    "multi30k": partial(_read_multi30k, ("en", "de")),
    "multi30k-task1": partial(_read_multi30k, ()),
    **dict.fromkeys(("stair-1k", "stair-5k"), partial(_read_coco, "stair")),
    "xtd": load_xtd,
}
