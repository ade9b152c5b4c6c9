"""Turns ordinary datasets into caption corpora and translation corpora (`corpus`), and checks them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, IterableDataset, Value, concatenate_datasets
from datasets.utils import tqdm

from ...utils.errors import CorpusError, ImageError
from ...utils.languages import normalize_language
from .columns import ColumnNames, column_names, find_captions, in_corpus_columns
from .corpus import (
    CAPTIONS,
    FEATURES,
    IMAGE_URL,
    PLACE,
    AnyDataset,
    CaptionRules,
    RowCount,
    describe,
    enumeration,
    image_id_of,
    languages_of,
    normalize_row,
    undecoded,
)
from .images import check_image, image_source

COLUMN_ORDER = ("image", "image_id", "captions", "features", "split")

MIN_JUDGED_IMAGES = 20  # minimum to distinguish a broken source from a few bad images
_BATCH_ROWS = 256  # number of rows read together; all their encoded images are in memory while they are checked


@dataclass(frozen=True)
class SkippedImage:
    """An image that was left out of a corpus: its place in the source, its image_id, and why it cannot be used."""

    place: str
    image_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True)
class ImageRules:
    """Leaves out images that cannot be read, with a warning, instead of raising an error, and adds them to a list."""

    skip: bool = False
    skipped: list[SkippedImage] | None = None


def as_caption_corpus(
    dataset: AnyDataset,
    *,
    captions: CaptionRules | None = None,
    images: ImageRules | None = None,
    columns: ColumnNames | None = None,
    split: str | None = None,
    source: str = "",
) -> AnyDataset:
    """Turns a dataset with a column `image` (paths, bytes or images), or `features` for training without images, into
    a caption corpus: columns in order, checked captions (`normalize_captions`, `corpus.columns`), canonical languages.
    Rows without an `image_id` get a digest of their image or features.

    Args:
        images: the rules for checking every image: immediately for a `Dataset`, and on reading for a stream. By
            default, images are not checked, and a bad image causes an error when it is first read.
        split: keep rows with this value in the column `split`.
        source: the name of the dataset in messages.

    Examples:
        >>> rows = [{"image": "cat.jpg", "captions": {"en": "a cat", "de": "eine Katze"}}]
        >>> corpus = as_caption_corpus(Dataset.from_list(rows))
    """
    rules = captions or CaptionRules()
    dataset, found = in_corpus_columns(dataset, columns or ColumnNames(), rules)
    names = column_names(dataset)
    for name, feature in (("image", Image()), ("features", FEATURES)):
        if name in names and (held := dataset.features[name]) != feature:
            try:
                dataset = dataset.cast_column(name, feature)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise CorpusError(
                    f"{source} row 0: the column {name!r} is of type {held}: {error}".lstrip()
                ) from error
    if not set(_IDENTIFYING) & set(names):
        raise CorpusError(f"a caption corpus needs a column 'image'; the columns are {', '.join(names)}")
    return _Normalizer(found, rules, images, split, source, names_images=True)(dataset)


def as_translation_corpus(
    dataset: AnyDataset,
    *,
    captions: CaptionRules | None = None,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    split: str | None = None,
    source: str = "",
) -> AnyDataset:
    """Turns a dataset into a translation corpus, from a column `captions` or `translation` (`datasets.Translation`),
    or columns named by languages, which `columns` (language -> column) or the `name` of a configuration, such as
    `en-de`, may state instead. Other columns are dropped; other arguments are as in `as_caption_corpus`."""
    rules = captions or CaptionRules(at_least=2)
    found: ColumnNames = find_captions(dataset, ColumnNames(caption=columns or None), rules, name)
    kept = found.read + [each for each in (*_NAMES, "split") if each in dataset.column_names]
    return _Normalizer(found, rules, None, split, source)(dataset.select_columns(kept))


def ensure_corpus(data: Any, languages: Sequence[str] | None = None) -> Any:
    """Turns a trainer's images and texts, plain if there is one language, into a caption corpus; returns others
    unchanged."""
    if not isinstance(data, Dataset | IterableDataset) or not data.features:
        return data
    features = data.features
    has_images = "features" in features or any(isinstance(feature, Image) for feature in features.values())
    if not has_images or (features.get("captions") == CAPTIONS and "image_id" in features):
        return data
    language = normalize_language(languages[0]) if languages and len(languages) == 1 else None
    return as_caption_corpus(data, captions=CaptionRules(language=language))


_IDENTIFYING = ("image", "features", IMAGE_URL)  # columns whose digest identifies an image
_NAMES = ("image_id", "__url__", PLACE)  # columns that name a row; `__url__` is the archive of WebDataset's


@dataclass(frozen=True)
class _Normalizer:
    """Turns a dataset into a corpus: a `Dataset` as a whole, a stream batch by batch."""

    columns: ColumnNames
    captions: CaptionRules
    images: ImageRules | None
    split: str | None
    source: str
    names_images: bool = False  # whether rows without an image_id get one

    def __call__(self, dataset: AnyDataset) -> AnyDataset:
        dataset = dataset.with_format(None)
        if self.split is not None and "split" not in dataset.column_names:
            raise CorpusError(f"no split {self.split!r}: the rows have no column 'split'")
        corpus = self._corpus(dataset) if isinstance(dataset, Dataset) else self._stream(dataset)
        known = [name for name in COLUMN_ORDER if name in corpus.column_names]
        others = [name for name in corpus.column_names if name not in (*COLUMN_ORDER, *_NAMES)]
        return corpus.select_columns(known + others)

    def _count(self) -> RowCount:
        return RowCount(self.source or ("captions" if self.names_images else "translations"))

    def _corpus(self, dataset: Dataset) -> Dataset:
        if not len(dataset):
            raise CorpusError("no rows")
        names, count = dataset.column_names, self._count()
        if self.split is not None and self.split not in (splits := set(dataset["split"])):
            raise CorpusError(f"no split {self.split!r}; there are {', '.join(sorted(splits))}")
        normal, rows = self._normal(dataset, count)
        texts = dataset.select_columns([name for name in names if name in (*self.columns.read, "image_id")])
        if texts.with_format("arrow")[:].equals(normal.with_format("arrow")[:]):  # they stay on disk
            corpus = dataset
        else:
            others = dataset.remove_columns(texts.column_names)
            corpus = concatenate_datasets([others, normal], axis=1) if others.column_names else normal
        kept = languages_of(corpus.select(rows))
        if missing := [language for language in self.captions.languages or () if language not in kept]:
            every = replace(self, captions=replace(self.captions, languages=None))
            there = describe(languages_of(every._normal(dataset, RowCount("captions"))[0]))
            raise CorpusError(f"no row to keep is in {', '.join(missing)}; there are {there}")
        if self.images is not None and "image" in names:
            used = [name for name in ("image", *_NAMES) if name in corpus.column_names]
            cells, bad = corpus.select(rows).select_columns(used), list[SkippedImage | None]()
            for start, batch in _batches(cells, "Checking images"):
                bad += self._skipped(batch, self._places(batch, rows[start : start + _BATCH_ROWS]), count)
            refuse_mostly_bad([str(each) for each in bad if each], len(rows))
            rows = [row for row, skipped in zip(rows, bad, strict=True) if skipped is None]
        count.read = len(rows)
        count.report()
        if not rows:
            raise CorpusError("no row is left: all have too few texts")
        return corpus.select(rows)

    def _normal(self, dataset: Dataset, count: RowCount) -> tuple[Dataset, list[int]]:
        """Returns the image_id, if there is one or images have names, and the captions; and the rows to keep."""
        names = dataset.column_names
        read = [name for name in names if name in (*self.columns.read, *_NAMES, "split")]
        if self.names_images and "image_id" not in names:
            read.append(next(name for name in _IDENTIFYING if name in names))
        parts, rows = [], list[int]()
        for start, batch in _batches(dataset.select_columns(read), "Reading captions"):
            places = self._places(batch, range(start, min(start + _BATCH_ROWS, len(dataset))))
            texts, kept = self._texts(batch, places, count)
            parts.append(pa.table(texts, self._features(dataset).arrow_schema))
            rows += [start + index for index in kept]
        return Dataset(pa.concat_tables(parts)), rows

    def _features(self, dataset: Dataset | IterableDataset) -> Features:
        has_names = self.names_images or "image_id" in dataset.column_names
        return Features(({"image_id": Value("string")} if has_names else {}) | {"captions": CAPTIONS})

    def _places(self, batch: Mapping[str, list[Any]], rows: Sequence[int], *, named: bool = False) -> list[str]:
        if {"__url__", "image_id"} <= batch.keys():  # of an archive
            return [f"{url} {name}" for url, name in zip(batch["__url__"], batch["image_id"], strict=True)]
        places = batch.get(PLACE) or [f"{self.source} row {row}".lstrip() for row in rows]
        if not named or "image_id" not in batch:
            return places
        return [f"{place}, image_id {name!r}" for place, name in zip(places, batch["image_id"], strict=True)]

    def _texts(
        self, batch: Mapping[str, list[Any]], places: Sequence[str], count: RowCount
    ) -> tuple[dict[str, list[Any]], list[int]]:
        """Returns the image_id and the captions of every row, and the indices of the rows to keep."""
        ids = batch.get("image_id")
        if ids is None and self.names_images:
            ids = [_digest_of(cell) for cell in batch[next(name for name in _IDENTIFYING if name in batch)]]
        texts: dict[str, list[Any]] = {} if ids is None else {"image_id": list(map(image_id_of, ids, places))}
        texts["captions"] = [
            normalize_row(self.columns.of(batch, row, place), self.captions, place, count)
            for row, place in enumerate(places)
        ]
        kept = [row for row, captions in enumerate(texts["captions"]) if captions]
        if self.split is not None:
            ours = [row for row in kept if batch["split"][row] == self.split]
            count.left_out["in another split"] += len(kept) - len(ours)
            kept = ours
        return texts, kept

    def _skipped(
        self, batch: Mapping[str, list[Any]], places: Sequence[str], count: RowCount
    ) -> list[SkippedImage | None]:
        """Returns the images of a batch that cannot be read, and None for the others."""
        rules, found = self.images or ImageRules(), list[SkippedImage | None]()
        with ThreadPoolExecutor() as pool:
            problems = pool.map(_problem, batch["image"])
            for place, image_id, reason in zip(places, batch["image_id"], problems, strict=True):
                found.append(None if reason is None else SkippedImage(place, image_id, reason))
        for skipped in filter(None, found):
            if not rules.skip:
                raise CorpusError(str(skipped))
            if rules.skipped is not None:
                rules.skipped.append(skipped)
            count.leave_out("with an image that cannot be read", str(skipped))
        return found

    def _stream(self, dataset: IterableDataset) -> IterableDataset:
        others = {name: each for name, each in dataset.features.items() if name not in self.columns.read}
        options: dict[str, Any] = {"batched": True, "batch_size": _BATCH_ROWS, "with_indices": True}
        corpus = undecoded(dataset).map(self._stream_batch, remove_columns=dataset.column_names, **options)
        return corpus.cast(Features(others | self._features(dataset)))

    def _stream_batch(self, batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        # Each worker counts the rows that it reads, so an index does not identify a row of the source.
        places, count = self._places(batch, rows, named=True), self._count()
        texts, kept = self._texts(batch, places, count)
        batch = {name: cells for name, cells in batch.items() if name not in self.columns.read} | texts
        if self.images is not None and "image" in batch:
            images = {name: [batch[name][row] for row in kept] for name in ("image", "image_id")}
            bad = self._skipped(images, [places[row] for row in kept], count)
            kept = [row for row, skipped in zip(kept, bad, strict=True) if skipped is None]
        count.read = len(kept)
        count.report()
        return {name: [cells[index] for index in kept] for name, cells in batch.items()}


# ---- Images ----


def _batches(dataset: Dataset, task: str) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    starts = tqdm(range(0, len(dataset), _BATCH_ROWS), desc=task, unit=" batches", leave=False)
    return zip(starts, undecoded(dataset).iter(_BATCH_ROWS), strict=True)


def _problem(cell: Any) -> str | None:
    try:
        check_image(image_source(cell))
        return None
    except ImageError as error:
        return str(error)


def refuse_mostly_bad(reasons: Sequence[str], checked: int) -> None:
    """Refuses a source without a good image, or with twenty or more images, most of them bad: then the source itself
    is wrong, such as a disk that is not mounted. `checked` counts all images."""
    bad = len(reasons)
    if bad and (bad == checked or bad * 2 > checked >= MIN_JUDGED_IMAGES):
        raise CorpusError(
            f"{checked - bad:,} of {checked:,} images can be read, too few to leave the others out: repair the "
            f"source, or remove them from it. {enumeration(list(reasons), shown=3)}"
        )


def _digest_of(cell: Any) -> str:
    if not isinstance(cell, dict):
        content = np.asarray(cell, dtype=np.float32).tobytes()
    elif (content := cell["bytes"]) is None:
        try:
            content = Path(cell["path"] or "").read_bytes()
        except (OSError, ValueError):  # an address, or a file that the image check will report
            content = (cell["path"] or "").encode()
    return blake2b(content, digest_size=8).hexdigest()
