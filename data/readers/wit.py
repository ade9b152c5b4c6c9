"""WIT, images of Wikipedia with captions in many languages (Srinivasan et al. 2021), as weakly aligned texts.

A row of WIT is one image on one page, and an image may be on pages in several languages. As in appendix A of RC3 (Zhou
et al. 2023), rows are joined by the address of the image: `load_wit` returns a caption corpus with all texts of an
image in one row, for `weak_pairs`. The files are sorted once (`wit_index`); a stream then reads one part after the
other, and every part is a shard. Without streaming, the rows are written to the disk once more, and read from there.

The images of Wikipedia are not in WIT's files. They are read from one of

    a folder       at the path of their address: `wikipedia/commons/9/93/Name.jpg`, as
                   `wget --force-directories --no-host-directories` keeps them
    tar files      with members of such names
    pixel data     Wikimedia's files `…_image_pixels_part-00000.csv.gz`: address, image in base64, page, by tabs
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import datasets
import numpy as np
import pyarrow.parquet as pq
from datasets import Dataset, Features, Image, IterableDataset, Value

from ...utils.errors import CorpusError
from ...utils.identity import file_states
from ...utils.languages import normalize_languages
from ..corpus.caption_index import CaptionIndex
from ..corpus.corpus import CAPTIONS, as_caption_corpus
from ..corpus.images import ImageRules, SkippedImage, stays_inside
from ..corpus.parquet_files import cache_key, parquet_file, prepared
from ..corpus.tar_shards import tar_members, tar_shards
from ..corpus.text_files import files_matching
from .wit_index import PIXEL_FILES, TEXT_FILES, WitRules, index_pixels, index_texts

# ---- Splits ----
# Splits of WIT's training files into images for training, validation and test, as MURAL's authors made theirs (Jain
# et al. 2021, section 2.3, appendix A.3): in each language 5,000, 3,000 or 1,000 images for validation and as many
# for the test, and no image in two of them. Their own splits were not published. Two things are ours: a language has
# the largest of these sizes that is a fifth of its images at most, and a fifth where it has fewer than 5,000; and an
# image is in the same split in all of its languages. Images are drawn by a hash of their address, rare languages
# first.

WitSplit = Literal["train", "validation", "test"]
_SIZES = (5_000, 3_000, 1_000)
_PARTS = {"train": 0, "validation": 1, "test": 2}


def wit_split(corpus: Dataset, split: WitSplit) -> Dataset:
    """The images of a split, from a corpus of all of them with `image_id` and `captions`.

    Raises:
        CorpusError: for a split without images.
    """
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
    """The images of a language for validation, and for the test."""
    return next((size for size in _SIZES if 5 * size <= images), -(-images // 5))


# ---- Rows ----

DEFAULT_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "wit"
FEATURES = Features(image=Image(), image_id=Value("string"), captions=CAPTIONS)

Part: TypeAlias = tuple[Path, Path | None]  # texts, and pixel data of the same images

_IMAGES = 64  # number of images of the pixel data that are read together


def load_wit(
    source: str | Path,
    images: str | Path,
    languages: str | list[str] | tuple[str, ...] | None = None,
    *,
    texts: tuple[str, ...] = ("reference", "page"),
    min_languages: int = 2,
    split: WitSplit | None = None,
    on_bad_row: Literal["error", "skip"] = "error",
    check_images: bool = True,
    on_bad_image: Literal["error", "skip"] = "error",
    skipped: list[SkippedImage] | None = None,
    streaming: bool = True,
    cache_dir: str | Path | None = None,
) -> Dataset | IterableDataset:
    """A caption corpus of WIT with the columns `image`, `image_id` (the address of the image) and `captions`, all of
    its texts.

    The first call with the same files and options reads all of `source`, and sorts it into a cache of about the size
    of the selected texts; the same is done with pixel data. Addresses that differ only in `http` and `https` are the
    same. If an image has a text twice in a language, it is returned once.

    Args:
        source: WIT's files `….tsv` or `….tsv.gz`: one file, a folder, or a pattern such as `wit_v1.train.all-*`.
        images: the images: a folder, `….tar` or pixel data `….csv.gz`, also as a pattern (see above).
        languages: languages of the texts; by default all.
        texts: which texts of a row are captions: `reference` (under the image on the page), `page` (the beginning of
            the page), `section`, `alt`, and `attribution` (the description on Wikimedia Commons, if WIT found that it
            is in the language of the page).
        min_languages: minimum number of languages of an image; other images are left out.
        split: `train`, `validation` or `test` of the images of `source`, which share none, as MURAL's authors divide
            WIT's training files (`wit_split`); without streaming. By default all.
        on_bad_row: what to do with a row that does not have WIT's columns, has no address or no known language, or has
            a text longer than a caption can be: raise an error, or leave it out with a warning that counts and names
            it, at this and every later call.
        check_images, on_bad_image, skipped: as for `load_captions`. A missing image is a bad image: if you have a part
            of the images only, use `on_bad_image="skip"`.
        streaming: whether to return an `IterableDataset`. A `Dataset`, which RC3 is trained on, is written to the
            cache by the first call with the same files and options; images in tar files and pixel data are copied.
        cache_dir: the folder of the cache; by default `DEFAULT_CACHE`.

    Raises:
        ValueError: for an unknown kind of text.
        CorpusError: for files that are missing or cut off, a split of a stream, and a bad row, with the file and the
            line.
        LanguageTagError: for an unknown language; in a row, with the file and the line.
    """
    if on_bad_image == "skip" and not check_images:
        raise ValueError("on_bad_image='skip' needs check_images=True: images are left out when they are checked")
    if split is not None and streaming:
        raise CorpusError("WIT is divided into splits by all of its images at once: give streaming=False")
    wanted = None if languages is None else tuple(normalize_languages(languages))
    rules = WitRules(wanted, tuple(texts), on_bad_row == "skip")
    cache = Path(cache_dir or DEFAULT_CACHE)
    pixel_files = _files(images, PIXEL_FILES) if str(images).endswith(PIXEL_FILES) else []
    source_images = AddressedImages(None) if pixel_files else addressed_images(images)
    parts = index_texts(_files(source, TEXT_FILES), rules, cache)
    pixels = index_pixels(pixel_files, rules.skip_bad_rows, cache) if pixel_files else [None] * len(parts)
    kwargs: dict[str, Any] = {
        "parts": list(zip(parts, pixels, strict=True)),
        "images": source_images,
        "min_languages": min_languages,
    }
    rows: Dataset | IterableDataset
    if streaming:
        rows = IterableDataset.from_generator(_rows, gen_kwargs=kwargs, features=FEATURES)
    else:
        rows = _prepared(**kwargs, cache=cache)
        if split is not None:
            rows = wit_split(rows, split)
    rules_of_images = ImageRules(None, on_bad_image == "skip", skipped) if check_images else None
    return as_caption_corpus(rows, images=rules_of_images, place="WIT row {}".format)


@dataclass(frozen=True)
class AddressedImages:
    """The images of Wikipedia by their addresses, in a folder or as members of tar files."""

    folder: Path | None
    members: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # name -> file, offset, size

    def __getitem__(self, url: str) -> dict[str, Any] | None:
        """A cell of the column `image`. A missing file causes an error when it is opened."""
        path = urlsplit(url).path.lstrip("/")
        names = [name for name in dict.fromkeys((path, unquote(path))) if stays_inside(name)]
        if self.folder is not None and names:
            files = [self.folder / name for name in names]
            return {"bytes": None, "path": str(next((file for file in files if file.is_file()), files[-1]))}
        for name in names:
            if name in self.members:
                file, offset, size = self.members[name]
                with open(file, "rb") as tar:
                    tar.seek(offset)
                    return {"bytes": tar.read(size), "path": None}
        return None


def _prepared(parts: list[Part], images: AddressedImages, min_languages: int, cache: Path) -> Dataset:
    """The rows as a dataset on the disk. Images in a folder stay there, and are looked for at every call."""
    archives = sorted({Path(archive) for archive, _, _ in images.members.values()})
    names = [[str(file) for file in part] for part in parts]
    folder = cache / f"rows-{cache_key(names, images.members, file_states(archives), min_languages)}"
    rows_of_parts = partial(_rows, parts, images, min_languages)
    if images.folder is None:
        return prepared(rows_of_parts, FEATURES, folder, source="WIT")
    columns = ["image_id", "captions"]

    def texts() -> Iterator[dict[str, Any]]:
        return ({name: row[name] for name in columns} for row in rows_of_parts())

    rows = prepared(texts, Features({name: FEATURES[name] for name in columns}), folder, source="WIT")
    return rows.add_column("image", [images[url] for url in rows["image_id"]], feature=Image())


def addressed_images(images: str | Path) -> AddressedImages:
    """The images of a folder or of tar files, whose names are the paths of their addresses.

    Raises:
        CorpusError: if there is no such folder or file.
    """
    try:
        shards = tar_shards(str(images)) if str(images).endswith(".tar") else []
        if not shards and not Path(images).is_dir():
            raise FileNotFoundError
    except FileNotFoundError as error:
        raise CorpusError(f"{images}: no such folder, tar file or pixel data") from error
    return AddressedImages(None, tar_members(shards)) if shards else AddressedImages(Path(images).absolute())


def _files(source: str | Path, endings: tuple[str, ...]) -> list[Path]:
    """The files with certain endings that a path, a folder or a pattern names."""
    files = [file for file in files_matching(source) if file.name.endswith(endings)]
    if not files:
        raise CorpusError(f"{source}: no such file, or none that ends in {' or '.join(endings)}")
    return files


def _rows(parts: list[Part], images: AddressedImages, min_languages: int) -> Iterator[dict[str, Any]]:
    for texts, pixels in parts:
        captions_of = _captions(texts, min_languages)
        for url, image in _pixels(pixels) if pixels else ():
            if captions := captions_of.pop(url, None):
                yield {"image": {"bytes": image, "path": None}, "image_id": url, "captions": captions}
        for url, captions in captions_of.items():
            yield {"image": images[url], "image_id": url, "captions": captions}


def _captions(part: Path, min_languages: int) -> dict[str, list[dict[str, str]]]:
    """Address -> captions, each once, of the images with texts in enough languages."""
    by_url: dict[str, dict[tuple[str, str], None]] = {}
    for row in pq.read_table(part).to_pylist():
        by_url.setdefault(row["url"], {})[row["language"], row["text"]] = None
    return {
        url: [{"language": language, "text": text} for language, text in texts]
        for url, texts in by_url.items()
        if len({language for language, _ in texts}) >= min_languages
    }


def _pixels(part: Path) -> Iterator[tuple[str, bytes]]:
    for batch in parquet_file(part).iter_batches(_IMAGES):
        yield from zip(batch["url"].to_pylist(), batch["image"].to_pylist(), strict=True)
