"""Loads captions and translations from files, folders, the Hub or memory; saves captions for the Hub."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError, DatasetsError
from datasets.fingerprint import Hasher
from datasets.table import CastError, embed_table_storage
from huggingface_hub import DatasetCard, DatasetCardData
from huggingface_hub.errors import HfHubHTTPError

from ...utils.errors import BabelensError, CorpusError, LanguageTagError, SourceUnavailableError
from ...utils.files import new_folder
from ...utils.identity import remote_state
from ...utils.languages import normalize_language, normalize_languages
from .columns import ColumnNames
from .corpus import PLACE, CaptionRules, languages_of
from .files import NO_TMX, TAR_FEATURES, TMX, files_named, kind_of, tar_rows
from .images import is_photo_folder
from .normalize import ImageRules, SkippedImage, as_caption_corpus, as_translation_corpus
from .tables import JSON_FILES, METADATA, TABLES, is_table, read_table

Source: TypeAlias = str | Path | Dataset | IterableDataset | DatasetDict | IterableDatasetDict
Languages = str | list[str] | tuple[str, ...] | None
Rows = Callable[[], Iterable[dict[str, Any]]]

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_SHARDS = 64  # shards of a stream made from a dataset: enough for the processes and workers of one machine
_VERSION = 1  # to be raised when a change of a reader makes other rows of the same files
_IMAGES_IN_FILE = 1000
_IMAGES_IN_GROUP = 100  # number of images that the Hub's viewer reads at a time
_SPLIT = re.compile(r"\w+(\.\w+)*")  # names that `datasets` accepts


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
            - a parquet file, a folder of them, or a pattern such as `data/*.parquet`;
            - tar shards in WebDataset's layout (`data.corpus.files`): a folder of them, or
              `train-{000..099}.tar`, local or a URL. The `image_id` of a sample is its name;
            - a folder written by `save_to_disk`, a data set's id on the Hub, or a `Dataset` or `IterableDataset`;
            - a CSV or TSV file with a header, JSON lines, or a JSON document such as COCO's captions, compressed or
              not; images are named relative to the file.

            The rule in `data.corpus.columns` finds columns of captions with other names than `captions`, `caption` or
            `text`: `text_pl` and `caption_pl`, and `pl` if its cells are texts in Polish.
        languages: languages to keep, by default all; images without a caption in any of them are left out.
        language: the language of plain-text captions; it is never guessed.
        image_column, caption_column, language_column: the columns of images, captions and each row's language, if the
            rule does not find them; captions also by language: `{"pl": "title", "uk": "title_ukrainian"}`.
        streaming: return an `IterableDataset`. Otherwise, tar shards are copied to the cache of `datasets`.
        check_images: open every image now (in a stream: on reading), so that errors do not come at the first use.
        on_bad_image: whether a missing, unreadable or too large image is an error, or is left out with a warning and
            added to `skipped`. It is always an error if no image can be read, or (except in a stream) fewer than half
            of twenty or more.

    Examples:
        >>> corpus = load_captions("photos", languages=["en", "de"])
    """
    if on_bad_image == "skip" and not check_images:
        raise CorpusError("on_bad_image='skip' needs check_images=True: images are left out when they are checked")
    tag = None if language is None else normalize_language(language)
    images = ImageRules(on_bad_image == "skip", skipped) if check_images else None
    columns = ColumnNames(image_column, caption_column, language_column)
    captions = CaptionRules(tag, _tags(languages))
    with _named(source):
        dataset, split, called = _opened(source, name, split, streaming, columns)
        if PLACE in (dataset.column_names or ()):  # of a table, whose images are found
            columns = replace(columns, image=None)
        return as_caption_corpus(
            dataset, captions=captions, images=images, columns=columns, split=split, source=called
        )


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
            of the same columns or `captions`. `english` and `non_english`, or `anchor` and `positive`, get their
            languages from `name` (`en-de`) or `languages`. Other columns are dropped, except `image_id`.
        languages: languages to keep, by default all; rows with fewer than two of them are left out.
        caption_column: the columns by language, `{"en": "source", "de": "target"}`, if their names do not state it.
        on_incomplete: whether a row with only one text is an error, or is left out with a warning. With three or more
            languages, a cell may be empty if two texts remain.

    Examples:
        >>> corpus = load_translations("pairs.tsv", languages=["en", "de"])
    """
    rules = CaptionRules(languages=_tags(languages), at_least=2, skip_incomplete=on_incomplete == "skip")
    if rules.languages is not None and len(rules.languages) < 2:
        raise CorpusError(f"a translation needs two languages or more, not only {rules.languages[0]!r}")
    with _named(source):
        dataset, split, called = _opened(source, name, split, streaming)
        return as_translation_corpus(
            dataset, captions=rules, columns=caption_column, name=name, split=split, source=called
        )


# ---- Sources ----


def _tags(languages: Languages) -> tuple[str, ...] | None:
    return None if languages is None else tuple(normalize_languages(languages))


def _opened(
    source: Source, name: str | None, split: str | None, streaming: bool, images: ColumnNames | None = None
) -> tuple[Dataset | IterableDataset, str | None, str]:
    """Returns the dataset of a source, the split to select by its column `split`, and its name in messages. Only
    sources of `images` may be folders with metadata, or tar shards."""
    called = ""
    if isinstance(source, str | Path):
        names = ("", *METADATA) if images else ("",)
        file = next((file for name in names if is_table(file := Path(source, name))), None)
        called = str(file or source)
        with _datasets_errors(source):
            shards = files_named(str(source), ".tar") if images and file is None else []
            if file is None and not shards:
                source, split = _read(str(source), name, split, streaming)
        if file is not None:
            source = read_table(file, images)
        elif shards and streaming:
            source = IterableDataset.from_generator(tar_rows, gen_kwargs={"shards": shards}, features=TAR_FEATURES)
        elif shards:
            states = [(shard, remote_state(shard)) for shard in shards]
            source = cached_rows(partial(tar_rows, shards), TAR_FEATURES, source=shards[0], states=states)
    if isinstance(source, DatasetDict | IterableDatasetDict):
        source, split = source[_one_of(list(source), split)], None
    if streaming and isinstance(source, Dataset):
        source = source.to_iterable_dataset(num_shards=min(max(len(source), 1), _SHARDS))
    return source, split, called


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
    if path.is_dir() and is_photo_folder(path):
        raise CorpusError(
            f"a folder of images needs a {METADATA[0]} with their captions, a line for each image, such as "
            '{"file_name": "a.jpg", "captions": {"en": ["a cat"]}}'
        )
    if not path.is_dir():
        if path.exists():
            unknown = "a file of unknown kind; supported are .parquet, .csv, .tsv, .jsonl and .json"
            raise CorpusError(NO_TMX if path.name.endswith(TMX) else unknown)
        if kind_of(path) in (*TABLES, *JSON_FILES) or not _HUB_ID.fullmatch(source):
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
    return datasets.load_dataset(source, name, split=split, streaming=streaming, **cache), None


def _one_of(splits: list[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        raise CorpusError(f"choose a split to load, as in split={splits[0]!r}; there are {', '.join(splits)}")
    return split


def cached_rows(rows: Rows, features: Features, *, source: str | Path, states: Sequence[Any]) -> Dataset:
    """Returns a dataset that `datasets` caches while the arguments and the `states` of the files are the same."""
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


# ---- Saving ----


def save_captions(corpus: Dataset, folder: str | Path) -> Path:
    """Writes a corpus into a new folder of parquet files with the images, and a card, which `huggingface_hub` can
    upload as a data set. The Hub's viewer shows the images; `load_dataset` and `load_captions` read the folder. The
    column `split` divides the corpus into files; without one, all rows are `train`.

    Examples:
        >>> save_captions(load_captions("photos"), "photos-data-set")
        >>> HfApi().upload_folder(repo_id="me/photos", repo_type="dataset", folder_path="photos-data-set")
    """
    folder = Path(folder)
    if not len(corpus):
        raise CorpusError("a corpus without rows cannot be saved")
    splits: dict[str, list[int]] = {}
    for row, name in enumerate(corpus["split"] if "split" in corpus.column_names else ["train"] * len(corpus)):
        if not _SPLIT.fullmatch(str(name)):
            raise CorpusError(f"split {name!r} of row {row}: the name of a split may only have letters, digits and _")
        splits.setdefault(name, []).append(row)
    with new_folder(folder) as unfinished:
        (unfinished / "data").mkdir()
        for split, rows in splits.items():
            starts = range(0, len(rows), _IMAGES_IN_FILE)
            for index, start in enumerate(starts):
                part = corpus.select(rows[start : start + _IMAGES_IN_FILE]).with_format("arrow")[:]
                path = unfinished / "data" / f"{split}-{index:05d}-of-{len(starts):05d}.parquet"
                pq.write_table(embed_table_storage(part), path, row_group_size=_IMAGES_IN_GROUP)
        _card(corpus, list(splits), folder.name).save(unfinished / "README.md")
    return folder


def _card(corpus: Dataset, splits: list[str], name: str) -> DatasetCard:
    languages = list(languages_of(corpus))
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in languages))
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in splits]
    metadata = DatasetCardData(
        language=codes,
        language_bcp47=languages if languages != codes else None,
        pretty_name=name,
        task_categories=["image-to-text", "text-to-image"],
        configs=[{"config_name": "default", "data_files": files}],
    )
    text = f"# {name}\n\n{len(corpus):,} images with captions in {', '.join(languages)}.\n"
    return DatasetCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}")
