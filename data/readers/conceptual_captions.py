"""Conceptual Captions: CC3M, CC12M, and the part of CC3M with translations on which MLA was trained (CC300K)."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, Features, Image, IterableDataset, Value

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.corpus import CAPTIONS, CaptionRules, RowCount, normalize_row
from ..corpus.files import read_json, read_lines
from ..corpus.loading import cached_rows, load_captions
from . import Folder, caption_row, find_file

Tags = str | list[str] | tuple[str, ...]
Row = dict[str, Any]


def _cached(
    rows: Callable[..., Iterable[Row]], files: dict[str, Path], image_ids: Folder, images: Folder, *given: Any
) -> Dataset:
    """Returns the rows `rows(files, image_ids, images, *given)`, which stay in the cache of `datasets`."""
    read = [*files.values(), *([] if image_ids is None else [find_file(Path(image_ids).parent, Path(image_ids).name)])]
    features = Features({} if images is None else {"image": Image()}, image_id=Value("string"), captions=CAPTIONS)
    folder = None if images is None else Path(images).absolute()
    made = partial(rows, files, image_ids, folder, *given)
    return cached_rows(made, features, source=read[0], files=read)


def load_cc3m(
    folder: str | Path,
    languages: Tags = ("en", "cs", "de", "fr", "ja", "zh"),
    *,
    split: str = "train",
    images: str | Path | None = None,
    image_ids: str | Path | None = None,
) -> Dataset:
    """Loads Conceptual Captions (Sharma et al. 2018) with UC2's machine translations (Zhou et al. 2021), RC3's
    strictly aligned data (Zhou et al. 2023, section 2.1), for `triplets` and `translation_pairs`.

        train_imageId2Ann.tsv       English: image, address, caption and `success` or `fail`, between tabs
        train_imageId2Ann_de.tsv    the same lines with the caption in German; cs, fr, ja and zh likewise

    Columns: `image` (if `images` is given), `image_id` (the CRC-32 of the address, as in VOLTA's files of regions),
    `captions`. Captions that are empty or marked `fail`, and images without captions in two languages, are left out.
    Images are files named by image_id, without an ending, as VOLTA downloads them. `image_ids` is a JSON object that
    names those to keep, such as VOLTA's `caption_train.json`: those with regions (Bugliarello et al. 2022).
    """
    tags = normalize_languages(languages)
    endings = {"en": "", **{tag: f"_{tag}" for tag in tags if tag != "en"}}
    files = {tag: find_file(folder, f"{split}_imageId2Ann{ending}.tsv") for tag, ending in endings.items()}
    return _cached(_cc3m_rows, files, image_ids, images, tags)


def _cc3m_rows(files: dict[str, Path], image_ids: Folder, images: Folder, tags: list[str]) -> Iterator[Row]:
    kept = None if image_ids is None else read_json(Path(image_ids), dict).keys()
    rules, count = CaptionRules(at_least=0), RowCount(str(files["en"]))
    for lines in zip_longest(*map(read_lines, files.values())):  # which are about the same images
        texts: dict[str, str] = {}
        first: tuple[str, list[str]] | None = None  # the English line
        for (tag, file), line in zip(files.items(), lines, strict=True):
            here = f"{file} line {line[0]}" if line else f"{file}, at its end"
            cells = line[1].split("\t") if line else []
            if len(cells) != 4:
                raise CorpusError(f"{here}: expected an image, its address, a caption and success or fail, by tabs")
            place, (image, url, *_) = first = first or (here, cells)
            if cells[:2] != [image, url]:
                raise CorpusError(f"{here}: is about {cells[0]}, and that line of {files['en']} about {image}")
            texts[tag] = "" if cells[3].strip() == "fail" else _unquoted(cells[2]).strip()
        image_id = str(zlib.crc32(url.encode()))
        captions = normalize_row({tag: texts[tag] for tag in tags if texts[tag]}, rules, place)
        if len(captions) < min(2, len(tags)):
            count.leave_out("without captions in two languages")
        elif kept is not None and image_id not in kept:
            count.leave_out(f"not in {image_ids}")
        else:
            count.read += 1
            yield caption_row(images, image_id, captions, place)
    count.report()


def _unquoted(cell: str) -> str:
    """Returns a cell as it was before Python's `csv` doubled the quotes in it."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell


def load_cc12m(files: str | Path, *, streaming: bool = True, check_images: bool = True) -> Dataset | IterableDataset:
    """Loads Conceptual 12M (Changpinyo et al. 2021): images with English alt texts. Add the line `url<tab>caption`
    above `cc12m.tsv`; `img2dataset --url_list cc12m.tsv --input_format tsv --output_format webdataset --url_col url
    --caption_col caption` then writes the archives, the stream's shards. Arguments are as in `load_captions`."""
    return load_captions(files, language="en", streaming=streaming, check_images=check_images)


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

        annotation/uc2_6langs/jsons/ref_captions_en.json    {"00000012.jpg": ["a cat on a mat"], …}; likewise de, …
        cc300k.json                                         the names of the subset's images: ["00000012.jpg", …]

    Columns: `image` (if `images` is given), `image_id` (the file name), `captions`. `folder` is that of the archive,
    or of its files `ref_captions_*.json`. Users download the images themselves: one missing in `images` is an error,
    or left out with a warning. `image_ids` is a JSON list of those to keep, `cc300k.json`; by default all.
    """
    tags = normalize_languages(languages)
    files = {tag: find_file(folder, f"annotation/uc2_6langs/jsons/ref_captions_{tag}.json") for tag in tags}
    present = None  # the images that are there; the cached rows depend on them
    if images is not None and on_missing_image == "skip":
        present = frozenset(file.name for file in Path(images).glob("*"))
    return _cached(_cc300k_rows, files, image_ids, images, present)


def _cc300k_rows(
    files: dict[str, Path], image_ids: Folder, images: Folder, present: frozenset[str] | None
) -> Iterator[Row]:
    captions_of = {tag: read_json(file, dict) for tag, file in files.items()}
    first = next(iter(captions_of))
    names = list(captions_of[first]) if image_ids is None else read_json(Path(image_ids))
    count = RowCount(str(image_ids or files[first]))
    for name in names:
        if lacking := [tag for tag, captions in captions_of.items() if name not in captions]:
            raise CorpusError(f"{files[lacking[0]]}: there is no caption of {name!r}")
        if present is not None and name not in present:
            count.leave_out(f"that are not in {images}", name)
            continue
        place = f"{files[first]} {name!r}"
        texts = {tag: captions[name] for tag, captions in captions_of.items()}
        yield caption_row(images, name, normalize_row(texts, CaptionRules(at_least=len(texts)), place), place)
        count.read += 1
    count.report()
