"""Benchmarks on the images of COCO 2014, in the folders `train2014` and `val2014`.

Karpathy's `dataset_coco.json` (Karpathy & Fei-Fei 2015) has the English captions and the split. Captions in other
languages come in COCO's own format (`annotations` with `image_id` and `caption`: STAIR, YJ Captions, MSCOCO-it), or in
formats of their own (COCO-CN, XTD, AI-Hub's Korean, COCO-35L's translations by machine).
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset

from ...utils.errors import BadTextError, BenchmarkError
from ..corpus.captions import enumeration
from ..corpus.text_files import read_json_lines, read_lines, read_texts
from ..readers.iglue import load_xflickrco
from ..readers.multi30k import load_multi30k
from ..readers.task_files import identifier_of, image_path, text_of
from .layout import Layout, captions_in, json_records

Languages = tuple[str, ...]

KARPATHY = "dataset_coco.json"
# The names of XTD's files have `jp`, which is no tag of a language.
_XTD_NAMES = {"ja": "jp"}
_XTD_FOLDERS = ("XTD10", "MIC", "STAIR")

logger = logging.getLogger(__name__)


def karpathy_images(file: Path, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, record) of the images of a split of `dataset_coco.json` or `dataset_flickr30k.json`.

    Raises:
        BenchmarkError: for a file of another form, and one without images in the split.
    """
    count = 0
    for index, record in enumerate(json_records(file, "images")):
        place = f"{file} image {index}"
        if identifier_of(record, "split", place) == split:
            count += 1
            yield place, record
    if not count:
        raise BenchmarkError(f"{file}: no image has the split {split!r}")


def karpathy_sentences(record: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """The sentences of an image, records with `sentid` and `raw`.

    Raises:
        BenchmarkError: if there are none.
    """
    sentences = record.get("sentences")
    if not isinstance(sentences, list) or not sentences or not all(isinstance(each, dict) for each in sentences):
        raise BenchmarkError(f"{place}: 'sentences' should be a list of objects, and is {sentences!r:.60}")
    return sentences


def karpathy_captions(record: dict[str, Any], place: str) -> list[str]:
    """The captions of an image of a Karpathy split."""
    return [text_of(sentence, "raw", place).strip() for sentence in karpathy_sentences(record, place)]


def read_coco(layout: Layout, languages: Languages) -> Dataset:
    """COCO's English captions on Karpathy's test images."""
    return layout.corpus(
        _row(layout, identifier_of(record, "filename", place), {"en": karpathy_captions(record, place)}, place)
        for place, record in karpathy_images(layout.file(KARPATHY), "test")
    )


def read_stair(layout: Layout, languages: Languages) -> Dataset:
    """STAIR's Japanese captions on Karpathy's test images, all of which are among COCO's validation images of 2014."""
    file = layout.file("stair_captions_v1.2_val.json", "stair_captions_v1.2/stair_captions_v1.2_val.json")
    return _on_karpathy_split(layout, {"ja": annotations_by_image(file)}, {"ja": file})


def read_korean(layout: Layout, languages: Languages) -> Dataset:
    """AI-Hub's Korean translations of COCO's captions on Karpathy's test images; empty translations are left out."""
    captions, file = korean_captions(layout)
    return _on_karpathy_split(layout, {"ko": captions}, {"ko": file})


def korean_captions(layout: Layout) -> tuple[dict[str, list[str]], Path]:
    """AI-Hub's Korean translations by the id of the image, and their file. Empty translations are left out, with a
    warning that counts them.

    Raises:
        BenchmarkError: for a file of another form.
    """
    file = layout.file("MSCOCO_train_val_Korean.json")
    captions: dict[str, list[str]] = {}
    empty: list[str] = []
    for index, record in enumerate(json_records(file)):
        place = f"{file} entry {index}"
        texts = record.get("caption_ko")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise BenchmarkError(f"{place}: 'caption_ko' should be a list of texts, and is {texts!r:.60}")
        image_id = identifier_of(record, "id", place)
        captions[image_id] = [text.strip() for text in texts if text.strip()]
        empty += [image_id] * (len(texts) - len(captions[image_id]))
    if empty:
        logger.warning("%s: left out %d empty captions, of the images %s", file, len(empty), enumeration(empty))
    return captions, file


def read_machine_translations(layout: Layout, languages: Languages) -> Dataset:
    """COCO-35L: Karpathy's validation captions, translated by machine into 34 languages."""
    file = layout.file("coco_mt_dev.jsonl")
    captions: dict[str, dict[str, list[str]]] = {language: {} for language in languages}
    for line, record in read_json_lines(file):
        place = f"{file} line {line}"
        language = identifier_of(record, "trg_lang", place)
        if language in captions:
            image_id, _, number = identifier_of(record, "image_id", place).rpartition("_")
            if not image_id.isdecimal() or not number.isdecimal():
                raise BenchmarkError(f"{place}: 'image_id' should be the id of an image and the index of a caption")
            text = text_of(record, "translation_tokenized", place)
            captions[language].setdefault(str(int(image_id)), []).append(text)
    return _on_karpathy_split(layout, captions, dict.fromkeys(languages, file), "val")


def read_italian(layout: Layout, languages: Languages) -> Dataset:
    """MSCOCO-it's test images with captions that people have validated."""
    name = "captions_ita_testset_validated.json"
    file = layout.file(name, f"mscoco-it/{name}")
    captions = annotations_by_image(file)
    names = {}
    for index, record in enumerate(json_records(file, "images")):
        place = f"{file} image {index}"
        names[identifier_of(record, "id", place)] = identifier_of(record, "file_name", place)
    _refuse_without_captions(names, captions, file)
    return layout.corpus(_row(layout, names[each], {"it": captions[each]}, f"{file} image {each}") for each in names)


def read_yj(layout: Layout, languages: Languages) -> Dataset:
    """All of YJ Captions 26k, whose images are among COCO's training images of 2014."""
    file = layout.file("yjcaptions26k_clean.json", "yjcaptions26k/yjcaptions26k_clean.json")
    captions = annotations_by_image(file)
    return layout.corpus(
        _row(layout, f"COCO_train2014_{image_id:0>12}.jpg", {"ja": texts}, f"{file} image {image_id}")
        for image_id, texts in captions.items()
    )


def read_coco_cn(layout: Layout, languages: Languages) -> Dataset:
    """COCO-CN's test images with the captions that people wrote in Chinese."""
    return coco_cn_split(layout, "test")


def coco_cn_split(layout: Layout, split: str) -> Dataset:
    """The images of a split of COCO-CN (`train`, `val` or `test`), with the captions that people wrote in Chinese.

    Raises:
        BenchmarkError: for files of another form, and for an image without a caption.
    """
    names, captions, places = coco_cn_captions(layout, split)
    return layout.corpus(_row(layout, f"{name}.jpg", {"zh": captions[name]}, places[name]) for name in names)


def coco_cn_captions(layout: Layout, split: str) -> tuple[list[str], dict[str, list[str]], dict[str, str]]:
    """The names of the images of a split of COCO-CN, without their ending; the captions by name; and the places of the
    names, for errors.

    Raises:
        BenchmarkError: for files of another form, and for an image without a caption.
    """
    folder = "coco-cn-version1805v1.1/"
    names_file = layout.file(f"coco-cn_{split}.txt", f"{folder}coco-cn_{split}.txt")
    file = layout.file("imageid.human-written-caption.txt", f"{folder}imageid.human-written-caption.txt")
    captions: dict[str, list[str]] = {}
    for line, text in read_lines(file):
        key, tab, caption = text.partition("\t")
        name, mark, number = key.partition("#")
        if not (tab and mark and number.isdecimal()):
            raise BenchmarkError(
                f"{file} line {line}: expected NAME#INDEX, a tab and a caption, and found {text!r:.60}"
            )
        if not caption.strip():
            raise BadTextError(f"{file} line {line}: the caption is empty")
        captions.setdefault(name, []).append(caption.strip())
    names = list(dict.fromkeys(name.strip() for name in read_texts(names_file)))
    _refuse_without_captions(names, captions, file)
    return names, captions, {name: f"{names_file}: {name}" for name in names}


def read_xtd(layout: Layout, languages: Languages) -> Dataset:
    """XTD: 1,000 images, each with a caption in each language."""
    names_file = layout.file("XTD10/test_image_names.txt")
    names = [name.strip() for name in read_texts(names_file)]
    captions: dict[str, list[str]] = {}
    for language in languages:
        name = f"test_1kcaptions_{_XTD_NAMES.get(language, language)}.txt"
        file = layout.file(*(f"{folder}/{name}" for folder in _XTD_FOLDERS))
        captions[language] = read_texts(file)
        if len(captions[language]) != len(names):
            raise BenchmarkError(
                f"{file} has {len(captions[language])} captions, and {names_file} the names of {len(names)} images"
            )
    return layout.corpus(
        _row(
            layout,
            name,
            {language: [texts[line].strip()] for language, texts in captions.items()},
            f"{names_file} line {line + 1}",
        )
        for line, name in enumerate(names)
    )


def annotations_by_image(file: Path) -> dict[str, list[str]]:
    """The captions of a file in COCO's format, by the id of the image.

    Raises:
        BenchmarkError: for a file of another form.
        BadTextError: for an empty caption.
    """
    captions: dict[str, list[str]] = {}
    for index, record in enumerate(json_records(file, "annotations")):
        place = f"{file} annotation {index}"
        captions.setdefault(identifier_of(record, "image_id", place), []).append(
            text_of(record, "caption", place).strip()
        )
    return captions


def _on_karpathy_split(
    layout: Layout, captions: dict[str, dict[str, list[str]]], files: dict[str, Path], split: str = "test"
) -> Dataset:
    """The images of a split with captions by language and by the id of the image."""
    images = {}
    for place, record in karpathy_images(layout.file(KARPATHY), split):
        images[identifier_of(record, "cocoid", place)] = identifier_of(record, "filename", place), place
    for language, by_image in captions.items():
        _refuse_without_captions(images, by_image, files[language], language)
    return layout.corpus(
        _row(layout, name, {language: by_image[image_id] for language, by_image in captions.items()}, place)
        for image_id, (name, place) in images.items()
    )


def _refuse_without_captions(images: Any, captions: dict[str, list[str]], file: Path, language: str = "") -> None:
    """Raises a `BenchmarkError` if an image of the test set has no caption in a file."""
    absent = [image_id for image_id in images if not captions.get(image_id)]
    if absent:
        what = f"caption in {language}" if language else "caption"
        raise BenchmarkError(
            f"{file} has no {what} of {len(absent)} of the {len(images)} images: {enumeration(absent, shown=3)}"
        )


def _row(layout: Layout, name: str, texts: dict[str, list[str]], place: str) -> dict[str, Any]:
    return {"image": layout.coco_image(name, place), "image_id": name, "captions": captions_in(texts)}


# ---- Flickr30K ----
# Benchmarks on the images of Flickr30K, in the folder `flickr30k-images` of its archive: Flickr30K's test set with
# five captions for each image, Multi30K's with captions in four languages, and xFlickr&CO.

_IMAGES = "flickr30k-images"
# Multi30K has five descriptions of an image in these languages, and one translated sentence in the others.
_DESCRIBED = ("en", "de")


def read_flickr30k(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Flickr30K's English captions on Karpathy's test images."""
    return flickr30k_split(layout, "test")


def flickr30k_split(layout: Layout, split: str) -> Dataset:
    """Flickr30K's English captions on the images of a split of Karpathy's.

    Raises:
        BenchmarkError: for files of another form.
        BadImageError: for an image that is not in the folder.
    """
    images = layout.folder(_IMAGES)
    rows = []
    for place, record in karpathy_images(layout.file("dataset_flickr30k.json"), split):
        name = identifier_of(record, "filename", place)
        captions = captions_in({"en": karpathy_captions(record, place)})
        rows.append({"image": image_path(images, name, place), "image_id": name, "captions": captions})
    return layout.corpus(rows)


def read_multi30k(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Multi30K's test set of 2016: five descriptions of an image in English and in German (task 2), one sentence in
    French and in Czech (task 1)."""
    described = [language for language in languages if language in _DESCRIBED]
    return load_multi30k(
        layout.folder("data"), "test_2016_flickr", languages, described=described, images=layout.folder(_IMAGES)
    )


def read_multi30k_translations(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Multi30K's test set of 2016 with one sentence in each language, translations of each other (task 1)."""
    return load_multi30k(layout.folder("data"), "test_2016_flickr", languages, images=layout.folder(_IMAGES))


def read_xflickrco(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """xFlickr&CO's test images of Flickr30K and of COCO; all languages have captions of the same images."""
    captions: dict[str, list[dict[str, str]]] = {}
    for language in languages:
        file = layout.file(f"annotations/{language}/test.jsonl")
        corpus = load_xflickrco(file, language=language)
        if captions and captions.keys() != set(corpus["image_id"]):
            raise BenchmarkError(f"{file} has captions of other images than annotations/{languages[0]}/test.jsonl")
        for row in corpus:
            captions.setdefault(row["image_id"], []).extend(row["captions"])
    return layout.corpus(
        {"image": _xflickrco_image(layout, name), "image_id": name, "captions": each}
        for name, each in captions.items()
    )


def _xflickrco_image(layout: Layout, name: str) -> str:
    place = f"xFlickr&CO, image {name}"
    if name.startswith("COCO_"):
        return layout.coco_image(name, place)
    return image_path(layout.folder(_IMAGES), name, place)
