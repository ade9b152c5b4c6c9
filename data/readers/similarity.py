"""Sentence pairs with the similarity that people see in them (STS), from tab-separated tables and JSON lines."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value

from ...configuration.errors import CorpusError, LanguageTagError
from ...configuration.languages import normalize_language
from ..corpus.text_files import read_json_lines, read_lines
from .task_files import task_dataset, text_of

_COLUMNS = ("text_a", "text_b", "score")
SIMILARITY = Features(
    {name: Value("string") for name in ("text_a", "language_a", "text_b", "language_b")} | {"score": Value("float64")}
)


def is_similarity_file(file: str | Path) -> bool:
    """Whether a file is a table or JSON lines whose first row has the columns of `load_similarity`.

    Raises:
        CorpusError: for a file that cannot be read.
    """
    path = Path(file)
    if path.suffix not in (".tsv", ".jsonl") or not path.is_file():
        return False
    if path.suffix == ".tsv":
        return {*_COLUMNS} <= {*next(read_lines(path), (1, ""))[1].split("\t")}
    return {*_COLUMNS} <= {*next(read_json_lines(path), (1, {}))[1]}


def load_similarity(file: str | Path) -> Dataset:
    """Loads sentence pairs with scores: `text_a`, `language_a`, `text_b`, `language_b`, `score`.

    Args:
        file: a `.tsv` file with a header, or a `.jsonl` file, with these columns in any order; one column `language`
            in the place of both languages for pairs in one language. Scores may be on any scale.

    Raises:
        CorpusError: for a file that cannot be read, a column that is missing, and a score that is no number.
        BadTextError: for an empty text.
        LanguageTagError: for an unknown language, with the line.

    Examples:
        >>> corpus = load_similarity("sts17.tsv")
    """
    path = Path(file)
    if not path.is_file():
        raise CorpusError(f"{path}: no such file")
    records = _table(path) if path.suffix == ".tsv" else read_json_lines(path)
    return task_dataset((_row(record, f"{path} line {line}") for line, record in records), dict(SIMILARITY), path)


def _table(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = read_lines(file)
    header = next(lines, (1, ""))[1].split("\t")
    for line, text in lines:
        cells = text.split("\t")
        if len(cells) != len(header):
            raise CorpusError(f"{file} line {line}: {len(cells)} cells, where the header has {len(header)} columns")
        yield line, dict(zip(header, cells, strict=True))


def _row(record: dict[str, Any], place: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for side in ("a", "b"):
        language = record.get(f"language_{side}") or record.get("language")
        if language is None:
            raise CorpusError(
                f"{place}: there is no 'language_{side}' and no 'language', which tells it for both texts"
            )
        try:
            row[f"language_{side}"] = normalize_language(language)
        except LanguageTagError as error:
            raise LanguageTagError(f"{place}: {error}") from None
        row[f"text_{side}"] = text_of(record, f"text_{side}", place)
    try:
        row["score"] = float(record.get("score", ""))
    except (TypeError, ValueError):
        row["score"] = math.nan
    if not math.isfinite(row["score"]):
        raise CorpusError(f"{place}: 'score' should be a number, and is {record.get('score')!r}")
    return row
