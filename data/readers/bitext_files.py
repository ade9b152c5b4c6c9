"""The published files of sentence pairs, read pair by pair:

    Moses      CCMatrix.de-en.de, CCMatrix.de-en.en    two files whose lines correspond, plain or `.gz`; OPUS has both
                                                       in `de-en.txt.zip`, of CCMatrix with `CCMatrix.de-en.scores`
    a table    WikiMatrix.de-en.tsv.gz                 score, text, text, between tabs, without a header
               TED2020-en-de-train.tsv.gz              text, text, as sentence-transformers publishes them

The name of a file tells its two languages, the first text's first. Translation memories (`.tmx`) are not read.
"""

import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import normalize_language
from ..corpus.table_rows import SCORE, has_header, pair_in_name, table_rows
from ..corpus.text_files import NO_TMX, TMX, files_matching, kind_of, numbered_lines, open_plain

TABLES = (".tsv",)
ZIP = (".zip",)
_SCORES = "scores"
_TAG = r"[A-Za-z]{2,3}(?:_[A-Za-z]+)*"
_PAIR = re.compile(rf"({_TAG})-({_TAG})")


class Pair(NamedTuple):
    """Texts of the same meaning.

    Args:
        line: the line of the file.
        score: how alike the texts are; None where the file does not tell.
        texts: (language, text) of each.
    """

    line: int
    score: float | None
    texts: list[tuple[str, str]]


@dataclass(frozen=True)
class Bitext(ABC):
    """A file of sentence pairs, or two that belong together.

    Args:
        file: the file; of two, the first.
        languages: the languages of its texts.
        size: its size in bytes.
    """

    file: Path
    languages: tuple[str, str]
    size: int

    @property
    def files(self) -> list[Path]:
        """All files that are read."""
        return [self.file]

    @abstractmethod
    def read(self, max_characters: int) -> Iterator[Pair]:
        """Yields the pairs; of a text, at least one character beyond `max_characters` is kept.

        Raises:
            CorpusError, LanguageTagError: for a file that cannot be read, with the line.
        """


class Table(Bitext):
    """Two texts between tabs, and perhaps a score before or behind them, without a header; further cells are not
    read."""

    def read(self, max_characters: int) -> Iterator[Pair]:
        names, rows = table_rows(self.file)
        for line, cells in rows:
            record = dict(zip(names, cells, strict=True))
            score = _score(record[SCORE], self.file, line) if SCORE in record else None
            yield Pair(line, score, [(language, record[language]) for language in self.languages])


@dataclass(frozen=True)
class Moses(Bitext):
    """Two texts whose lines correspond, in two files or as members of a zip file.

    Args:
        names: of both texts, and of their scores where there are any; in a zip file, of the members.
        archive: the zip file.
    """

    names: tuple[str, ...] = ()
    archive: Path | None = None

    @property
    def files(self) -> list[Path]:
        return [self.file.parent / name for name in self.names] if self.archive is None else [self.archive]

    def read(self, max_characters: int) -> Iterator[Pair]:
        first, second = self.languages
        columns = [numbered_lines(partial(self._open, name), self._place(name)) for name in self.names]
        for number, cells in enumerate(zip_longest(*columns), 1):
            for name, cell in zip(self.names, cells, strict=True):
                if cell is None:
                    raise CorpusError(
                        f"{self._place(name)} ends before line {number}, and its lines should correspond to those of "
                        f"{', '.join(other for other in self.names if other != name)}"
                    )
            texts = [text for _, text in cells]
            score = _score(texts[2], self._place(self.names[2]), number) if len(texts) > 2 else None
            yield Pair(number, score, [(first, texts[0]), (second, texts[1])])

    def _open(self, name: str) -> Any:
        return open_plain(self.file.parent / name) if self.archive is None else _Member(self.archive, name)

    def _place(self, name: str) -> str:
        return str(self.file.parent / name) if self.archive is None else f"{self.archive} {name}"


class _Member:
    """A member of a zip file, which is closed together with the file."""

    def __init__(self, archive: Path, name: str) -> None:
        self.archive = zipfile.ZipFile(archive)
        self.member = self.archive.open(name)

    def readline(self, limit: int = -1) -> bytes:
        return self.member.readline(limit)

    def __enter__(self) -> "_Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.member.close()
        self.archive.close()


def bitexts(source: str | Path) -> list[Bitext]:
    """The files of sentence pairs that a source names: a file, a folder, a pattern, or what two files of Moses have in
    common, such as `CCMatrix.de-en`.

    Raises:
        CorpusError: when there are none, or a file does not tell its languages.
    """
    files = files_matching(source) or files_matching(f"{source}.*")
    found: list[Bitext] = []
    for file in files:
        if kind_of(file) in TABLES:
            found.append(Table(file, _named_languages(file), file.stat().st_size))
        elif file.name.endswith(ZIP):
            found += _in_zip(file)
    by_folder: dict[Path, list[str]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file.name)
    for folder, names in by_folder.items():
        for languages, texts in _moses(names, folder):
            size = sum((folder / name).stat().st_size for name in texts[:2])
            found.append(Moses(folder / texts[0], languages, size, texts))
    if not found and (memories := [file for file in files if file.name.endswith(TMX)]):
        raise CorpusError(f"{memories[0]}: {NO_TMX}")
    if not found:
        raise CorpusError(
            f"{source}: there is no file of sentence pairs, such as WikiMatrix.de-en.tsv.gz, de-en.txt.zip, "
            "or CCMatrix.de-en.de beside CCMatrix.de-en.en"
        )
    return found


def is_bitext(source: str) -> bool:
    """Whether a source is one of `bitexts`, by the names of its files. Tables with a header are not: those are read by
    `load_translations`."""
    path = Path(source)
    if source.endswith((*TMX, *ZIP)) or _is_pair_table(path):
        return True
    if not path.is_dir():
        return any(path.parent.glob(f"{path.name}.*")) and _pair_in(path.name.rpartition(".")[2]) is not None
    files = list(path.iterdir())
    return any(file.name.endswith((*TMX, *ZIP)) or _is_pair_table(file) for file in files) or bool(
        _sides([file.name for file in files])
    )


def _is_pair_table(file: Path) -> bool:
    if kind_of(file) not in TABLES:
        return False
    if "*" in file.name:
        return pair_in_name(file) is not None or any(map(_is_pair_table, file.parent.glob(file.name)))
    return pair_in_name(file) is not None and file.is_file() and not has_header(file)


def _in_zip(file: Path) -> Iterator[Moses]:
    try:
        with zipfile.ZipFile(file) as archive:
            sizes = {info.filename: info.compress_size for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise CorpusError(f"{file}: {error}") from error
    found = _moses(list(sizes), file)
    if not found:
        raise CorpusError(
            f"{file} holds {', '.join(sizes) or 'nothing'}, and no two texts such as CCMatrix.de-en.de and "
            "CCMatrix.de-en.en"
        )
    for languages, names in found:
        yield Moses(file, languages, sum(sizes[name] for name in names[:2]), names, file)


def _moses(names: Sequence[str], place: Path) -> list[tuple[tuple[str, str], tuple[str, ...]]]:
    """The languages and the names of the texts that belong together among names, and of their scores."""
    found = []
    for stem, sides in _sides(names).items():
        pair = _pair_in(stem.rpartition(".")[2]) or ("", "")
        missing = [f"{stem}.{tag}" for tag in pair if tag not in sides]
        if missing:
            raise CorpusError(
                f"{place}: {missing[0]} is missing, whose lines are those of {', '.join(sides.values())}"
            )
        texts = tuple(sides[name] for name in (*pair, _SCORES) if name in sides)
        found.append((_normal(pair, f"{place} {texts[0]}"), texts))
    return found


def _sides(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Stem -> language -> name of the texts among names: `CCMatrix.de-en` -> `de` -> `CCMatrix.de-en.de.gz`; also of
    their scores."""
    stems: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        stem, _, ending = name.removesuffix(".gz").rpartition(".")
        pair = _pair_in(stem.rpartition(".")[2])
        if pair and ending in (*pair, _SCORES):
            stems.setdefault(stem, {})[ending] = name
    return {stem: sides for stem, sides in stems.items() if sides.keys() != {_SCORES}}


def _pair_in(part: str) -> tuple[str, str] | None:
    match = _PAIR.fullmatch(part.rpartition("/")[2])
    return None if match is None else (match[1], match[2])


def _named_languages(file: Path) -> tuple[str, str]:
    pair = pair_in_name(file)
    if pair is None:
        raise CorpusError(
            f"{file}: the name of a table without a header tells its languages, as in WikiMatrix.de-en.tsv.gz: rename "
            "it, or write a header"
        )
    return pair


def _normal(pair: tuple[str, str], place: str) -> tuple[str, str]:
    try:
        first, second = (normalize_language(tag) for tag in pair)
    except LanguageTagError as error:
        raise LanguageTagError(f"{place}: {error}") from None
    return first, second


def _score(text: str, file: str | Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise CorpusError(f"{file} line {line}: {text[:40]!r} is no score") from None
