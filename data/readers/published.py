"""Published data sets by name, each read from its files as they are published. Recipes name them as a `source`, and
commands as the data that they read, with the arguments of the readers as options:

    source: wit
    options: {files: data/wit, images: data/wit-images, languages: [de, en], on_bad_image: skip}

A reader refuses what is not its layout, and says what it found.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from datasets import Dataset, IterableDataset, concatenate_datasets

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..benchmarks.catalog import find_benchmark
from ..benchmarks.coco import (
    KARPATHY,
    Layout,
    annotations_by_image,
    captions_in,
    coco_cn_captions,
    coco_cn_split,
    contents,
    flickr30k_split,
    karpathy_captions,
    karpathy_images,
    korean_captions,
    read_xtd,
)
from ..corpus.text_files import files_matching, kind_of
from .bitext import TABLES, is_bitext, load_bitext
from .conceptual_captions import load_cc3m, load_cc12m, load_cc300k
from .multi30k import load_multi30k
from .task_files import identifier_of
from .wit import load_wit

# ---- Training splits ----
# The training and validation splits of the data sets whose test splits are benchmarks: MSCOCO with captions in
# several languages, and Flickr30K. Their folders are those of the benchmarks, with all images.

CocoTexts: TypeAlias = Literal["coco", "stair", "coco-cn", "korean", "yj"]
Split: TypeAlias = Literal["train", "val", "validation", "test"]
SplitRule: TypeAlias = Literal["karpathy", "mule"]

# Karpathy's `restval` are the images of COCO's validation split that he left for training; papers train on both.
_PARTS = {"train": ("train", "restval"), "val": ("val",), "test": ("test",)}
_LANGUAGES = {"coco": "en", "stair": "ja", "coco-cn": "zh", "korean": "ko", "yj": "ja"}
# MULE's split (Kim et al. 2020, section 4.1): the images for validation, and for the test. Its own draw was not
# published, so images are drawn with this seed.
_MULE_IMAGES, _MULE_SEED = 1_000, 0


def load_coco(
    folder: str | Path,
    split: Split = "train",
    *,
    captions: list[CocoTexts] | None = None,
    rule: SplitRule = "karpathy",
) -> Dataset:
    """MSCOCO's images of 2014 with captions in one language or in several.

    Columns: `image`, `image_id` (the file name), `captions`. An image has the captions of those of `captions` that
    describe it, and is left out without any.

    Args:
        folder: the folder, with `train2014`, `val2014` and the files of `captions`.
        split: Karpathy's split (Karpathy & Fei-Fei 2015): `train`, which has his `restval` as well, `val`, also named
            `validation`, or `test`. COCO-CN has a split
            of its own, which chooses its captions; given alone, it needs no file of Karpathy's.
        captions: the captions, by default `["coco"]`:

            - `coco`: English, `dataset_coco.json`;
            - `stair`: Japanese, `stair_captions_v1.2_train.json` and `…_val.json`;
            - `coco-cn`: Chinese, `imageid.human-written-caption.txt` and `coco-cn_train.txt` (`val`, `test`);
            - `korean`: Korean, `MSCOCO_train_val_Korean.json`, of AI-Hub;
            - `yj`: Japanese, `yjcaptions26k_clean.json`, on 26,500 of the images.
        rule: who divides the images: `karpathy`, or `mule` (Kim et al. 2020), as in SMALR's table 1: 1,000 random
            images for validation and 1,000 for the test, all with captions in each language of `captions`, and all
            other images for training. A third of such images is drawn for each where there are fewer than 3,000.

    Examples:
        >>> corpus = load_coco("mscoco", "train", captions=["coco", "stair"])
        >>> corpus = load_coco("mscoco", "test", captions=["coco", "coco-cn", "yj"], rule="mule")
    """
    chosen = list(dict.fromkeys(captions or ["coco"]))
    if unknown := [name for name in chosen if name not in _LANGUAGES]:
        raise CorpusError(f"captions: {', '.join(unknown)} is none of {', '.join(get_args(CocoTexts))}")
    split = _known(split)
    layout = Layout(find_benchmark("coco-5k"), Path(folder))
    if chosen == ["coco-cn"] and rule == "karpathy":
        return coco_cn_split(layout, split)
    # Karpathy's images of a split, or all of them, which MULE divides.
    read: list[str] = [split] if rule == "karpathy" else ["train", "val", "test"]
    texts: list[tuple[str, dict[str, list[str]]]] = []
    for name in chosen:
        if name != "coco":
            texts += [(_LANGUAGES[name], by_image) for by_image in _texts(layout, name, read)]
    rows = (row for each in read for row in _rows(layout, each, texts, english="coco" in chosen))
    return layout.corpus(rows if rule == "karpathy" else _mule_split(list(rows), split))


def _mule_split(rows: list[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    """The rows of a split of MULE's, from those of all images."""
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
    """Flickr30K's images with five English captions each.

    Columns: `image`, `image_id` (the file name), `captions`.

    Args:
        folder: the folder, with `dataset_flickr30k.json` and the images in `flickr30k-images`.
        split: Karpathy's split, as in `load_coco`.
    """
    return flickr30k_split(Layout(find_benchmark("flickr30k"), Path(folder)), _known(split))


def load_xtd(folder: str | Path, languages: list[str] | None = None) -> Dataset:
    """XTD's 1,000 images of MSCOCO, each with a caption in each of eleven languages: the benchmark `xtd`.

    Args:
        folder: the folder, with XTD10's texts and the images.
        languages: languages of the captions; by default all.
    """
    benchmark = find_benchmark("xtd")
    chosen = benchmark.languages if languages is None else tuple(normalize_languages(languages))
    if unknown := [language for language in chosen if language not in benchmark.languages]:
        raise CorpusError(f"XTD has no captions in {', '.join(unknown)}; it has {', '.join(benchmark.languages)}")
    return read_xtd(Layout(benchmark, Path(folder)), chosen)


def _known(split: str) -> Split:
    if split not in get_args(Split):
        raise CorpusError(f"there is no split {split!r}; there are {', '.join(_PARTS)}")
    return "val" if split == "validation" else cast(Split, split)


def _texts(layout: Layout, name: str, splits: list[str]) -> Iterator[dict[str, list[str]]]:
    """The captions of files by the id of the image."""
    if name == "stair":
        # All of Karpathy's images but those of `train` are among COCO's validation images.
        for part in ("train", "val") if "train" in splits else ("val",):
            file = f"stair_captions_v1.2_{part}.json"
            yield annotations_by_image(layout.file(file, f"stair_captions_v1.2/{file}"))
    elif name == "korean":
        yield korean_captions(layout)[0]
    elif name == "yj":
        yield annotations_by_image(layout.file("yjcaptions26k_clean.json", "yjcaptions26k/yjcaptions26k_clean.json"))
    else:
        for split in splits:
            names, captions, _ = coco_cn_captions(layout, split)
            yield {str(int(image.rpartition("_")[2])): captions[image] for image in names}


def _rows(
    layout: Layout, split: str, texts: list[tuple[str, dict[str, list[str]]]], *, english: bool
) -> Iterator[dict[str, Any]]:
    for part in _PARTS[split]:
        for place, record in karpathy_images(layout.file(KARPATHY), part):
            image_id, name = identifier_of(record, "cocoid", place), identifier_of(record, "filename", place)
            of_image: dict[str, list[str]] = {"en": karpathy_captions(record, place)} if english else {}
            for language, by_image in texts:
                if image_id in by_image:
                    of_image.setdefault(language, []).extend(by_image[image_id])
            if of_image:
                image = layout.coco_image(name, place)
                yield {"image": image, "image_id": name, "captions": captions_in(of_image)}


# ---- Data sets by name ----

Corpus: TypeAlias = Dataset | IterableDataset
_WIKIMATRIX = "WikiMatrix."


def _sentence_pairs(
    name: Literal["wikimatrix", "opus"],
    *,
    files: str,
    languages: list[str] | None = None,
    min_score: float | None = None,
    shards: int = 1,
    streaming: bool = True,
    cache_dir: str | None = None,
) -> Corpus:
    """WikiMatrix's files `WikiMatrix.de-en.tsv.gz`; or OPUS's in Moses format, `de-en.txt.zip` or the texts in it."""
    found = files_matching(files) or files_matching(f"{files}.*")
    tables = [file.name for file in found if kind_of(file) in TABLES]
    if name == "wikimatrix" and not any(table.startswith(_WIKIMATRIX) for table in tables):
        raise CorpusError(f"{files}: there is no file such as {_WIKIMATRIX}de-en.tsv.gz; {_holds(files)}")
    if name == "opus" and (tables or not (is_bitext(files) or any(is_bitext(str(file)) for file in found))):
        raise CorpusError(
            f"{files}: OPUS's sentence pairs are zip files such as de-en.txt.zip, or the texts in them, without "
            f"tables among them; {_holds(files)}"
        )
    return load_bitext(
        files, languages=languages, min_score=min_score, shards=shards, streaming=streaming, cache_dir=cache_dir
    )


def _several(*, sources: list[dict[str, Any]]) -> Dataset:
    """Several sources, one after the other: `sources: [{source: multi30k, folder: …}, {source: coco, …}]`."""
    parts = []
    for given in sources:
        options = dict(given)
        part = load_published(options.pop("source", ""), **options)
        if not isinstance(part, Dataset):
            raise CorpusError(f"{given['source']}: a stream cannot be joined with other data; give streaming: false")
        parts.append(part)
    if not parts:
        raise CorpusError("sources is empty: name the data sets to join")
    columns = [column for column in parts[0].column_names if all(column in part.column_names for part in parts)]
    return concatenate_datasets([part.select_columns(columns) for part in parts])


def _holds(files: str) -> str:
    """What is found where files are looked for."""
    folder = Path(files) if Path(files).is_dir() else Path(files).parent
    return f"{folder} has {contents(folder)}"


# Name of a published data set -> its reader. Arguments without a default must be given.
PUBLISHED: dict[str, Callable[..., Corpus]] = {
    "multi30k": load_multi30k,
    "flickr30k": load_flickr30k,
    "coco": load_coco,
    "xtd": load_xtd,
    "wit": partial(load_wit, streaming=False),
    "cc3m": load_cc3m,
    "cc12m": load_cc12m,
    "cc300k": load_cc300k,
    "wikimatrix": partial(_sentence_pairs, "wikimatrix"),
    "opus": partial(_sentence_pairs, "opus"),
    "several": _several,
}


def load_published(name: str, **options: Any) -> Corpus:
    """A published data set.

    Args:
        name: a key of `PUBLISHED`.
        options: arguments of its reader.

    Examples:
        >>> corpus = load_published("multi30k", folder="multi30k", split="val", images="flickr30k-images")
    """
    if name not in PUBLISHED:
        raise CorpusError(f"there is no published data set {name!r}; there are {', '.join(PUBLISHED)}")
    reader = PUBLISHED[name]
    try:
        inspect.signature(reader).bind(**options)
    except TypeError as error:
        raise CorpusError(
            f"{name}: {error}; its options are {', '.join(inspect.signature(reader).parameters)}"
        ) from error
    return reader(**options)
