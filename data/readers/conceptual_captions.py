"""Conceptual Captions: CC3M, CC12M, and the part of CC3M with translations on which MLA was trained (CC300K)."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, Features, IterableDataset

from ...utils.errors import CorpusError
from ...utils.identity import file_states
from ...utils.languages import normalize_languages
from ..corpus.captions import CaptionRules, RowCount, enumeration, normalize_captions, normalize_row
from ..corpus.loading import load_captions
from ..corpus.parquet_files import cached_rows
from ..corpus.text_files import parse_file, read_json, read_lines
from . import CORPUS, image_path, warn_of

Tags = str | list[str] | tuple[str, ...]
Row = dict[str, Any]


def _row(images: str | Path | None, name: str, captions: Any, place: str) -> Row:
    image = {} if images is None else {"image": {"bytes": None, "path": image_path(images, name, place)}}
    return image | {"image_id": name, "captions": captions}


def _cached(rows: Callable[..., Iterable[Row]], files: list[Path], images: str | Path | None, *given: Any) -> Dataset:
    """Returns the rows `rows(images, *given)` that are made of some files; they stay in the cache of `datasets`."""
    if missing := [file for file in files if not file.is_file()]:
        raise CorpusError(f"there is no file {', '.join(map(str, missing))}")
    features = Features({name: each for name, each in CORPUS.items() if name != "image" or images is not None})
    folder = None if images is None else Path(images).absolute()
    return cached_rows(partial(rows, folder, *given), features, source=files[0], states=file_states(files))


# ---- CC3M ----


def load_cc3m(
    folder: str | Path,
    languages: Tags = ("en", "cs", "de", "fr", "ja", "zh"),
    *,
    split: str = "train",
    images: str | Path | None = None,
    image_ids: str | Path | None = None,
) -> Dataset:
    """Loads Conceptual Captions (Sharma et al. 2018) with UC2's machine translations (Zhou et al. 2021), RC3's
    strictly aligned data (Zhou et al. 2023, section 2.1), as a caption corpus for `triplets` and `translation_pairs`.

        train_imageId2Ann.tsv       English: the image's name, its address, the caption and whether it could be
                                    downloaded (`success` or `fail`), between tabs
        train_imageId2Ann_de.tsv    the same lines with the caption in German; cs, fr, ja and zh likewise
        caption_train.json          {image_id: English caption} of the images that have regions, from VOLTA, which
                                    IGLUE pre-trains with (Bugliarello et al. 2022)

    Columns: `image` (if `images` is given), `image_id` (the CRC-32 of the address, as in VOLTA's files of regions),
    `captions`. Captions that are empty or marked `fail` are left out, and so are images without captions in two
    languages.

    Args:
        folder: the folder of UC2's files.
        languages: languages of the captions; English must be among the files in any case.
        split: the split, as in the names of the files.
        images: the folder of the images, named by their image_id without an ending, as VOLTA downloads them.
        image_ids: a JSON object whose names are the images to keep, such as `caption_train.json`: those with regions.

    Examples:
        >>> corpus = load_cc3m("cc3m", ["en", "de"], image_ids="cc3m/caption_train.json")
    """
    tags = normalize_languages(languages if isinstance(languages, str) else list(languages))
    english = Path(folder) / f"{split}_imageId2Ann.tsv"
    files = {tag: english if tag == "en" else english.with_name(f"{english.stem}_{tag}.tsv") for tag in ("en", *tags)}
    read = [*files.values(), *([] if image_ids is None else [Path(image_ids)])]
    return _cached(_cc3m_rows, read, images, files, tags, image_ids)


def _cc3m_rows(
    images: Path | None, files: dict[str, Path], tags: list[str], image_ids: str | Path | None
) -> Iterator[Row]:
    kept = None if image_ids is None else parse_file(image_ids).keys()
    rules, count = CaptionRules(at_least=0), RowCount(str(files["en"]))
    for place, url, texts in _cc3m_lines(files):
        image_id = str(zlib.crc32(url.encode()))
        captions = normalize_captions({tag: texts[tag] for tag in tags if texts[tag]}, rules)
        if len(captions) < min(2, len(tags)):
            count.leave_out("without captions in two languages")
        elif kept is not None and image_id not in kept:
            count.leave_out(f"not in {image_ids}")
        else:
            count.read += 1
            yield _row(images, image_id, captions, place)
    count.report()


def _cc3m_lines(files: dict[str, Path]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yields (place, address, language -> caption or "") of the lines, which are the same images in all files."""
    lines = {tag: read_lines(file) for tag, file in files.items()}
    while any((read := {tag: next(stream, None) for tag, stream in lines.items()}).values()):
        texts: dict[str, str] = {}
        first: list[str] = []
        for tag, line in read.items():
            place = f"{files[tag]} line {line[0]}" if line else f"{files[tag]}, at its end"
            cells = line[1].split("\t") if line else []
            if len(cells) != 4:
                raise CorpusError(f"{place}: expected an image, its address, a caption and success or fail, by tabs")
            first = first or cells
            if cells[:2] != first[:2]:
                raise CorpusError(f"{place}: is about {cells[0]}, and that line of {files['en']} about {first[0]}")
            texts[tag] = "" if cells[3].strip() == "fail" else _unquoted(cells[2]).strip()
        yield f"{files['en']} line {read['en'][0] if read['en'] else 0}", first[1], texts


def _unquoted(cell: str) -> str:
    """Returns a cell as it was before Python's `csv` doubled the quotes in it."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell


# ---- CC12M ----


def load_cc12m(files: str | Path, *, streaming: bool = True, check_images: bool = True) -> Dataset | IterableDataset:
    """Loads Conceptual 12M (Changpinyo et al. 2021): images with English alt texts, as img2dataset downloads them
    from the addresses in `cc12m.tsv`. `img2dataset --url_list cc12m.tsv --input_format tsv --output_format webdataset
    --url_col url --caption_col caption` writes the archives, once the line `url<tab>caption` is added above the file.

    Args:
        files: the archives, which are the shards: a folder, `cc12m/*.tar` or `cc12m/{00000..01242}.tar`, also URLs.
        streaming: whether to read the archives during use. Otherwise, they are copied to the cache of `datasets`.
        check_images: as in `load_captions`.
    """
    return load_captions(files, language="en", streaming=streaming, check_images=check_images)


# ---- CC300K ----

_FILE = "ref_captions_{}.json"
_FOLDER = "annotation/uc2_6langs/jsons"


def load_cc300k(
    folder: str | Path,
    languages: Tags = ("en", "de", "fr", "cs", "zh", "ja"),
    *,
    images: str | Path | None = None,
    image_ids: str | Path | None = None,
    on_missing_image: Literal["error", "skip"] = "error",
) -> Dataset:
    """Loads CC300K (Zhang et al. 2022, MLA, section 4.1): 300,000 images of Conceptual Captions with UC2's
    translations, as MLA's authors publish them. CC69L has the same form.

        annotation/uc2_6langs/jsons/ref_captions_en.json    {"00000012.jpg": ["a cat on a mat"], …}; likewise de, fr,
                                                            cs, zh and ja; they have all of Conceptual Captions
        cc300k.json                                         the names of the subset's images: ["00000012.jpg", …]
        images/00000012.jpg                                 the images, which users download themselves

    Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`.

    Args:
        folder: the folder of the archive above, or that of its files `ref_captions_*.json`.
        languages: languages of the captions.
        images: the folder of the images; by default, captions only.
        image_ids: a JSON list of the images to keep, `cc300k.json`; by default all.
        on_missing_image: whether an image that is not in the folder is an error, or is left out with a warning that
            counts and names such images.

    Examples:
        >>> corpus = load_cc300k("cc300k", ["en", "de"], images="cc300k/images", image_ids="cc300k/cc300k.json")
    """
    files = {}
    for tag in normalize_languages(languages if isinstance(languages, str) else list(languages)):
        places = [Path(folder) / within / _FILE.format(tag) for within in (_FOLDER, "")]
        files[tag] = next((file for file in places if file.is_file()), places[-1])
    read = [*files.values(), *([] if image_ids is None else [Path(image_ids)])]
    if images is not None and not Path(images).is_dir():
        raise CorpusError(f"{images}: there is no such folder of images")
    skip = images is not None and on_missing_image == "skip"
    present = frozenset(file.name for file in Path(images or "").iterdir()) if skip else None
    return _cached(_cc300k_rows, read, images, files, image_ids, present)


def _cc300k_rows(
    images: Path | None, files: dict[str, Path], image_ids: str | Path | None, present: frozenset[str] | None
) -> Iterator[Row]:
    captions_of = {tag: parse_file(file) for tag, file in files.items()}
    first = next(iter(captions_of))
    names = list(captions_of[first]) if image_ids is None else read_json(Path(image_ids))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorpusError(f"{image_ids}: expected a list of the images' names")
    absent = [] if present is None else [name for name in names if name not in present]
    if absent and len(absent) == len(names):
        raise CorpusError(f"{images}: none of the {len(names):,} images is there, such as {enumeration(absent, 3)}")
    for name in names:
        if lacking := [tag for tag, captions in captions_of.items() if name not in captions]:
            raise CorpusError(f"{files[lacking[0]]}: there is no caption of {name!r}")
        if present is None or name in present:
            place = f"{files[first]} {name!r}"
            texts = {tag: captions[name] for tag, captions in captions_of.items()}
            captions = normalize_row(texts, CaptionRules(at_least=len(texts)), place)
            yield _row(images, name, captions, place)
    warn_of(f"left out images that are not in {images}", absent)
