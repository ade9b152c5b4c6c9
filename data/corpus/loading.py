"""Loads captions and translations from files, folders, the Hub or memory as corpora."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, IterableDataset, Value, concatenate_datasets
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError, DatasetsError
from datasets.fingerprint import Hasher
from datasets.table import CastError
from datasets.utils import tqdm
from huggingface_hub.errors import HfHubHTTPError

from ...utils.errors import BabelensError, CorpusError, ImageError, LanguageTagError, SourceUnavailableError
from ...utils.identity import file_state
from ...utils.languages import normalize_language
from .columns import ColumnNames, column_names, find_captions, in_corpus_columns
from .corpus import (
    CAPTIONS,
    FEATURES,
    IMAGE_URL,
    PLACE,
    AnyDataset,
    CaptionRules,
    Languages,
    RowCount,
    describe,
    enumeration,
    image_id_of,
    languages_of,
    normalize_row,
    tags_of,
    undecoded,
)
from .files import NO_TMX, TAR_FEATURES, TMX, files_named, kind_of, tar_rows
from .images import check_image, image_source, is_photo_folder
from .tables import METADATA, TABLES, read_table

Source: TypeAlias = str | Path | Dataset | IterableDataset | datasets.DatasetDict | datasets.IterableDatasetDict
Rows = Callable[[], Iterable[dict[str, Any]]]

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_SHARDS = 64  # shards of a stream made from a dataset: enough for the processes and workers of one machine
_VERSION = 2  # to be raised when a change of a reader makes other rows of the same files


@dataclass(frozen=True)
class SkippedImage:
    """An image that was left out of a corpus: its place in the source, its image_id, and why it cannot be used."""

    place: str
    image_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def load_captions(
    source: Source,
    *,
    languages: Languages = None,
    language: str | None = None,
    name: str | None = None,
    split: str | None = None,
    image_column: str | None = None,
    caption_column: str | dict[str, str] | None = None,
    language_column: str | None = None,
    streaming: bool = False,
    check_images: bool = True,
    on_bad_image: Literal["error", "skip"] = "error",
    skipped: list[SkippedImage] | None = None,
) -> Dataset | IterableDataset:
    """Loads a caption corpus: the columns `image`, `image_id` and `captions`, and other columns of the source.

    Args:
        source: one of

            - a folder of images with a `metadata.jsonl`, which has a line for each image:
              `{"file_name": "cat.jpg", "captions": {"en": ["a cat", "a small cat"], "de": "eine Katze"}}`, and
              optionally `image_id` (by default the file name), `split` and other columns;
            - a CSV or TSV file with a header, JSON lines, or a JSON document such as COCO's captions, compressed or
              not; images are named relative to the file;
            - a parquet file, a folder of them, or a pattern such as `data/*.parquet`;
            - tar shards in WebDataset's layout (`data.corpus.files`): a folder, a file or URL, or
              `train-{000..099}.tar`; the `image_id` of a sample is its name;
            - a folder written by `save_to_disk`, a data set's id on the Hub, or a `Dataset` or `IterableDataset` with
              a column `image` (paths, bytes or images), or `features` for training without images.

            The rule in `data.corpus.columns` finds captions. Rows without an `image_id` get a digest of their image
            or features.
        languages: languages to keep, by default all; images without a caption in any of them are left out.
        language: the language of plain-text captions; it is never guessed.
        image_column, caption_column, language_column: the columns of images, captions (also by language, as in
            `{"pl": "title"}`) and each row's language, if the rule does not find them.
        streaming: return an `IterableDataset`. Otherwise, tar shards are copied to the cache of `datasets`.
        check_images: open every image now (in a stream: on reading), so that errors do not come at the first use.
        on_bad_image: whether a missing, unreadable or too large image is an error, or is left out with a warning and
            added to `skipped`. It is always an error if no image can be read, or (except in a stream) fewer than half
            of twenty or more.

    Examples:
        >>> corpus = load_captions("photos", languages=["en", "de"])
        >>> rows = [{"image": "cat.jpg", "captions": {"en": "a cat", "de": "eine Katze"}}]
        >>> corpus = load_captions(Dataset.from_list(rows))
    """
    if on_bad_image == "skip" and not check_images:
        raise CorpusError("on_bad_image='skip' needs check_images=True: images are left out when they are checked")
    bad = ([] if skipped is None else skipped) if on_bad_image == "skip" else None
    columns = ColumnNames(image_column, caption_column, language_column)
    rules = CaptionRules(None if language is None else normalize_language(language), tags_of(languages))
    with _named(source):
        dataset, split, called = _opened(source, name, split, streaming, columns)
        if PLACE in (dataset.column_names or ()):  # of a table, whose images are found
            columns = replace(columns, image=None)
        dataset, columns = in_corpus_columns(dataset, columns, rules)
        names = column_names(dataset)
        for column, feature in (("image", Image()), ("features", FEATURES)):
            if column in names and (held := dataset.features[column]) != feature:
                try:
                    dataset = dataset.cast_column(column, feature)
                except (pa.ArrowException, TypeError, ValueError) as error:
                    raise CorpusError(
                        f"{called} row 0: the column {column!r} is of type {held}: {error}".lstrip()
                    ) from error
        if not set(_IDENTIFYING) & set(names):
            raise CorpusError(f"a caption corpus needs a column 'image'; the columns are {', '.join(names)}")
        return _Normalizer(columns, rules, _TEXTS, split, called, check_images, bad)(dataset)


def load_translations(
    source: Source,
    *,
    languages: Languages = None,
    name: str | None = None,
    split: str | None = None,
    caption_column: dict[str, str] | None = None,
    streaming: bool = False,
    on_incomplete: Literal["error", "skip"] = "error",
) -> Dataset | IterableDataset:
    """Loads a translation corpus: every row has two or more translations of each other in the column `captions`.

    Args:
        source: a CSV or TSV file with a header of language tags, or without one if its name states the languages, such
            as `TED2020-en-de-train.tsv.gz`; JSON lines such as `{"en": "a cat", "de": "eine Katze"}` or
            `{"translation": {…}}`; or, as for `load_captions`, parquet files, a saved data set, a Hub id or a dataset
            of the same columns or `captions`. Other columns are dropped, except `image_id`.
        languages: languages to keep, by default all; rows with fewer than two of them are left out.
        caption_column: the columns by language, `{"en": "source", "de": "target"}`, if their names do not state it.
        on_incomplete: whether a row with only one text is an error, or is left out with a warning. With three or more
            languages, a cell may be empty if two texts remain.

    Examples:
        >>> corpus = load_translations("pairs.tsv", languages=["en", "de"])
    """
    rules = CaptionRules(languages=tags_of(languages), at_least=2, skip_incomplete=on_incomplete == "skip")
    if rules.languages is not None and len(rules.languages) < 2:
        raise CorpusError(f"a translation needs two languages or more, not only {rules.languages[0]!r}")
    with _named(source):
        dataset, split, called = _opened(source, name, split, streaming)
        columns = find_captions(dataset, ColumnNames(caption=caption_column or None), rules)
        kept = columns.read + [each for each in (*_NAMES, "split") if each in dataset.column_names]
        texts = Features({each: feature for each, feature in _TEXTS.items() if each in ("captions", *kept)})
        return _Normalizer(columns, rules, texts, split, called)(dataset.select_columns(kept))


def ensure_corpus(data: Any, languages: Sequence[str] | None = None) -> Any:
    """Turns a trainer's images and texts, plain if there is one language, into a caption corpus; returns others
    unchanged."""
    if not isinstance(data, Dataset | IterableDataset) or not data.features:
        return data
    features = data.features
    has_images = "features" in features or any(isinstance(feature, Image) for feature in features.values())
    if not has_images or (features.get("captions") == CAPTIONS and "image_id" in features):
        return data
    language = languages[0] if languages and len(languages) == 1 else None
    return load_captions(data, language=language, check_images=False)


# ---- Sources ----


def _opened(
    source: Source, name: str | None, split: str | None, streaming: bool, images: ColumnNames | None = None
) -> tuple[Dataset | IterableDataset, str | None, str]:
    """Returns the dataset of a source, the split to select by its column `split`, and its name in messages. Only
    sources of `images` may be folders with metadata, or tar shards."""
    called = ""
    if isinstance(source, str | Path):
        names = ("", *METADATA) if images else ("",)
        file = next((file for name in names if kind_of(file := Path(source, name)) in TABLES and file.is_file()), None)
        called = str(file or source)
        with _datasets_errors(source):
            shards = files_named(str(source), ".tar") if images and file is None else []
            if file is None and not shards:
                source = _read(str(source), name, split, streaming)
        if file is not None:
            source = read_table(file, images)
        elif shards and streaming:
            source = IterableDataset.from_generator(tar_rows, gen_kwargs={"shards": shards}, features=TAR_FEATURES)
        elif shards:
            source = cached_rows(partial(tar_rows, shards), TAR_FEATURES, source=shards[0], files=shards)
    if isinstance(source, dict):
        source, split = source[_one_of(list(source), split)], None
    if streaming and isinstance(source, Dataset):
        source = source.to_iterable_dataset(num_shards=min(max(len(source), 1), _SHARDS))
    return source, split, called


def _read(source: str, name: str | None, split: str | None, streaming: bool) -> Any:
    """Returns the dataset that `datasets` loads from a path or Hub id, or a dict of its splits."""
    path = Path(source)
    if any((path / written).is_file() for written in ("state.json", "dataset_dict.json")):
        saved = datasets.load_from_disk(source)
        for part in saved.values() if isinstance(saved, dict) else [saved]:
            part.data.validate(full=True)  # Arrow trusts offsets, which may point outside its memory
        return saved
    if path.suffix == ".parquet":  # or a pattern
        return datasets.load_dataset("parquet", data_files=source, split="train", streaming=streaming)
    if path.is_dir() and is_photo_folder(path):
        raise CorpusError(
            f"a folder of images needs a {METADATA[0]} with their captions, a line for each image, such as "
            '{"file_name": "a.jpg", "captions": {"en": ["a cat"]}}'
        )
    if not path.is_dir():
        if path.exists():
            unknown = "a file of unknown kind; supported are .parquet, .csv, .tsv, .jsonl and .json"
            raise CorpusError(NO_TMX if path.name.endswith(TMX) else unknown)
        if kind_of(path) in TABLES or not _HUB_ID.fullmatch(source):
            raise FileNotFoundError
    elif path.name == source:  # `datasets` reads some names, such as `csv`, as file formats
        source = str(Path.cwd() / source)
    cache = {}
    if (path / "README.md").is_file():
        # `datasets` would identify a folder whose README.md lists its files by its name and the patterns of the list,
        # although the files, whose modification times `data_files` holds, have changed.
        files = Hasher.hash(datasets.load_dataset_builder(source, name).config.data_files)
        cache = {"cache_dir": str(Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "folders" / files)}
    split = _one_of(datasets.get_dataset_split_names(source, name, **cache), split)
    return {split: datasets.load_dataset(source, name, split=split, streaming=streaming, **cache)}


def _one_of(splits: list[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        raise CorpusError(f"choose a split to load, as in split={splits[0]!r}; there are {', '.join(splits)}")
    return split


def cached_rows(rows: Rows, features: Features, *, source: str | Path, files: Sequence[Any]) -> Dataset:
    """Returns a dataset that `datasets` caches while the arguments and the states of the files are the same."""
    states = [(str(file), file_state(file)) for file in files]
    given = {"rows": rows, "source": str(source), "states": (_VERSION, *states)}
    try:
        return Dataset.from_generator(_some_rows, features, gen_kwargs=given)
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None


def _some_rows(rows: Rows, source: str, states: Any) -> Iterator[dict[str, Any]]:
    row = None
    for row in rows():
        yield row
    if row is None:
        raise CorpusError(f"{source}: no rows, or all of them are left out")


@contextmanager
def _named(source: Source) -> Iterator[None]:
    """Adds the name of a file or folder to errors that lack it, such as those about a column."""
    try:
        yield
    except OSError as error:
        if error.errno is not None or isinstance(error, BabelensError):
            raise
        raise CorpusError(f"{source}: {error}") from error  # Arrow's, about the content of a file
    except UnicodeDecodeError as error:  # in a parquet file
        raise CorpusError(f"{source}: a text is not UTF-8: {error}") from error
    except (CorpusError, LanguageTagError) as error:
        if not isinstance(source, str | Path) or any(str(name) in str(error) for name in (source, Path(source))):
            raise
        raise type(error)(f"{source}: {error}") from error


@contextmanager
def _datasets_errors(source: str | Path) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, DatasetNotFoundError, HfHubHTTPError) as error:
        message = f"'{source}' is not a local path, and could not be loaded from the Hub: {error}"
        raise SourceUnavailableError(message) from error
    except FileNotFoundError as error:
        raise CorpusError(f"{source}: no such file or folder, or nothing to read in it") from error
    except (AttributeError, LookupError, RecursionError, TypeError) as error:  # from settings of unexpected form
        raise CorpusError(f"{source}: it cannot be read ({type(error).__name__}: {error})") from error
    except (DatasetsError, ValueError) as error:
        reason: object = error.__cause__ or error
        if isinstance(reason, CastError):
            reason = f"its files have different columns, and must be read separately: {reason.details()}"
        raise CorpusError(f"{source}: {reason}") from error


# ---- Rows ----

_COLUMN_ORDER = ("image", "image_id", "captions", "features", "split")
_TEXTS = Features({"image_id": Value("string"), "captions": CAPTIONS})
_IDENTIFYING = ("image", "features", IMAGE_URL)  # columns whose digest identifies an image
_NAMES = ("image_id", "__url__", PLACE)  # columns that name a row; `__url__` is the archive of WebDataset's
_BATCH_ROWS = 256  # number of rows read together; all their encoded images are in memory while they are checked
_MIN_JUDGED_IMAGES = 20  # minimum to distinguish a broken source from a few bad images


@dataclass(frozen=True)
class _Normalizer:
    """Turns a dataset into a corpus: a `Dataset` as a whole, a stream batch by batch."""

    columns: ColumnNames
    captions: CaptionRules
    texts: Features  # the columns that are read anew; rows without the image_id that is among them get one
    split: str | None
    source: str
    check_images: bool = False
    skipped: list[SkippedImage] | None = None  # receives the images that cannot be read; None to refuse them

    def __call__(self, dataset: AnyDataset) -> AnyDataset:
        dataset = dataset.with_format(None)
        if self.split is not None and "split" not in dataset.column_names:
            raise CorpusError(f"no split {self.split!r}: the rows have no column 'split'")
        corpus = self._corpus(dataset) if isinstance(dataset, Dataset) else self._stream(dataset)
        known = [name for name in _COLUMN_ORDER if name in corpus.column_names]
        others = [name for name in corpus.column_names if name not in (*_COLUMN_ORDER, *_NAMES)]
        return corpus.select_columns(known + others)

    def _count(self) -> RowCount:
        return RowCount(self.source or ("captions" if self.captions.at_least == 1 else "translations"))

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
        if self.check_images and "image" in names:
            used = [name for name in ("image", *_NAMES) if name in corpus.column_names]
            known, good = len(self.skipped or ()), list[bool]()
            for start, batch in _batches(corpus.select(rows).select_columns(used), "Checking images"):
                good += self._are_readable(batch, self._places(batch, rows[start : start + _BATCH_ROWS]), count)
            refuse_mostly_bad(list(map(str, (self.skipped or [])[known:])), len(rows))
            rows = list(compress(rows, good))
        count.read = len(rows)
        count.report()
        if not rows:
            raise CorpusError("no row is left: all have too few texts")
        return corpus.select(rows)

    def _normal(self, dataset: Dataset, count: RowCount) -> tuple[Dataset, list[int]]:
        """Returns the `texts` of all rows, and the rows to keep."""
        names = dataset.column_names
        read = [name for name in names if name in (*self.columns.read, *_NAMES, "split")]
        if "image_id" in self.texts and "image_id" not in names:
            read.append(next(name for name in _IDENTIFYING if name in names))
        parts, rows = [], list[int]()
        for start, batch in _batches(dataset.select_columns(read), "Reading captions"):
            places = self._places(batch, range(start, min(start + _BATCH_ROWS, len(dataset))))
            texts, kept = self._texts(batch, places, count)
            parts.append(pa.table(texts, self.texts.arrow_schema))
            rows += [start + index for index in kept]
        return Dataset(pa.concat_tables(parts)), rows

    def _places(self, batch: Mapping[str, list[Any]], rows: Sequence[int], *, named: bool = False) -> list[str]:
        if PLACE in batch:
            return batch[PLACE]
        places = [f"{self.source} row {row}".lstrip() for row in rows]
        if not named or "image_id" not in batch:
            return places
        return [f"{place}, image_id {name!r}" for place, name in zip(places, batch["image_id"], strict=True)]

    def _texts(
        self, batch: Mapping[str, list[Any]], places: Sequence[str], count: RowCount
    ) -> tuple[dict[str, list[Any]], list[int]]:
        """Returns the `texts` of every row, and the indices of the rows to keep."""
        ids = batch.get("image_id")
        if ids is None and "image_id" in self.texts:
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

    def _are_readable(self, batch: Mapping[str, list[Any]], places: Sequence[str], count: RowCount) -> list[bool]:
        """Returns which images of a batch can be read."""
        with ThreadPoolExecutor() as pool:
            problems = list(pool.map(_problem, batch["image"]))
        for place, image_id, reason in zip(places, batch["image_id"], problems, strict=True):
            if reason is not None:
                bad = SkippedImage(place, image_id, reason)
                if self.skipped is None:
                    raise CorpusError(str(bad))
                self.skipped.append(bad)
                count.leave_out("with an image that cannot be read", str(bad))
        return [reason is None for reason in problems]

    def _stream(self, dataset: IterableDataset) -> IterableDataset:
        others = {name: each for name, each in dataset.features.items() if name not in self.columns.read}
        options: dict[str, Any] = {"batched": True, "batch_size": _BATCH_ROWS, "with_indices": True}
        corpus = undecoded(dataset).map(self._stream_batch, remove_columns=dataset.column_names, **options)
        return corpus.cast(Features(others | self.texts))

    def _stream_batch(self, batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        # Each worker counts the rows that it reads, so an index does not identify a row of the source.
        places, count = self._places(batch, rows, named=True), self._count()
        texts, kept = self._texts(batch, places, count)
        batch = {name: cells for name, cells in batch.items() if name not in self.columns.read} | texts
        if self.check_images and "image" in batch:
            images = {name: [batch[name][row] for row in kept] for name in ("image", "image_id")}
            kept = list(compress(kept, self._are_readable(images, [places[row] for row in kept], count)))
        count.read = len(kept)
        count.report()
        return {name: [cells[index] for index in kept] for name, cells in batch.items()}


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
    if bad and (bad == checked or bad * 2 > checked >= _MIN_JUDGED_IMAGES):
        raise CorpusError(
            f"{checked - bad:,} of {checked:,} images can be read, too few to leave the others out: repair the "
            f"source, or remove them from it. {enumeration(list(reasons), shown=3)}"
        )


def _digest_of(cell: Any) -> str:
    if isinstance(cell, str):  # an address
        content = cell.encode()
    elif not isinstance(cell, dict):
        content = np.asarray(cell, dtype=np.float32).tobytes()
    elif (content := cell["bytes"]) is None:
        try:
            content = Path(cell["path"] or "").read_bytes()
        except (OSError, ValueError):  # an address, or a file that the image check will report
            content = (cell["path"] or "").encode()
    return blake2b(content, digest_size=8).hexdigest()
