"""Loading what people bring: captioned pictures and translations, from files, folders, the Hub or memory.

    load_captions      a folder of pictures with a metadata.jsonl, parquet files, tar shards, a saved dataset, a Hub
                       id, a dataset
    load_translations  a TSV with a header of language tags, JSON lines {"en": …, "de": …}, and all of the above

What was read is a caption corpus or a translation corpus (`corpus`). What cannot be used is refused with the file and
the line, or left out with a warning that counts and names it, where skipping was asked for.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict, Value, concatenate_datasets
from datasets.exceptions import DatasetNotFoundError, DatasetsError
from huggingface_hub.errors import HfHubHTTPError

from ..configuration.languages import LanguageTagError, normalize_language, normalize_languages
from .captions import CaptionRules, Place, canonical, normalize_rows
from .corpus import CAPTIONS, ImageRules, SkippedImage, as_caption_corpus, as_translation_corpus, captions_column
from .errors import CorpusError, SourceUnavailableError
from .tar_shards import tar_shards, tar_stream
from .text_files import read_json_lines, read_lines

Source: TypeAlias = str | Path | Dataset | IterableDataset | DatasetDict | IterableDatasetDict
Languages = str | list[str] | tuple[str, ...] | None

METADATA = "metadata.jsonl"
TRANSLATION_FILES = (".tsv", ".jsonl")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_SHARDS = 64  # of a stream that is made of a dataset: enough for the processes and workers of one machine
_PART = 10_000  # rows of a translation file that are held as Python objects


def load_captions(
    source: Source,
    *,
    languages: Languages = None,
    language: str | None = None,
    name: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    check_images: bool = True,
    on_bad_image: Literal["error", "skip"] = "error",
    skipped: list[SkippedImage] | None = None,
    max_image_pixels: int | None = None,
    max_caption_characters: int = 10_000,
) -> Dataset | IterableDataset:
    """A caption corpus: the columns `image`, `image_id` and `captions`, and what else the source has.

    Args:
        source: one of

            - a folder of pictures with a `metadata.jsonl`, a line for each picture:
              `{"file_name": "cat.jpg", "captions": {"en": ["a cat", "a small cat"], "de": "eine Katze"}}`, with
              `image_id` (by default the file name), `split` and other columns if wanted;
            - a parquet file, or a pattern such as `data/*.parquet`;
            - tar shards in WebDataset's layout (`data.tar_shards`), as a stream: a folder of them, or
              `train-{000..099}.tar`, local or a URL. A sample's `image_id` is its name;
            - a folder written by `save_to_disk`, or a folder of parquet files;
            - the id of a data set on the Hugging Face Hub;
            - a `datasets.Dataset` or `IterableDataset`. For other column names, bring one:
              `load_captions(load_dataset(…).rename_columns({"img_id": "image_id"}), language="en")`.
        languages: keep captions in these languages, and pictures that have one. By default all.
        language: of captions that come as plain text (`caption`, `text` or `captions`); never guessed.
        name: the configuration of a Hub data set.
        split: the split to load, where the source has several.
        streaming: read the corpus in passing instead of preparing it on disk; an `IterableDataset`. Row numbers in
            errors then count what the process or the data loader's worker has read.
        check_images: open every picture now (in a stream: in passing). Without it, a bad picture is an error where it
            is first used.
        on_bad_image: what to do about a picture that is missing, truncated, unreadable or too large: raise an
            error, or leave it out with a warning that counts and names what was left out.
        skipped: a list that receives what was left out.
        max_image_pixels: larger pictures are bad; by default (and never above) `PIL.Image.MAX_IMAGE_PIXELS`.
        max_caption_characters: longer captions are an error.

    Raises:
        CorpusError: for a source that cannot be used, and with the row `BadImageError` for a picture and
            `BadTextError` for a caption.
        LanguageTagError: for an unknown language, with the row.
        SourceUnavailableError: for a data set that the Hub does not give.
    """
    if on_bad_image == "skip" and not check_images:
        raise CorpusError("on_bad_image='skip' needs check_images=True: pictures are left out when they are checked")
    captions = CaptionRules(
        language=None if language is None else normalize_language(language),
        languages=_tags(languages),
        max_characters=max_caption_characters,
    )
    images = ImageRules(max_image_pixels, on_bad_image == "skip", skipped)
    if isinstance(source, str | Path) and (Path(source) / METADATA).is_file():
        dataset, place = _picture_folder(Path(source), captions)
        dataset = _streamed(dataset) if streaming else dataset
    elif isinstance(source, str | Path) and (shards := _tar_shards(source, streaming)):
        dataset, place = tar_stream(shards, replace(captions, languages=None)), partial("{} row {}".format, source)
    else:
        dataset, split, place = _opened(source, name, split, streaming)
    return as_caption_corpus(
        dataset, captions=captions, images=images if check_images else None, split=split, place=place
    )


def load_translations(
    source: Source,
    *,
    languages: Languages = None,
    name: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    on_incomplete: Literal["error", "skip"] = "error",
    max_caption_characters: int = 10_000,
) -> Dataset | IterableDataset:
    """A translation corpus: the column `captions`, in every row two or more texts that say the same, and no pictures.

    Args:
        source: a `.tsv` file with a header of language tags; a `.jsonl` file with a line such as
            `{"en": "a cat", "de": "eine Katze"}` for each row; or, as for `load_captions`, parquet files, a saved data
            set, a Hub id or a dataset, with a `datasets.Translation`, a column for each language, or `captions`. An
            `image_id` is kept where there is one.
        languages: keep texts in these languages, and rows that have two of them. By default all.
        name, split, streaming: as for `load_captions`.
        on_incomplete: what to do about a row with a single text: raise an error, or leave it out with a warning that
            counts and names what was left out. With three or more languages a cell may be empty as long as two texts
            remain.
        max_caption_characters: longer texts are an error.

    Raises:
        CorpusError: for a source that cannot be used, with the file, the line and the column.
        LanguageTagError: for an unknown language, with the line.
        SourceUnavailableError: for a data set that the Hub does not give.
    """
    rules = CaptionRules(
        languages=_tags(languages),
        max_characters=max_caption_characters,
        at_least=2,
        skip_incomplete=on_incomplete == "skip",
    )
    if rules.languages is not None and len(rules.languages) < 2:
        raise CorpusError(f"a translation needs two languages or more, not {rules.languages[0]!r} alone")
    if isinstance(source, str | Path) and Path(source).suffix in TRANSLATION_FILES:
        if split is not None:
            raise CorpusError(f"{source} is one file, without splits: split={split!r} cannot be chosen from it")
        return as_translation_corpus(_translation_file(Path(source), rules, streaming), captions=rules)
    dataset, split, place = _opened(source, name, split, streaming)
    return as_translation_corpus(dataset, captions=rules, split=split, place=place)


def _tags(languages: Languages) -> tuple[str, ...] | None:
    return None if languages is None else tuple(normalize_languages(languages))


# ------------------------------------------------------------------------------------- what `datasets` can load


def _opened(
    source: Source, name: str | None, split: str | None, streaming: bool
) -> tuple[Dataset | IterableDataset, str | None, Place]:
    """The dataset a source holds, the split that its column `split` must still select, and what errors call a row."""
    place: Place = "row {}".format
    if isinstance(source, str | Path):
        place = partial("{} row {}".format, source)
        with _errors_naming(source):
            source, split = _read(str(source), name, split, streaming)
    if isinstance(source, DatasetDict | IterableDatasetDict):
        source, split = source[_one_of(list(source), split)], None
    if streaming and isinstance(source, Dataset):
        source = _streamed(source)
    return source, split, place


def _streamed(dataset: Dataset) -> IterableDataset:
    return dataset.to_iterable_dataset(num_shards=min(max(len(dataset), 1), _SHARDS))


def _tar_shards(source: str | Path, streaming: bool) -> list[str]:
    with _errors_naming(source):
        shards = tar_shards(str(source))
    if shards and not streaming:
        raise CorpusError(f"{source}: tar shards are read in passing: load them with streaming=True")
    return shards


def _read(
    source: str, name: str | None, split: str | None, streaming: bool
) -> tuple[Dataset | IterableDataset | DatasetDict, str | None]:
    """What `datasets` makes of a path or Hub id, and the split that is still to be selected."""
    path = Path(source)
    if any((path / written).is_file() for written in ("state.json", "dataset_dict.json")):
        return datasets.load_from_disk(source), split
    if path.suffix == ".parquet":  # a pattern, too
        return datasets.load_dataset("parquet", data_files=source, split="train", streaming=streaming), split
    if path.is_file():
        raise CorpusError("a file of unknown kind; known are .parquet, and for translations .tsv and .jsonl")
    if not path.is_dir() and (path.suffix in TRANSLATION_FILES or not _HUB_ID.fullmatch(source)):
        raise FileNotFoundError
    split = _one_of(datasets.get_dataset_split_names(source, name), split)
    return datasets.load_dataset(source, name, split=split, streaming=streaming), None


def _one_of(splits: list[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        raise CorpusError(f"say which split to load, as in split={splits[0]!r}; there are {', '.join(splits)}")
    return split


@contextmanager
def _errors_naming(source: str | Path) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, DatasetNotFoundError, HfHubHTTPError) as error:
        message = f"'{source}' is no file or folder here, and the Hugging Face Hub did not give it: {error}"
        raise SourceUnavailableError(message) from error
    except FileNotFoundError as error:
        raise CorpusError(f"{source}: no such file or folder, or nothing to read in it") from error
    except (DatasetsError, ValueError) as error:
        raise CorpusError(f"{source}: {error.__cause__ or error}") from error


# ------------------------------------------------------------------------------------- files that people write


def _picture_folder(folder: Path, rules: CaptionRules) -> tuple[Dataset, Place]:
    """The pictures that the metadata.jsonl of a folder names, with normal captions, and what errors call a row."""
    file = folder / METADATA
    numbered = list(read_json_lines(file))
    if not numbered:
        raise CorpusError(f"{file}: there are no rows")
    records = [record for _, record in numbered]
    place = partial(_line_of, file, [line for line, _ in numbered])
    for row, record in enumerate(records):
        if not isinstance(record.get("file_name"), str):
            raise CorpusError(f"{place(row)}: no file_name")
    names = list(dict.fromkeys(name for record in records for name in record))
    column = captions_column(names)
    columns = {name: [record.get(name) for record in records] for name in names if name not in ("file_name", column)}
    columns["image"] = [str(folder.absolute() / record["file_name"]) for record in records]
    columns["image_id"] = [str(record.get("image_id", record["file_name"])) for record in records]
    every_language = replace(rules, languages=None)
    columns["captions"] = list(normalize_rows((record.get(column) for record in records), every_language, place))
    try:
        return Dataset.from_dict(columns), place
    except pa.ArrowException as error:
        raise CorpusError(f"{file}: values of several types under one name: {error}") from error


def _translation_file(file: Path, rules: CaptionRules, streaming: bool) -> Dataset | IterableDataset:
    """The rows of a translation file, their texts normal."""
    if not file.is_file():
        raise CorpusError(f"{file}: no such file")
    first = next(_records(file), None)
    if first is None:
        raise CorpusError(f"{file}: there are no rows")
    features = Features(captions=CAPTIONS)
    if with_ids := "image_id" in first[1]:
        features["image_id"] = Value("string")
    read = partial(_translations, file, replace(rules, languages=None), with_ids)
    if streaming:
        return IterableDataset.from_generator(read, features=features)
    rows, parts = read(), []
    while part := list(islice(rows, _PART)):  # compact in Arrow before more lines are read
        parts.append(Dataset.from_list(part, features=features))
    if not parts:
        raise CorpusError(f"{file}: no row has two texts")
    return concatenate_datasets(parts)


def _translations(file: Path, rules: CaptionRules, with_ids: bool) -> Iterator[dict[str, Any]]:
    """The rows of a translation corpus."""
    lines: list[int] = []
    image_ids: list[Any] = []

    def texts() -> Iterator[dict[str, Any]]:
        for line, record in _records(file):
            lines.append(line)
            image_ids.append(record.pop("image_id", None))
            yield record

    place = partial(_line_of, file, lines)
    for row, captions in enumerate(normalize_rows(texts(), rules, place)):
        if with_ids and image_ids[row] is None:
            raise CorpusError(f"{place(row)}: no image_id")
        if captions:
            yield {"captions": captions} | ({"image_id": str(image_ids[row])} if with_ids else {})


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {language: text, or None for an empty one}) of a translation file."""
    for line, record in _tsv_records(file) if file.suffix == ".tsv" else read_json_lines(file):
        yield line, {name: None if text in ("", []) else text for name, text in record.items()}


def _tsv_records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {column: cell}) of a tab-separated file with a header. Cells are not quoted."""
    lines = read_lines(file)
    header = next(lines, (1, "en"))[1].split("\t")
    _check_header(header, f"{file} line 1")
    for line, text in lines:
        cells = text.split("\t")
        if len(cells) < len(header):
            missing = header[len(cells)]
            raise CorpusError(
                f"{file} line {line}: {len(cells)} of {len(header)} cells; column {missing!r} is missing"
            )
        if len(cells) > len(header):
            raise CorpusError(f"{file} line {line}: {len(cells)} cells, where the header has {len(header)} columns")
        yield line, dict(zip(header, cells, strict=True))


def _check_header(header: list[str], place: str) -> None:
    """Every column is called by its language, or `image_id`."""
    spellings: dict[str, str] = {}
    for number, name in enumerate(header, 1):
        try:
            language = name if name == "image_id" else canonical(name)
        except LanguageTagError as error:
            raise LanguageTagError(f"{place}: column {number} of the header: {error}") from None
        if language in spellings:
            raise CorpusError(f"{place}: columns {spellings[language]!r} and {name!r} are both {language!r}")
        spellings[language] = name


def _line_of(file: Path, lines: list[int], row: int) -> str:
    return f"{file} line {lines[row]}"
