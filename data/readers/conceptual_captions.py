"""Conceptual Captions: CC3M, CC12M, and the part of CC3M with translations on which MLA was trained (CC300K)."""

import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import datasets
from datasets import Dataset, Features, Image, IterableDataset, Value

from ...utils.errors import BadImageError, BadTextError, CorpusError
from ...utils.identity import file_states
from ...utils.languages import normalize_languages
from ..corpus.captions import CaptionRules, enumeration, normalize_captions, normalize_rows
from ..corpus.corpus import CAPTIONS
from ..corpus.loading import load_captions
from ..corpus.parquet_files import cache_key, prepared
from ..corpus.tar_shards import IMAGES, tar_samples, tar_shards
from ..corpus.text_files import files_matching, parse_object, read_json, read_lines
from .task_files import image_path, warn_of

# ---- CC3M ----
# Conceptual Captions (Sharma et al. 2018) with UC2's machine translations (Zhou et al. 2021), RC3's strictly
# aligned data (Zhou et al. 2023, section 2.1): images with captions in English, Czech, German, French, Japanese
# and Chinese.
#
#     train_imageId2Ann.tsv       English: the image's name, its address, the caption and whether it could be had
#                                 (`success` or `fail`), between tabs
#     train_imageId2Ann_de.tsv    the same lines with the caption in German; cs, fr, ja and zh likewise
#     caption_train.json          {image_id: English caption} of the images that have regions, from VOLTA, which IGLUE
#                                 pre-trains with (Bugliarello et al. 2022)
#
# The lines are as UC2's `utils/ms_internal_mt.py` reads and writes them. VOLTA names an image by the CRC-32 of its
# address, in `caption_train.json` and in its files of regions (`training_feat_all.lmdb`), and so does `image_id`
# here.

CC3M_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "cc3m"
_VERSION = 1  # to be raised when a change of this code makes other rows of the same files
_CELLS = 4
_FAILED = "fail"


def load_cc3m(
    folder: str | Path,
    languages: str | list[str] | tuple[str, ...] = ("en", "cs", "de", "fr", "ja", "zh"),
    *,
    split: str = "train",
    images: str | Path | None = None,
    image_ids: str | Path | None = None,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """A caption corpus with a caption in each language for each image, for `triplets` and `translation_pairs`.

    Columns: `image` (if `images` is given), `image_id` (see above), `captions`. A caption that the files mark as
    `fail`, or that is empty, is left out, and an image without a caption in two languages. The first call with the
    same files reads all of them and writes the rows to a cache.

    Args:
        folder: the folder of UC2's files.
        languages: languages of the captions; English must be among the files in any case.
        split: the split, as in the names of the files.
        images: the folder of the images, named by their image_id without an ending, as VOLTA downloads them.
        image_ids: a JSON object whose names are the images to keep, such as `caption_train.json`: those with regions.
        cache_dir: the folder of the cache; by default `CC3M_CACHE`.

    Raises:
        CorpusError: for files that are missing or do not have the same lines, and for a line that has not four cells;
            the message names the file and the line.
        BadTextError: for a caption that is too long.
        BadImageError: for an image that is not in the folder.

    Examples:
        >>> corpus = load_cc3m("cc3m", ["en", "de"], image_ids="cc3m/caption_train.json")
    """
    tags = normalize_languages([languages] if isinstance(languages, str) else list(languages))
    english = Path(folder) / f"{split}_imageId2Ann.tsv"
    files = {tag: english if tag == "en" else english.with_name(f"{english.stem}_{tag}.tsv") for tag in ("en", *tags)}
    read = [*files.values(), *([] if image_ids is None else [Path(image_ids)])]
    if missing := [file for file in read if not file.is_file()]:
        raise CorpusError(f"there is no file {', '.join(map(str, missing))}")
    kept = None if image_ids is None else parse_object(Path(image_ids).read_text("utf-8")).keys()
    columns: dict[str, Any] = {"image": Image()} if images is not None else {}
    features = Features(columns | {"image_id": Value("string"), "captions": CAPTIONS})
    where = None if images is None else str(Path(images).absolute())
    key = cache_key(_VERSION, tags, where, file_states(read))
    rows = partial(_rows, files, tags, kept, images)
    return prepared(rows, features, Path(cache_dir or CC3M_CACHE) / key, source=folder)


def _rows(files: dict[str, Path], tags: list[str], kept: Any, images: str | Path | None) -> Iterator[dict[str, Any]]:
    rules = CaptionRules(at_least=0)
    found = False
    for place, url, texts in _lines(files):
        image_id = str(zlib.crc32(url.encode()))
        captions = normalize_captions({tag: texts[tag] for tag in tags if texts[tag]}, rules)
        if len(captions) < min(2, len(tags)) or (kept is not None and image_id not in kept):
            continue
        image = {} if images is None else {"image": {"bytes": None, "path": image_path(images, image_id, place)}}
        found = True
        yield image | {"image_id": image_id, "captions": captions}
    if not found:
        raise CorpusError(f"{files['en']}: no image has captions in {', '.join(tags)}, or none of image_ids is there")


def _lines(files: dict[str, Path]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(place, address, language -> caption or "") of the lines, which are the same images in all files."""
    lines = {tag: read_lines(file) for tag, file in files.items()}
    while True:
        read = {tag: next(stream, None) for tag, stream in lines.items()}
        if read["en"] is None and not any(read.values()):
            return
        texts: dict[str, str] = {}
        first: list[str] = []
        for tag, line in read.items():
            place = f"{files[tag]} line {line[0]}" if line else f"{files[tag]}, at its end"
            cells = line[1].split("\t") if line else []
            if len(cells) != _CELLS:
                raise CorpusError(f"{place}: expected an image, its address, a caption and success or fail, by tabs")
            first = first or cells
            if cells[:2] != first[:2]:
                raise CorpusError(f"{place}: is about {cells[0]}, and that line of {files['en']} about {first[0]}")
            texts[tag] = "" if cells[3].strip() == _FAILED else _unquoted(cells[2]).strip()
        yield f"{files['en']} line {read['en'][0] if read['en'] else 0}", first[1], texts


def _unquoted(cell: str) -> str:
    """A cell as it was before Python's `csv` wrote it, with quotes doubled inside of quotes."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell


# ---- Conceptual 12M (Changpinyo et al. 2021): images with English alt texts ----
#
#     cc12m.tsv        as it is published: the address of an image and its caption, between tabs, without a header
#     00000.tar, …     the images, as img2dataset fetches them by the addresses of that file: of each image its bytes
#                      and
#                      a JSON object with its `url` and `caption`
#
# `img2dataset --url_list cc12m.tsv --input_format tsv --output_format webdataset --url_col url --caption_col
# caption` writes the archives, once the line `url<tab>caption` stands above the file. Archives are read as a
# stream; every one is a shard.

CC12M_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "cc12m"
_HEADER = "url\tcaption"
_TEXTS = Features(image_id=Value("string"), captions=CAPTIONS)


def load_cc12m(
    files: str | Path, *, streaming: bool = True, check_images: bool = True, cache_dir: str | Path | None = None
) -> Dataset | IterableDataset:
    """A caption corpus in English.

    Columns: `image` (from archives), `image_id` (the name of the sample in its archive; of the table, the address),
    `captions`.

    Args:
        files: archives (a folder, `cc12m/*.tar` or `cc12m/{00000..01242}.tar`, also URLs), or `cc12m.tsv`, which has
            captions without images.
        streaming: whether to return an `IterableDataset`. Archives are streams only; the captions of the table can be
            written to a cache.
        check_images: as in `load_captions`.
        cache_dir: the folder of the cache; by default `CC12M_CACHE`.

    Raises:
        CorpusError: for files of another form; the message names the file and what was found in it.
    """
    source = str(files)
    if not source.endswith(".tsv"):
        return _archives(source, streaming, check_images)
    tables = files_matching(source)
    if not tables:
        raise CorpusError(f"{source}: there is no such file")
    for table in tables:
        next(_cc12m_lines([str(table)]))
    names = [str(table) for table in tables]
    if streaming:
        return IterableDataset.from_generator(_texts, gen_kwargs={"tables": names}, features=_TEXTS)
    folder = Path(cache_dir or CC12M_CACHE) / cache_key(_VERSION, file_states(tables))
    return prepared(partial(_texts, names), _TEXTS, folder, source=source)


def _archives(source: str, streaming: bool, check_images: bool) -> IterableDataset:
    try:
        shards = tar_shards(source)
    except FileNotFoundError:
        shards = []
    if not shards:
        raise CorpusError(f"{source}: there is no archive, such as 00000.tar, nor cc12m.tsv")
    name, fields = next(tar_samples(shards[0]), ("", {}))
    try:
        record = parse_object(fields.get("json", b"{}").decode())
    except (CorpusError, UnicodeDecodeError):
        record = {}
    if not {"url", "caption"} <= record.keys() or not {*IMAGES} & fields.keys():
        found = [f".{ending}" for ending in fields] + [f"the keys {', '.join(record)}"] * bool(record)
        raise CorpusError(
            f"{shards[0]} {name}: expected an image and a .json with its url and caption, as img2dataset writes them, "
            f"and found {' and '.join(found) or 'nothing'}"
        )
    if not streaming:
        raise CorpusError(f"{source}: archives are read as a stream: leave streaming out")
    loaded = load_captions(source, language="en", streaming=True, check_images=check_images)
    return cast(IterableDataset, loaded)


def _texts(tables: list[str]) -> Iterator[dict[str, Any]]:
    rules = CaptionRules(language="en")
    for place, url, caption in _cc12m_lines(tables):
        [captions] = normalize_rows([caption], rules, [place].__getitem__)
        yield {"image_id": url, "captions": captions}


def _cc12m_lines(tables: list[str]) -> Iterator[tuple[str, str, str]]:
    """(place, address, caption) of the lines."""
    for table in tables:
        for line, text in read_lines(Path(table)):
            place = f"{table} line {line}"
            if line == 1 and text == _HEADER:
                continue
            url, tab, caption = text.partition("\t")
            if not tab or "://" not in url:
                raise CorpusError(f"{place}: expected an address and a caption between tabs, and found {text!r:.60}")
            if not caption.strip():
                raise BadTextError(f"{place}: the caption is empty")
            yield place, url, caption.strip()


# ---- CC300K ----
# CC300K (Zhang et al. 2022, MLA, section 4.1): 300,000 images of Conceptual Captions with UC2's translations, as
# MLA's authors publish them. Their archive of annotations, beside the images that one fetches oneself, is.
#
#     annotation/uc2_6langs/jsons/ref_captions_en.json    {"00000012.jpg": ["a cat on a mat"], …}; likewise de, fr, cs,
#                                                         zh and ja
#     cc300k.json                                         the names of the subset's images: ["00000012.jpg", …]
#     images/00000012.jpg                                 the images
#
# The files `ref_captions_*.json` have the captions of all of Conceptual Captions; CC69L has the same form.

CC300K_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "cc300k"
_FILE = "ref_captions_{}.json"
_FOLDERS = ("annotation/uc2_6langs/jsons", "")


def load_cc300k(
    folder: str | Path,
    languages: str | list[str] | tuple[str, ...] = ("en", "de", "fr", "cs", "zh", "ja"),
    *,
    images: str | Path | None = None,
    image_ids: str | Path | None = None,
    on_missing_image: Literal["error", "skip"] = "error",
    cache_dir: str | Path | None = None,
) -> Dataset:
    """A caption corpus with the captions of an image in each language, also for `translation_pairs`.

    Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`. The first call with
    the same files reads all of them and writes the rows to a cache.

    Args:
        folder: the folder of the archive above, or that of its files `ref_captions_*.json`.
        languages: languages of the captions.
        images: the folder of the images; without it there are captions alone.
        image_ids: a JSON list of the images to keep, `cc300k.json`; by default all.
        on_missing_image: what to do with an image that is not in the folder: raise an error, or leave it out with a
            warning that counts and names such images. Not all images of Conceptual Captions can still be fetched.
        cache_dir: the folder of the cache; by default `CC300K_CACHE`.

    Raises:
        CorpusError: for files that are missing or of another form; the message names the file and the image.
        BadTextError: for an empty or over-long caption.
        BadImageError: for an image that is not in the folder.

    Examples:
        >>> corpus = load_cc300k("cc300k", ["en", "de"], images="cc300k/images", image_ids="cc300k/cc300k.json")
    """
    tags = normalize_languages([languages] if isinstance(languages, str) else list(languages))
    files = {tag: _found(Path(folder), _FILE.format(tag)) for tag in tags}
    read = [*files.values(), *([] if image_ids is None else [Path(image_ids)])]
    if missing := [file for file in read if not file.is_file()]:
        raise CorpusError(f"there is no file {', '.join(map(str, missing))}")
    columns: dict[str, Any] = {"image": Image()} if images is not None else {}
    features = Features(columns | {"image_id": Value("string"), "captions": CAPTIONS})
    skip = on_missing_image == "skip"
    where = None if images is None else str(Path(images).absolute())
    present = _names_in(images) if images is not None and skip else None
    key = cache_key(_VERSION, tags, where, file_states(read), present and sorted(present))
    rows = partial(_cc300k_rows, files, image_ids, images, present)
    return prepared(rows, features, Path(cache_dir or CC300K_CACHE) / key, source=folder)


def _found(folder: Path, name: str) -> Path:
    for within in _FOLDERS:
        if (folder / within / name).is_file():
            return folder / within / name
    raise CorpusError(f"{folder}: there is no {name}, here or in {_FOLDERS[0]}")


def _names_in(images: str | Path) -> set[str]:
    if not Path(images).is_dir():
        raise CorpusError(f"{images}: there is no such folder of images")
    return {file.name for file in Path(images).iterdir()}


def _cc300k_rows(
    files: dict[str, Path], image_ids: str | Path | None, images: str | Path | None, present: set[str] | None
) -> Iterator[dict[str, Any]]:
    captions_of = {tag: _captions(file) for tag, file in files.items()}
    first = next(iter(captions_of))
    names = _names(Path(image_ids)) if image_ids is not None else list(captions_of[first])
    absent = []
    for name in names:
        place = f"{files[first]} {name!r}"
        if lacking := [tag for tag, captions in captions_of.items() if name not in captions]:
            raise CorpusError(f"{files[lacking[0]]}: there is no caption of {name!r}")
        if present is not None and name not in present:
            absent.append(name)
            continue
        texts = {tag: captions[name] for tag, captions in captions_of.items()}
        try:
            row: dict[str, Any] = {
                "image_id": name,
                "captions": normalize_captions(texts, CaptionRules(at_least=len(texts))),
            }
        except CorpusError as error:
            raise type(error)(f"{place}: {error}") from None
        if images is not None:
            row["image"] = {"bytes": None, "path": image_path(images, name, place)}
        yield row
    if absent and len(absent) == len(names):
        raise BadImageError(f"{images}: none of the {len(names):,} images is there, such as {enumeration(absent, 3)}")
    warn_of(f"left out images that are not in {images}", absent)


def _captions(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict) or not all(isinstance(texts, list) for texts in content.values()):
        raise CorpusError(f"{file}: expected an object that gives every image a list of captions")
    return content


def _names(file: Path) -> list[str]:
    content = read_json(file)
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise CorpusError(f"{file}: expected a list of the images' names")
    return content
