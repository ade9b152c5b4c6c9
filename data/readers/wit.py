"""WIT, images of Wikipedia with captions in many languages (Srinivasan et al. 2021), as weakly aligned texts.

A row of WIT is one image on one page, and an image may be on pages in several languages. As in appendix A of RC3 (Zhou
et al. 2023), rows are joined by the address of the image: `load_wit` returns a caption corpus with all texts of an
image in one row, for `weak_pairs`. WIT need not fit into memory: its texts are sorted into parts by a hash of the
address, and joined part by part.

The images of Wikipedia are not in WIT's files. They are read from a folder, at the path of their address
(`wikipedia/commons/9/93/Name.jpg`, as `wget --force-directories --no-host-directories` stores them).
"""

import csv
import io
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import datasets
import numpy as np
from datasets import Dataset, Features, Image, IterableDataset, Value

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.identity import file_states
from ...utils.languages import normalize_language, normalize_languages
from ..corpus.caption_index import CaptionIndex
from ..corpus.captions import CaptionRules, RowCount, normalize_captions
from ..corpus.corpus import CAPTIONS
from ..corpus.images import ImageRules, SkippedImage, stays_inside
from ..corpus.normalize import as_caption_corpus
from ..corpus.parquet_files import cache_key, prepared
from ..corpus.text_files import DAMAGED, files_matching, open_plain

DEFAULT_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "wit"
COLUMNS = (
    *("language", "page_url", "image_url", "page_title", "section_title", "hierarchical_section_title"),
    *("caption_reference_description", "caption_attribution_description", "caption_alt_text_description"),
    *("mime_type", "original_height", "original_width", "is_main_image", "attribution_passes_lang_id"),
    *("page_changed_recently", "context_page_description", "context_section_description"),
)
_TEXTS = {
    "reference": "caption_reference_description",
    "page": "context_page_description",
    "section": "context_section_description",
    "alt": "caption_alt_text_description",
    "attribution": "caption_attribution_description",
}
_JOINED = Features(image_id=Value("string"), captions=CAPTIONS)
_SORTED = Features(part=Value("int32"), url=Value("string"), language=Value("string"), text=Value("string"))
_SHARDS = 64  # parts of the texts, and shards of a stream
_VERSION = 3  # to be raised when a change of this code makes other rows from the same files

# ---- Splits ----
# MURAL's authors divide WIT's training files (Jain et al. 2021, section 2.3, appendix A.3): in each language 5,000,
# 3,000 or 1,000 images for validation and as many for the test, without overlap. They did not publish their splits.
# Two choices are ours: a language has the largest of these sizes that is at most a fifth of its images, or a fifth if
# it has fewer than 5,000; and an image is in the same split in all of its languages. Images are drawn by a hash of
# their address, rare languages first.

WitSplit = Literal["train", "validation", "test"]
_SIZES = (5_000, 3_000, 1_000)
_PARTS = {"train": 0, "validation": 1, "test": 2}


def wit_split(corpus: Dataset, split: WitSplit) -> Dataset:
    """Returns the images of a split, from a corpus of all of them with `image_id` and `captions`."""
    table = corpus.select_columns(["image_id", "captions"]).with_format("arrow")[:]
    index = CaptionIndex(table)
    hashes = [blake2b(name.encode(), digest_size=8).digest() for name in table["image_id"].to_pylist()]
    drawn = np.empty(len(table), dtype=np.int64)  # row -> its place in the order in which images are drawn
    drawn[sorted(range(len(table)), key=hashes.__getitem__)] = np.arange(len(table))
    rows_of = {language: np.unique(index.rows[index.captions_in(language)]) for language in index.languages}
    part_of = np.zeros(len(table), dtype=np.int8)
    for language, rows in sorted(rows_of.items(), key=lambda item: (len(item[1]), item[0])):
        rows_of[language] = rows = rows[np.argsort(drawn[rows])]
        for part in (_PARTS["validation"], _PARTS["test"]):
            missing = _size(len(rows)) - int((part_of[rows] == part).sum())
            part_of[rows[part_of[rows] == 0][: max(0, missing)]] = part
    part = _PARTS[split]
    chosen = np.flatnonzero(part_of == part)
    if part:  # an image that is here for a rare language is not counted among those of a frequent one
        kept = {tag: {*rows[part_of[rows] == part][: _size(len(rows))].tolist()} for tag, rows in rows_of.items()}
        captions = [
            [each for each in table["captions"][row].as_py() if row in kept[each["language"]]]
            for row in chosen.tolist()
        ]
        filled = [position for position, each in enumerate(captions) if each]
        chosen, captions = chosen[filled], [captions[position] for position in filled]
    if not len(chosen):
        raise CorpusError(f"WIT's split {split} has no image: there are {len(table):,} images in all")
    found = corpus.select(chosen)
    return found.remove_columns("captions").add_column("captions", captions, feature=CAPTIONS) if part else found


def _size(images: int) -> int:
    """Returns the number of images of a language for validation, and for the test."""
    return next((size for size in _SIZES if 5 * size <= images), -(-images // 5))


# ---- Rows ----


def load_wit(
    files: str | Path,
    images: str | Path,
    languages: str | list[str] | tuple[str, ...] | None = None,
    *,
    texts: list[str] | tuple[str, ...] = ("reference", "page"),
    min_languages: int = 2,
    split: WitSplit | None = None,
    on_bad_row: Literal["error", "skip"] = "error",
    check_images: bool = True,
    on_bad_image: Literal["error", "skip"] = "error",
    skipped: list[SkippedImage] | None = None,
    streaming: bool = True,
    cache_dir: str | Path | None = None,
) -> Dataset | IterableDataset:
    """Loads a caption corpus of WIT with the columns `image`, `image_id` (the address of the image) and `captions`,
    all of its texts.

    The first call with the same files and options reads all of them, and writes the joined texts into a cache.
    Addresses that differ only in `http` and `https` are the same. Repeated texts of an image are returned once.

    Args:
        files: WIT's files `….tsv` or `….tsv.gz`: one file, a folder, or a pattern such as `wit_v1.train.all-*`.
        images: the folder of the images (see above).
        languages: languages of the texts; by default all.
        texts: which texts of a row are captions: `reference` (under the image on the page), `page` (the beginning of
            the page), `section`, `alt`, and `attribution` (the description on Wikimedia Commons, if WIT found that it
            is in the language of the page).
        min_languages: minimum number of languages of an image; other images are left out.
        split: `train`, `validation` or `test` of the images of `files`, as MURAL's authors divide WIT's training
            files (`wit_split`); without streaming. By default all.
        on_bad_row: whether a row that does not have WIT's columns, an address or a known language, or has a text
            longer than a caption can be, is an error, or is left out with a warning that counts such rows and names
            some, when the cache is written.
        check_images, on_bad_image, skipped: as for `load_captions`. A missing image is a bad image: if you have a part
            of the images only, use `on_bad_image="skip"`.
        streaming: whether to return an `IterableDataset`.
    """
    if on_bad_image == "skip" and not check_images:
        raise CorpusError("on_bad_image='skip' needs check_images=True: images are left out when they are checked")
    if split is not None and streaming:
        raise CorpusError("WIT is divided into splits by all of its images at once: give streaming=False")
    if unknown := [name for name in texts if name not in _TEXTS]:
        raise CorpusError(f"WIT has no texts called {', '.join(unknown)}; there are {', '.join(_TEXTS)}")
    tables = [file for file in files_matching(files) if file.name.endswith((".tsv", ".tsv.gz"))]
    if not tables:
        raise CorpusError(f"{files}: no such file, or none that ends in .tsv or .tsv.gz")
    wanted = None if languages is None else tuple(normalize_languages(languages))
    if not Path(images).is_dir():
        raise CorpusError(f"{images}: no such folder")
    cache = Path(cache_dir or DEFAULT_CACHE)
    read = (wanted, tuple(texts), on_bad_row == "skip")
    key = cache_key(_VERSION, read, min_languages, file_states(tables))
    rows = prepared(partial(_joined, tables, read, min_languages, cache), _JOINED, cache / key, source="WIT")
    if split is not None:
        rows = wit_split(rows, split)
    folder = Path(images).absolute()
    cells = [{"bytes": None, "path": _image_file(folder, url)} for url in rows["image_id"]]  # found at every call
    rows = rows.add_column("image", cells, feature=Image())
    rules = ImageRules(None, on_bad_image == "skip", skipped) if check_images else None
    data = rows.to_iterable_dataset(num_shards=min(_SHARDS, len(rows))) if streaming else rows
    return as_caption_corpus(data, images=rules, place="WIT row {}".format)


def _image_file(folder: Path, url: str) -> str | None:
    """Returns the file of an image by its address. A missing file causes an error when it is opened."""
    path = urlsplit(url).path.lstrip("/")
    names = [name for name in dict.fromkeys((path, unquote(path))) if stays_inside(name)]
    files = [str(folder / name) for name in names]
    return next((file for file in files if Path(file).is_file()), files[-1] if files else None)


_Rules = tuple[tuple[str, ...] | None, tuple[str, ...], bool]  # languages, kinds of texts, whether to skip bad rows


def _joined(files: list[Path], rules: _Rules, min_languages: int, cache: Path) -> Iterator[dict[str, Any]]:
    """Yields the images with texts in enough languages, each with its texts, once."""
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache) as folder:
        texts = prepared(partial(_captions, files, rules), _SORTED, Path(folder) / "sorted", source="WIT")
        parts = np.asarray(texts.with_format("arrow")[:]["part"])
        order = np.argsort(parts, kind="stable")
        for start in np.searchsorted(parts[order], np.unique(parts)):
            part = texts.select(order[start : np.searchsorted(parts[order], parts[order[start]], side="right")])
            by_url: dict[str, dict[tuple[str, str], None]] = {}
            for row in part:
                by_url.setdefault(row["url"], {})[row["language"], row["text"]] = None
            for url, own in by_url.items():
                if len({language for language, _ in own}) >= min_languages:
                    captions = [{"language": language, "text": text} for language, text in own]
                    yield {"image_id": url, "captions": captions}


def _captions(files: list[Path], rules: _Rules) -> Iterator[dict[str, Any]]:
    """Yields the captions of WIT's files, each with the part of its image."""
    count = RowCount("WIT")
    for file in files:
        for place, cells in _lines(file):
            try:
                if isinstance(cells, CorpusError):
                    raise cells
                found = list(_of_row(dict(zip(COLUMNS, cells, strict=True)), rules))
            except (CorpusError, LanguageTagError) as error:
                if not rules[2]:
                    raise type(error)(f"{place}: {error}") from error
                count.leave_out("that cannot be used", f"{place}: {error}")
                continue
            count.read += 1
            yield from found
    count.report()


def _of_row(row: dict[str, str], rules: _Rules) -> Iterator[dict[str, Any]]:
    languages, kinds, _ = rules
    language, url = normalize_language(row["language"]), _address(row["image_url"])
    if languages is not None and language not in languages:
        return
    texts = []
    for name in kinds:
        is_foreign = name == "attribution" and row["attribution_passes_lang_id"].lower() != "true"
        if not is_foreign and (text := " ".join(row[_TEXTS[name]].split())):
            texts.append(text)
    part = int.from_bytes(blake2b(url.encode(), digest_size=4).digest(), "big") % _SHARDS
    for caption in normalize_captions({language: texts}, CaptionRules(at_least=0)):
        yield {"part": part, "url": url, **caption}


def _address(url: str) -> str:
    scheme, separator, rest = url.strip().partition("://")
    if not separator or not rest or scheme not in ("http", "https"):
        raise CorpusError(f"{url!r} is not the address of an image")
    return f"https://{rest}"


def _lines(file: Path) -> Iterator[tuple[str, list[str] | CorpusError]]:
    """Yields (place, cells or an error) of WIT's lines: cells between tabs, quoted as in CSV, under a header."""
    try:
        with io.TextIOWrapper(open_plain(file), encoding="utf-8-sig", newline="") as stream:
            lines = csv.reader(stream, delimiter="\t", strict=True)
            if (header := tuple(next(lines, ()))) != COLUMNS:
                raise CorpusError(f"{file}: expected the columns {', '.join(COLUMNS)}, and found {', '.join(header)}")
            while True:
                cells: list[str] | CorpusError | None
                try:
                    cells = next(lines, None)
                except csv.Error as error:
                    cells = CorpusError(f"not a row of cells between tabs: {error}")
                if cells is None:
                    return
                if isinstance(cells, list) and len(cells) != len(COLUMNS):
                    cells = CorpusError(f"{len(cells)} cells, where the header has {len(COLUMNS)} columns")
                yield f"{file} line {lines.line_num}", cells
    except (*DAMAGED, UnicodeDecodeError) as error:
        raise CorpusError(f"{file}: {error}") from error
