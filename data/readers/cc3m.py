"""Conceptual Captions (Sharma et al. 2018) with UC2's machine translations (Zhou et al. 2021), RC3's strictly aligned
data (Zhou et al. 2023, section 2.1): images with captions in English, Czech, German, French, Japanese and Chinese.

    train_imageId2Ann.tsv       English: the image's name, its address, the caption and whether it could be had
                                (`success` or `fail`), between tabs
    train_imageId2Ann_de.tsv    the same lines with the caption in German; cs, fr, ja and zh likewise
    caption_train.json          {image_id: English caption} of the images that have regions, from VOLTA, which IGLUE
                                pre-trains with (Bugliarello et al. 2022)

The lines are as UC2's `utils/ms_internal_mt.py` reads and writes them. VOLTA names an image by the CRC-32 of its
address, in `caption_train.json` and in its files of regions (`training_feat_all.lmdb`), and so does `image_id` here.
"""

import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features, Image, Value

from ...configuration.errors import CorpusError
from ...configuration.identity import file_states
from ...configuration.languages import normalize_languages
from ..corpus.captions import CaptionRules, normalize_captions
from ..corpus.corpus import CAPTIONS
from ..corpus.prepared import cache_key, prepared
from ..corpus.text_files import parse_object, read_lines
from .task_files import image_path

DEFAULT_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "cc3m"
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
        cache_dir: the folder of the cache; by default `DEFAULT_CACHE`.

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
    return prepared(rows, features, Path(cache_dir or DEFAULT_CACHE) / key, source=folder)


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
