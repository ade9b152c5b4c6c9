"""Reads files of translations: tab-separated tables with a header of language tags, and JSON lines."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, IterableDataset, Value, concatenate_datasets

from ...configuration.errors import CorpusError, LanguageTagError
from ...configuration.languages import normalize_language
from .captions import CaptionRules, normalize_rows
from .corpus import CAPTIONS, image_id_of
from .text_files import line_of, read_json_lines, read_lines

TRANSLATION_FILES = (".tsv", ".jsonl")
_PART = 10_000  # number of rows that are held as Python objects


def translation_file(file: Path, rules: CaptionRules, streaming: bool) -> Dataset | IterableDataset:
    """The rows of a translation file, with normalized captions.

    Raises:
        CorpusError, LanguageTagError: for a row that cannot be used, with the file and the line; for a stream, while
            it is read.
    """
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
    while part := list(islice(rows, _PART)):  # stored compactly in Arrow before more lines are read
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

    place = partial(line_of, file, lines)
    for row, captions in enumerate(normalize_rows(texts(), rules, place)):
        if not with_ids and image_ids[row] is not None:
            raise CorpusError(f"{place(row)}: an image_id, which the first row lacks; give one to all rows or to none")
        named = {"image_id": image_id_of(image_ids[row], place(row))} if with_ids else {}
        if captions:
            yield {"captions": captions} | named


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {language: text, or None for an empty one}) of a translation file."""
    for line, record in tsv_records(file) if file.suffix == ".tsv" else read_json_lines(file):
        yield line, {name: None if text in ("", []) else text for name, text in record.items()}


def tsv_records(file: Path, key: str = "image_id") -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {column: cell}) of a tab-separated file with a header. Cells are not quoted.

    Args:
        file: the file.
        key: the name that a column may have beside those of languages.

    Raises:
        CorpusError, LanguageTagError: for a header or a line that cannot be used.
    """
    lines = read_lines(file)
    header = next(lines, (1, "en"))[1].split("\t")
    if len(header) == 1 and (other := next((each for each in ";,|" if each in header[0]), "")):
        raise CorpusError(f"{file} line 1: cells are divided by {other!r}: tabs are needed between them")
    _check_header(header, key, f"{file} line 1")
    for line, text in lines:
        cells = text.split("\t")
        if len(cells) < len(header):
            missing = header[len(cells)]
            tabs = ": tabs are needed between cells" if any(each in text for each in ";,|") else ""
            raise CorpusError(
                f"{file} line {line}: {len(cells)} of {len(header)} cells; column {missing!r} is missing{tabs}"
            )
        if len(cells) > len(header):
            raise CorpusError(f"{file} line {line}: {len(cells)} cells, where the header has {len(header)} columns")
        yield line, dict(zip(header, cells, strict=True))


def _check_header(header: list[str], key: str, place: str) -> None:
    """Every column is called by its language, or as the key."""
    spellings: dict[str, str] = {}
    for number, name in enumerate(header, 1):
        try:
            language = name if name == key else normalize_language(name)
        except LanguageTagError as error:
            raise LanguageTagError(f"{place}: column {number} of the header: {error}") from None
        if language in spellings:
            raise CorpusError(f"{place}: columns {spellings[language]!r} and {name!r} are both {language!r}")
        spellings[language] = name
