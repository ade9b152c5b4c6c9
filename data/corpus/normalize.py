"""Turns ordinary datasets into caption corpora and translation corpora (`corpus`), and checks them."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, Image, IterableDataset, Value, concatenate_datasets
from datasets.utils import tqdm

from ...processing.images import check_image
from ...utils.errors import CorpusError, ImageError
from ...utils.languages import normalize_language
from .captions import CaptionRules, Place, RowCount, enumeration, normalize_row
from .columns import (
    DEFAULT_COLUMNS,
    AnyDataset,
    CaptionColumns,
    ColumnNames,
    in_corpus_columns,
    in_translation_columns,
)
from .corpus import CAPTIONS, FEATURES, IMAGE_URL, captions_of, describe, image_id_of, languages_of
from .images import image_source

logger = logging.getLogger(__name__)

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
    columns: ColumnNames = DEFAULT_COLUMNS,
    split: str | None = None,
    place: Place = "row {}".format,
) -> AnyDataset:
    """Turns a dataset with a column `image` (paths, bytes or images), or `features` for training without images, into
    a caption corpus: columns in order, checked captions (`normalize_captions`, `corpus.columns`), canonical languages.
    Rows without an `image_id` get a digest of their image or features.

    Args:
        images: the rules for checking every image: immediately for a `Dataset`, and on reading for a stream. By
            default, images are not checked, and a bad image causes an error when it is first read.
        split: keep rows with this value in the column `split`.
        place: returns the name of a row in error messages, from its index.

    Examples:
        >>> rows = [{"image": "cat.jpg", "captions": {"en": "a cat", "de": "eine Katze"}}]
        >>> corpus = as_caption_corpus(Dataset.from_list(rows))
    """
    dataset, source = in_corpus_columns(dataset, columns, None if captions is None else captions.languages)
    names = list(dataset.column_names or ())
    for name, feature in (("image", Image()), ("features", FEATURES)):
        if name in names and (held := dataset.features[name]) != feature:
            try:
                dataset = dataset.cast_column(name, feature)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise CorpusError(f"{place(0)}: the column {name!r} is of type {held}: {error}") from error
    if not {"image", "features", IMAGE_URL} & set(names):
        raise CorpusError(f"a caption corpus needs a column 'image'; the columns are {', '.join(names)}")
    return _Normalizer(source, captions or CaptionRules(), images, split, place, names_images=True)(dataset)


def as_translation_corpus(
    dataset: AnyDataset,
    *,
    captions: CaptionRules | None = None,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    split: str | None = None,
    place: Place = "row {}".format,
) -> AnyDataset:
    """Turns a dataset into a translation corpus, from a column `captions` or `translation` (`datasets.Translation`),
    or columns named by languages, which `columns` (language -> column) or the `name` of a configuration, such as
    `en-de`, may state instead. Other arguments are as in `as_caption_corpus`."""
    rules = captions or CaptionRules(at_least=2)
    dataset, source = in_translation_columns(dataset, columns, rules.languages, name)
    return _Normalizer(source, rules, None, split, place, names_images=False)(dataset)


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


@dataclass(frozen=True)
class _Normalizer:
    """Turns a dataset into a corpus: a `Dataset` as a whole, a stream batch by batch."""

    source: CaptionColumns
    captions: CaptionRules
    images: ImageRules | None
    split: str | None
    place: Place
    names_images: bool  # whether rows without an image_id get one

    def __call__(self, dataset: AnyDataset) -> AnyDataset:
        dataset = dataset.with_format(None)
        corpus = self._corpus(dataset) if isinstance(dataset, Dataset) else self._stream(dataset)
        known = [name for name in COLUMN_ORDER if name in corpus.column_names]
        return corpus.select_columns(known + [name for name in corpus.column_names if name not in COLUMN_ORDER])

    def _corpus(self, dataset: Dataset) -> Dataset:
        if not len(dataset):
            raise CorpusError("no rows")
        if self.names_images and "image_id" not in dataset.column_names:
            dataset = dataset.add_column("image_id", _digests(dataset))
        texts = dataset.select_columns(
            [name for name in dataset.column_names if name in (*self.source.read, "image_id")]
        )
        # The name of a row has the source, a word and a number.
        source = self.place(0).rpartition(" ")[0].rpartition(" ")[0]
        count = RowCount(source or ("captions" if self.names_images else "translations"))
        normal = self._mapped(texts, count)
        if not texts.with_format("arrow")[:].equals(normal.with_format("arrow")[:]):  # otherwise they stay on disk
            others = dataset.remove_columns(texts.column_names)
            dataset = concatenate_datasets([others, normal], axis=1) if others.column_names else normal
        rows: list[int] = pc.indices_nonzero(pc.list_value_length(captions_of(normal))).to_pylist()
        if self.split is not None:
            splits = list(dataset["split"]) if "split" in dataset.column_names else []
            if self.split not in splits:
                raise CorpusError(f"no split {self.split!r}; there are {', '.join(sorted(set(splits))) or 'none'}")
            of_split = [row for row in rows if splits[row] == self.split]
            count.left_out.update({"in another split": len(rows) - len(of_split)})
            rows = of_split
        corpus = dataset.select(rows)
        kept = languages_of(corpus)
        if missing := [language for language in self.captions.languages or () if language not in kept]:
            there = languages_of(replace(self, captions=replace(self.captions, languages=None))._mapped(texts))
            raise CorpusError(f"no row to keep is in {', '.join(missing)}; there are {describe(there)}")
        if self.images is not None and "image" in corpus.column_names:
            corpus = corpus.select(self._readable_rows(corpus, rows, self.images))
            count.left_out.update({"with an image that cannot be read": len(rows) - len(corpus)})
        count.read = len(corpus)
        count.report()
        if not len(corpus):
            raise CorpusError("no row is left: all have too few texts")
        return corpus

    def _mapped(self, texts: Dataset, count: RowCount | None = None) -> Dataset:
        return texts.map(
            partial(self._texts, count=count),
            batched=True,
            with_indices=True,
            remove_columns=texts.column_names,
            features=self._features(texts.features),
            keep_in_memory=True,
            load_from_cache_file=False,  # a cached result would not repeat its warnings
            desc="Reading captions",
        )

    def _texts(
        self,
        batch: dict[str, list[Any]],
        rows: Sequence[int],
        places: Sequence[str] | None = None,
        count: RowCount | None = None,
    ) -> dict[str, list[Any]]:
        """Returns captions, empty for rows to leave out, and the image_id of every row."""
        places = places or [self.place(row) for row in rows]
        counted = count or RowCount("captions")
        values = zip(self.source.of(batch), places, strict=True)
        texts: dict[str, list[Any]] = {
            "captions": [normalize_row(value, self.captions, place, counted) for value, place in values]
        }
        if count is None:
            counted.report()
        if "image_id" in batch:
            texts["image_id"] = [image_id_of(name, at) for name, at in zip(batch["image_id"], places, strict=True)]
        return texts

    def _features(self, features: Features) -> Features:
        kept = {name: feature for name, feature in features.items() if name not in self.source.read}
        names = {"image_id": Value("string")} if self.names_images or "image_id" in features else {}
        return Features(kept | {"captions": CAPTIONS} | names)

    def _readable_rows(self, corpus: Dataset, rows: Sequence[int], rules: ImageRules) -> list[int]:
        """Returns the rows of `corpus` whose image can be read; `rows` are their numbers in the source."""
        images = corpus.select_columns(["image", "image_id"]).cast_column("image", Image(decode=False))
        kept: list[int] = []
        skipped: list[SkippedImage] = []
        starts = tqdm(range(0, len(corpus), _BATCH_ROWS), desc="Checking images", unit=" batches", leave=False)
        for start, batch in zip(starts, images.iter(_BATCH_ROWS), strict=True):
            good, bad = _readable(batch, [self.place(row) for row in rows[start : start + _BATCH_ROWS]], rules)
            kept += [start + index for index in good]
            skipped += bad
        refuse_mostly_bad(list(map(str, skipped)), len(corpus))
        _warn_of_skipped(skipped)
        return kept

    def _stream(self, dataset: IterableDataset) -> IterableDataset:
        if self.split is not None and "split" not in dataset.column_names:
            raise CorpusError(f"no split {self.split!r}: there is no column 'split'")
        features = self._features(dataset.features)
        if "image" in features:
            dataset = dataset.cast_column("image", Image(decode=False))
        corpus = dataset.map(
            self._stream_batch,
            batched=True,
            batch_size=_BATCH_ROWS,
            with_indices=True,
            remove_columns=dataset.column_names,
        )
        return corpus.cast(features)

    def _stream_batch(self, batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        # Each worker counts the rows that it reads, so an index does not identify a row of the source.
        places = [self.place(row) for row in rows]
        if "image_id" in batch:
            places = [f"{place}, image_id {name!r}" for place, name in zip(places, batch["image_id"], strict=True)]
        elif self.names_images:
            batch["image_id"] = [_digest_of(cell) for cell in batch["image" if "image" in batch else "features"]]
        texts = self._texts(batch, rows, places)
        batch = {name: cells for name, cells in batch.items() if name not in self.source.read} | texts
        kept = [index for index, captions in enumerate(batch["captions"]) if captions]
        if self.split is not None:
            kept = [index for index in kept if batch["split"][index] == self.split]
        if self.images is not None and "image" in batch:
            images = {name: [batch[name][index] for index in kept] for name in ("image", "image_id")}
            good, bad = _readable(images, [places[index] for index in kept], self.images)
            kept = [kept[index] for index in good]
            _warn_of_skipped(bad)
        return {name: [cells[index] for index in kept] for name, cells in batch.items()}


# ---- Images ----


def _readable(
    batch: Mapping[str, list[Any]], places: Sequence[str], rules: ImageRules
) -> tuple[list[int], list[SkippedImage]]:
    def problem(cell: Any) -> str | None:
        try:
            check_image(image_source(cell))
            return None
        except ImageError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        problems = list(pool.map(problem, batch["image"]))
    checked = zip(places, batch["image_id"], problems, strict=True)
    skipped = [SkippedImage(place, image_id, reason) for place, image_id, reason in checked if reason is not None]
    if skipped and not rules.skip:
        raise CorpusError(str(skipped[0]))
    if rules.skipped is not None:
        rules.skipped.extend(skipped)
    return [index for index, reason in enumerate(problems) if reason is None], skipped


def _warn_of_skipped(skipped: list[SkippedImage]) -> None:
    if skipped:
        logger.warning("left out %d images: %s", len(skipped), enumeration(list(map(str, skipped))))


def refuse_mostly_bad(reasons: Sequence[str], checked: int) -> None:
    """Refuses a source without a good image, or with twenty or more images, most of them bad: then the source itself
    is wrong, such as a disk that is not mounted. `checked` counts all images."""
    bad = len(reasons)
    if bad and (bad == checked or bad * 2 > checked >= MIN_JUDGED_IMAGES):
        raise CorpusError(
            f"{checked - bad:,} of {checked:,} images can be read, too few to leave the others out: repair the "
            f"source, or remove them from it. {enumeration(list(reasons), shown=3)}"
        )


def _digests(dataset: Dataset) -> list[str]:
    name = next(name for name in ("image", "features", IMAGE_URL) if name in dataset.column_names)
    cells = dataset.select_columns(name)
    if name == "image":
        cells = cells.cast_column("image", Image(decode=False))
    return [_digest_of(cell) for batch in cells.iter(_BATCH_ROWS) for cell in batch[name]]


def _digest_of(cell: Any) -> str:
    if not isinstance(cell, dict):
        content = np.asarray(cell, dtype=np.float32).tobytes()
    elif (content := cell["bytes"]) is None:
        try:
            content = Path(cell["path"] or "").read_bytes()
        except (OSError, ValueError):  # an address, or a file that the image check will report
            content = (cell["path"] or "").encode()
    return blake2b(content, digest_size=8).hexdigest()
