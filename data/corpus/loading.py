"""Loads images with captions, and translations, from files, folders, the Hub or memory.

    load_captions      a folder of images with a metadata.jsonl, parquet files, tar shards, a saved dataset, a Hub
                       id, a dataset
    load_translations  a TSV with a header of language tags, JSON lines {"en": …, "de": …}, and all of the above

The result is a caption corpus or a translation corpus (`corpus`). Unusable data raise an error that names the file and
the line; if the caller chooses skipping, they are left out, and a warning counts and names them.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from datasets.exceptions import DatasetNotFoundError, DatasetsError
from datasets.fingerprint import Hasher
from huggingface_hub.errors import HfHubHTTPError

from ...utils.errors import BabelensError, CorpusError, LanguageTagError, SourceUnavailableError
from ...utils.identity import remote_state
from ...utils.languages import normalize_language, normalize_languages
from .captions import CaptionRules, Place
from .columns import ColumnNames
from .folders import is_photo_folder
from .normalize import ImageRules, SkippedImage, as_caption_corpus, as_translation_corpus
from .parquet_files import cached_rows
from .tables import JSON_FILES, METADATA, TABLES, is_table, read_table
from .tar_shards import FEATURES as TAR_FEATURES, files_named, tar_rows
from .text_files import NO_TMX, TMX, kind_of

Source: TypeAlias = str | Path | Dataset | IterableDataset | DatasetDict | IterableDatasetDict
Languages = str | list[str] | tuple[str, ...] | None
Rows = Iterator[dict[str, Any]]

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_FILES = (*TABLES, *JSON_FILES)
_SHARDS = 64  # shards of a stream made from a dataset: enough for the processes and workers of one machine


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
              optionally `image_id` (by default the file name), `split` and other columns. File names are relative and
              without `..`. Links in the folder are followed;
            - a parquet file, or a pattern such as `data/*.parquet`;
            - tar shards in WebDataset's layout (`data.corpus.tar_shards`): a folder of them, or
              `train-{000..099}.tar`, local or a URL. The `image_id` of a sample is its name;
            - a folder written by `save_to_disk`, or a folder of parquet files;
            - the id of a data set on the Hugging Face Hub;
            - a CSV or TSV file with a header, JSON lines, or a JSON document such as COCO's captions, compressed or
              not; images are named relative to the file;
            - a `datasets.Dataset` or `IterableDataset`.

            Columns of captions with other names than `captions`, `caption` or `text` are found by the rule in
            `data.corpus.columns`: `text_pl` and `caption_pl`, and `pl` if its cells are texts in Polish.
        languages: languages of the captions to keep; images without a caption in any of them are left out. By
            default all.
        language: the language of plain-text captions; it is never guessed.
        name: the configuration of a Hub data set.
        split: the split to load, if the source has several.
        image_column: the column of images, if it is not called `image`.
        caption_column: the column of captions, if it is not called `captions`, `caption` or `text`; or several, by
            language: `{"pl": "title", "uk": "title_ukrainian"}`.
        language_column: the column with the language of each row's captions.
        streaming: whether to return an `IterableDataset`, which is read during use. Otherwise, tar shards are copied
            to the cache of `datasets`.
        check_images: whether to open every image now (in a stream: on reading). Otherwise, a bad image causes an error
            when it is first used.
        on_bad_image: whether a missing, unreadable or too large image is an error, or is left out with a warning that
            counts and names such images and is added to `skipped`. It is always an error if no image can be read, or
            fewer than half of twenty or more (not checked for a stream).

    Examples:
        >>> corpus = load_captions("photos", languages=["en", "de"])
    """
    if on_bad_image == "skip" and not check_images:
        raise CorpusError("on_bad_image='skip' needs check_images=True: images are left out when they are checked")
    tag = None if language is None else normalize_language(language)
    captions = CaptionRules(tag, _tags(languages))
    images = ImageRules(on_bad_image == "skip", skipped)
    columns = ColumnNames(image_column, caption_column, language_column)
    with _named(source):
        if isinstance(source, str | Path) and (file := _caption_file(Path(source))):
            dataset, place = read_table(file, columns)
            dataset, columns = _streamed(dataset) if streaming else dataset, replace(columns, image=None)
        elif isinstance(source, str | Path) and (shards := _tar_shards(source)):
            rows = partial(tar_rows, rules=replace(captions, languages=None))
            dataset, place = _of_tar(rows, shards, streaming), partial("{} row {}".format, source)
        else:
            dataset, split, place = _opened(source, name, split, streaming)
        rules = images if check_images else None
        return as_caption_corpus(dataset, captions=captions, images=rules, columns=columns, split=split, place=place)


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
            `{"translation": {…}}`; or, as for `load_captions`, parquet files, a saved data set, a Hub id or a dataset,
            with a `datasets.Translation`, a column for each language, or `captions`. Other columns are dropped, except
            `image_id`. Also the parallel columns of sentence-transformers, `english` and `non_english` or `anchor` and
            `positive`: `name` states their languages (`en-de`), or `languages` in this order.
        languages: languages of the texts to keep; rows with fewer than two of them are left out. By default all.
        caption_column: the columns of texts by language, `{"en": "source", "de": "target"}`, if their names do not
            state it; others are ignored.
        name, split, streaming: as for `load_captions`.
        on_incomplete: whether a row with only one text is an error, or is left out with a warning that counts and
            names such rows. With three or more languages, a cell may be empty if two texts remain.

    Examples:
        >>> corpus = load_translations("pairs.tsv", languages=["en", "de"])
    """
    rules = CaptionRules(languages=_tags(languages), at_least=2, skip_incomplete=on_incomplete == "skip")
    if rules.languages is not None and len(rules.languages) < 2:
        raise CorpusError(f"a translation needs two languages or more, not only {rules.languages[0]!r}")
    with _named(source):
        if isinstance(source, str | Path) and is_table(source):
            dataset, place = read_table(Path(source))
            dataset = _streamed(dataset) if streaming else dataset
        else:
            dataset, split, place = _opened(source, name, split, streaming)
        return as_translation_corpus(
            dataset, captions=rules, columns=caption_column, name=name, split=split, place=place
        )


def _caption_file(source: Path) -> Path | None:
    """Returns the table or the JSON file of a source, or the metadata.jsonl or metadata.csv of a folder."""
    if is_table(source):
        return source
    return next((file for name in METADATA if (file := source / name).is_file()), None)


def _tags(languages: Languages) -> tuple[str, ...] | None:
    return None if languages is None else tuple(normalize_languages(languages))


def _opened(
    source: Source, name: str | None, split: str | None, streaming: bool
) -> tuple[Dataset | IterableDataset, str | None, Place]:
    """Returns the dataset of a source, the split to select by its column `split`, and the names of rows."""
    place: Place = "row {}".format
    if isinstance(source, str | Path):
        place = partial("{} row {}".format, source)
        with _datasets_errors(source):
            source, split = _read(str(source), name, split, streaming)
    if isinstance(source, DatasetDict | IterableDatasetDict):
        source, split = source[_one_of(list(source), split)], None
    if streaming and isinstance(source, Dataset):
        source = _streamed(source)
    return source, split, place


def _streamed(dataset: Dataset) -> IterableDataset:
    return dataset.to_iterable_dataset(num_shards=min(max(len(dataset), 1), _SHARDS))


def _tar_shards(source: str | Path) -> list[str]:
    with _datasets_errors(source):
        return files_named(str(source), ".tar")


def _of_tar(rows: Callable[..., Rows], shards: list[str], streaming: bool) -> Dataset | IterableDataset:
    if streaming:
        return IterableDataset.from_generator(rows, gen_kwargs={"shards": shards}, features=TAR_FEATURES)
    states = [(shard, remote_state(shard)) for shard in shards]
    return cached_rows(partial(rows, shards), TAR_FEATURES, source=shards[0], states=states)


def _read(
    source: str, name: str | None, split: str | None, streaming: bool
) -> tuple[Dataset | IterableDataset | DatasetDict, str | None]:
    """Returns the dataset that `datasets` loads from a path or Hub id, and the split yet to be selected."""
    path = Path(source)
    if any((path / written).is_file() for written in ("state.json", "dataset_dict.json")):
        saved = datasets.load_from_disk(source)
        for part in saved.values() if isinstance(saved, dict) else [saved]:
            part.data.validate(full=True)  # Arrow trusts offsets, which may point outside its memory
        return saved, split
    if path.suffix == ".parquet":  # or a pattern
        return datasets.load_dataset("parquet", data_files=source, split="train", streaming=streaming), split
    if path.exists() and not path.is_dir():
        if path.name.endswith(TMX):
            raise CorpusError(NO_TMX)
        raise CorpusError("a file of unknown kind; supported are .parquet, .csv, .tsv, .jsonl and .json")
    if not path.is_dir() and (kind_of(path) in _FILES or not _HUB_ID.fullmatch(source)):
        raise FileNotFoundError
    if path.is_dir() and is_photo_folder(path):
        raise CorpusError(
            f"a folder of images needs a {METADATA[0]} with their captions, a line for each image, such as "
            '{"file_name": "a.jpg", "captions": {"en": ["a cat"]}}'
        )
    if path.is_dir() and path.name == source:  # `datasets` reads some names, such as `csv`, as file formats
        source = str(Path.cwd() / source)
    cache = {"cache_dir": _cache_of(source, name)} if (path / "README.md").is_file() else {}
    split = _one_of(datasets.get_dataset_split_names(source, name, **cache), split)
    return datasets.load_dataset(source, name, split=split, streaming=streaming, **cache), None


def _cache_of(folder: str, name: str | None) -> str:
    """Returns the cache of a folder's data set whose README.md lists its files. `datasets` would identify it by the
    name of the folder and the patterns of the list, although its files have changed."""
    files = datasets.load_dataset_builder(folder, name).config.data_files  # with their modification times
    return str(Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "folders" / Hasher.hash(files))


def _one_of(splits: list[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        raise CorpusError(f"choose a split to load, as in split={splits[0]!r}; there are {', '.join(splits)}")
    return split


@contextmanager
def _named(source: Source) -> Iterator[None]:
    """Adds the name of a file or folder to errors that lack it, such as those about a column."""
    try:
        yield
    except OSError as error:
        if error.errno is not None or isinstance(error, BabelensError):
            raise
        raise CorpusError(f"{source}: {error}") from error  # Arrow's, about the content of a file
    except (CorpusError, LanguageTagError) as error:
        if not isinstance(source, str | Path) or any(str(name) in str(error) for name in (source, Path(source))):
            raise
        raise type(error)(f"{source}: {error}") from error


@contextmanager
def _datasets_errors(source: str | Path) -> Iterator[None]:
    """Turns errors of `datasets` and the Hub into errors of babelens that name the source."""
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
        raise CorpusError(f"{source}: {error.__cause__ or error}") from error
