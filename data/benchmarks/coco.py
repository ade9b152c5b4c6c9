"""Benchmarks on the images of COCO 2014, in the folders `train2014` and `val2014`, and of Flickr30K, in the folder
`flickr30k-images`, in the layouts in which they were published.

Karpathy's `dataset_coco.json` (Karpathy & Fei-Fei 2015) has the English captions and the split. Captions in other
languages use COCO's format (`annotations` with `image_id` and `caption`: STAIR, YJ Captions), or other formats
(COCO-CN, XTD, AI-Hub's Korean).
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, Image, Value

from ...utils.errors import CorpusError
from ..corpus.captions import enumeration
from ..corpus.corpus import CAPTIONS
from ..corpus.text_files import read_json, read_lines, read_texts
from ..readers.multi30k import load_multi30k
from ..readers.task_files import identifier_of, image_path, task_dataset, text_of
from .catalog import Benchmark

Languages = tuple[str, ...]

KARPATHY = "dataset_coco.json"
# The names of COCO's 2014 images contain the name of their folder.
_COCO_IMAGE = re.compile(r"COCO_(train2014|val2014)_\d{12}\.jpg")
# The names of XTD's files contain `jp`, which is not a language tag.
_XTD_NAMES = {"ja": "jp"}
_XTD_FOLDERS = ("XTD10", "MIC", "STAIR")
_FLICKR_IMAGES = "flickr30k-images"
# Multi30K has five descriptions of each image in these languages, and one translated sentence in the others.
_DESCRIBED = ("en", "de")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """The folder of a benchmark, named in errors."""

    benchmark: Benchmark
    root: Path

    def file(self, *paths: str) -> Path:
        """Returns the first of these files that exists; each may be compressed, as `….gz`."""
        for path in paths:
            for file in (self.root / path, self.root / f"{path}.gz"):
                if file.is_file():
                    return file
        raise self.error(f"there is no file {' or '.join(paths)}")

    def folder(self, path: str) -> Path:
        """ """
        if not (self.root / path).is_dir():
            raise self.error(f"there is no folder {path}")
        return self.root / path

    def coco_image(self, name: str, place: str) -> str:
        """Returns the path of an image of COCO 2014, by its file name."""
        match = _COCO_IMAGE.fullmatch(name)
        if match is None:
            raise CorpusError(f"{place}: {name!r} is not the name of an image of COCO 2014")
        return image_path(self.folder(match[1]), name, place)

    def corpus(self, rows: Iterable[dict[str, Any]]) -> Dataset:
        """Makes a caption corpus from rows with `image`, `image_id` and `captions`."""
        features = {"image": Image(), "image_id": Value("string"), "captions": CAPTIONS}
        return task_dataset(rows, features, self.root)

    def error(self, problem: str) -> CorpusError:
        name = self.benchmark.name
        return CorpusError(
            f"{self.root} does not hold the benchmark {name} as it was published: {problem}; it has "
            f"{contents(self.root)}. `babelens evaluate benchmark --benchmark {name}` shows what it needs"
        )


def contents(folder: str | Path) -> str:
    """Returns the names of a folder's content, for errors."""
    if not Path(folder).is_dir():
        return "no such folder" if not Path(folder).exists() else "a file, not a folder"
    names = sorted(path.name for path in Path(folder).iterdir())
    return enumeration(names, 8) or "nothing in it"


def json_records(file: Path, key: str | None = None) -> list[dict[str, Any]]:
    """Returns the records of a JSON file: a list of objects, or such a list in an object under a key."""
    content = read_json(file)
    if key is not None:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, list) or not all(isinstance(record, dict) for record in content):
        where = "a list of objects" if key is None else f"an object with a list of objects {key!r}"
        raise CorpusError(f"{file}: expected {where}, as it was published")
    return content


def captions_in(texts: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """Returns the cell `captions` of an image from its texts by language."""
    return [{"language": language, "text": text} for language, each in texts.items() for text in each]


# ---- COCO ----


def karpathy_images(file: Path, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, record) for the images in a split of `dataset_coco.json` or `dataset_flickr30k.json`."""
    count = 0
    for index, record in enumerate(json_records(file, "images")):
        place = f"{file} image {index}"
        if identifier_of(record, "split", place) == split:
            count += 1
            yield place, record
    if not count:
        raise CorpusError(f"{file}: no image has the split {split!r}")


def karpathy_sentences(record: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """Returns the sentences of an image: records with `sentid` and `raw`."""
    sentences = record.get("sentences")
    if not isinstance(sentences, list) or not sentences or not all(isinstance(each, dict) for each in sentences):
        raise CorpusError(f"{place}: 'sentences' should be a list of objects, and is {sentences!r:.60}")
    return sentences


def karpathy_captions(record: dict[str, Any], place: str) -> list[str]:
    """Returns the captions of an image in Karpathy's file."""
    return [text_of(sentence, "raw", place).strip() for sentence in karpathy_sentences(record, place)]


def read_coco(layout: Layout, languages: Languages) -> Dataset:
    """Reads COCO's English captions on Karpathy's test images."""
    return layout.corpus(
        _row(layout, identifier_of(record, "filename", place), {"en": karpathy_captions(record, place)}, place)
        for place, record in karpathy_images(layout.file(KARPATHY), "test")
    )


def read_stair(layout: Layout, languages: Languages) -> Dataset:
    """Reads STAIR's Japanese captions on Karpathy's test images, which are all in COCO's 2014 validation images."""
    file = layout.file("stair_captions_v1.2_val.json", "stair_captions_v1.2/stair_captions_v1.2_val.json")
    return _on_karpathy_test(layout, "ja", annotations_by_image(file), file)


def read_korean(layout: Layout, languages: Languages) -> Dataset:
    """Reads AI-Hub's Korean translations of COCO's captions on Karpathy's test images."""
    return _on_karpathy_test(layout, "ko", *korean_captions(layout))


def korean_captions(layout: Layout) -> tuple[dict[str, list[str]], Path]:
    """Returns AI-Hub's Korean translations by image id, and their file. Empty translations are left out, and a warning
    counts them."""
    file = layout.file("MSCOCO_train_val_Korean.json")
    captions: dict[str, list[str]] = {}
    empty: list[str] = []
    for index, record in enumerate(json_records(file)):
        place = f"{file} entry {index}"
        texts = record.get("caption_ko")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise CorpusError(f"{place}: 'caption_ko' should be a list of texts, and is {texts!r:.60}")
        image_id = identifier_of(record, "id", place)
        captions[image_id] = [text.strip() for text in texts if text.strip()]
        empty += [image_id] * (len(texts) - len(captions[image_id]))
    if empty:
        logger.warning("%s: left out %d empty captions, of the images %s", file, len(empty), enumeration(empty))
    return captions, file


def read_coco_cn(layout: Layout, languages: Languages) -> Dataset:
    """Reads COCO-CN's test images with the captions that people wrote in Chinese."""
    return coco_cn_split(layout, "test")


def coco_cn_split(layout: Layout, split: str) -> Dataset:
    """Reads the images in a split of COCO-CN (`train`, `val` or `test`), with the captions that people wrote in
    Chinese."""
    names, captions, places = coco_cn_captions(layout, split)
    return layout.corpus(_row(layout, f"{name}.jpg", {"zh": captions[name]}, places[name]) for name in names)


def coco_cn_captions(layout: Layout, split: str) -> tuple[list[str], dict[str, list[str]], dict[str, str]]:
    """Returns the names of the images in a split of COCO-CN, without their endings; the captions by name; and the
    place of each name, for errors."""
    folder = "coco-cn-version1805v1.1/"
    names_file = layout.file(f"coco-cn_{split}.txt", f"{folder}coco-cn_{split}.txt")
    file = layout.file("imageid.human-written-caption.txt", f"{folder}imageid.human-written-caption.txt")
    captions: dict[str, list[str]] = {}
    for line, text in read_lines(file):
        key, tab, caption = text.partition("\t")
        name, mark, number = key.partition("#")
        if not (tab and mark and number.isdecimal()):
            raise CorpusError(f"{file} line {line}: expected NAME#INDEX, a tab and a caption, and found {text!r:.60}")
        if not caption.strip():
            raise CorpusError(f"{file} line {line}: the caption is empty")
        captions.setdefault(name, []).append(caption.strip())
    names = list(dict.fromkeys(name.strip() for name in read_texts(names_file)))
    _refuse_without_captions(names, captions, file)
    return names, captions, {name: f"{names_file}: {name}" for name in names}


def read_xtd(layout: Layout, languages: Languages) -> Dataset:
    """Reads XTD: 1,000 images, each with a caption in every language."""
    names_file = layout.file("XTD10/test_image_names.txt")
    names = [name.strip() for name in read_texts(names_file)]
    captions: dict[str, list[str]] = {}
    for language in languages:
        name = f"test_1kcaptions_{_XTD_NAMES.get(language, language)}.txt"
        file = layout.file(*(f"{folder}/{name}" for folder in _XTD_FOLDERS))
        captions[language] = [text.strip() for text in read_texts(file)]
        if len(captions[language]) != len(names):
            raise CorpusError(
                f"{file} has {len(captions[language])} captions, and {names_file} the names of {len(names)} images"
            )
    return layout.corpus(
        _row(layout, name, {tag: [texts[line]] for tag, texts in captions.items()}, f"{names_file} line {line + 1}")
        for line, name in enumerate(names)
    )


def annotations_by_image(file: Path) -> dict[str, list[str]]:
    """Returns the captions of a file in COCO's format, by image id."""
    captions: dict[str, list[str]] = {}
    for index, record in enumerate(json_records(file, "annotations")):
        place = f"{file} annotation {index}"
        of_image = captions.setdefault(identifier_of(record, "image_id", place), [])
        of_image.append(text_of(record, "caption", place).strip())
    return captions


def _on_karpathy_test(layout: Layout, language: str, captions: dict[str, list[str]], file: Path) -> Dataset:
    """Makes a corpus of Karpathy's test images from captions by image id."""
    images = {
        identifier_of(record, "cocoid", place): (identifier_of(record, "filename", place), place)
        for place, record in karpathy_images(layout.file(KARPATHY), "test")
    }
    _refuse_without_captions(images, captions, file)
    return layout.corpus(
        _row(layout, name, {language: captions[image_id]}, place) for image_id, (name, place) in images.items()
    )


def _refuse_without_captions(images: Any, captions: dict[str, list[str]], file: Path) -> None:
    if absent := [image_id for image_id in images if not captions.get(image_id)]:
        raise CorpusError(
            f"{file} has no caption of {len(absent)} of the {len(images)} images: {enumeration(absent, shown=3)}"
        )


def _row(layout: Layout, name: str, texts: dict[str, list[str]], place: str) -> dict[str, Any]:
    return {"image": layout.coco_image(name, place), "image_id": name, "captions": captions_in(texts)}


# ---- Flickr30K ----


def read_flickr30k(layout: Layout, languages: Languages) -> Dataset:
    """Reads Flickr30K's English captions on Karpathy's test images."""
    return flickr30k_split(layout, "test")


def flickr30k_split(layout: Layout, split: str) -> Dataset:
    """Reads Flickr30K's English captions on the images in one of Karpathy's splits."""
    images = layout.folder(_FLICKR_IMAGES)
    rows = []
    for place, record in karpathy_images(layout.file("dataset_flickr30k.json"), split):
        name = identifier_of(record, "filename", place)
        captions = captions_in({"en": karpathy_captions(record, place)})
        rows.append({"image": image_path(images, name, place), "image_id": name, "captions": captions})
    return layout.corpus(rows)


def read_multi30k(layout: Layout, languages: Languages) -> Dataset:
    """Reads Multi30K's test set of 2016: five descriptions of each image in English and in German (task 2), one
    sentence in French and in Czech (task 1)."""
    described = [language for language in languages if language in _DESCRIBED]
    return _multi30k(layout, languages, described)


def read_multi30k_translations(layout: Layout, languages: Languages) -> Dataset:
    """Reads Multi30K's test set of 2016 with one sentence in each language; they are translations of each other (task
    1)."""
    return _multi30k(layout, languages, [])


def _multi30k(layout: Layout, languages: Languages, described: list[str]) -> Dataset:
    images = layout.folder(_FLICKR_IMAGES)
    return load_multi30k(layout.folder("data"), "test_2016_flickr", languages, described=described, images=images)
