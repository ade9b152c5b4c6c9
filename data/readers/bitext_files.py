"""The published files of sentence pairs, read pair by pair:

    Moses      CCMatrix.de-en.de, CCMatrix.de-en.en    two files whose lines correspond, plain or `.gz`; OPUS has both
                                                       in `de-en.txt.zip`, of CCMatrix with `CCMatrix.de-en.scores`
    a table    WikiMatrix.de-en.tsv.gz                 score, text, text, between tabs, without a header
    TMX        de-en.tmx.gz                            `tmx`

The name of a file tells its two languages, the first text's first; in TMX they stand inside.
"""

import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn
from xml.parsers import expat

from ...configuration.errors import CorpusError, LanguageTagError
from ...configuration.languages import normalize_language
from ..corpus.text_files import MAX_BYTES, files_matching, numbered_lines, open_plain

TABLES = (".tsv", ".tsv.gz")
TMX = (".tmx", ".tmx.gz")
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
        languages: the languages of its texts; None where they stand inside.
        size: its size in bytes.
    """

    file: Path
    languages: tuple[str, str] | None
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
    """Score, text and text between tabs; further cells are not read."""

    def read(self, max_characters: int) -> Iterator[Pair]:
        first, second = self.languages or ("", "")
        for line, text in numbered_lines(partial(open_plain, self.file), self.file):
            score, *texts = text.split("\t")
            if len(texts) < 2:
                raise CorpusError(
                    f"{self.file} line {line}: {len(texts) + 1} cells, where a score and two texts are expected"
                )
            yield Pair(line, _score(score, self.file, line), [(first, texts[0]), (second, texts[1])])


class TmxFile(Bitext):
    """A document in TMX."""

    def read(self, max_characters: int) -> Iterator[Pair]:
        for line, texts in read_tmx(partial(open_plain, self.file), self.file, max_characters=max_characters):
            yield Pair(line, None, texts)


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
        first, second = self.languages or ("", "")
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
        if file.name.endswith(TABLES):
            found.append(Table(file, _named_languages(file), file.stat().st_size))
        elif file.name.endswith(TMX):
            found.append(TmxFile(file, None, file.stat().st_size))
        elif file.name.endswith(ZIP):
            found += _in_zip(file)
    by_folder: dict[Path, list[str]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file.name)
    for folder, names in by_folder.items():
        for languages, texts in _moses(names, folder):
            size = sum((folder / name).stat().st_size for name in texts[:2])
            found.append(Moses(folder / texts[0], languages, size, texts))
    if not found:
        raise CorpusError(
            f"{source}: there is no file of sentence pairs, such as WikiMatrix.de-en.tsv.gz, de-en.tmx.gz, "
            "de-en.txt.zip, or CCMatrix.de-en.de beside CCMatrix.de-en.en"
        )
    return found


def is_bitext(source: str) -> bool:
    """Whether a source is one of `bitexts` by the names of its files. Plain tables are not: `load_translations` reads
    those, which have a header."""
    if source.endswith((*TABLES[1:], *TMX, *ZIP)):
        return True
    path = Path(source)
    if not path.is_dir():
        return any(path.parent.glob(f"{path.name}.*")) and _pair_in(path.name.rpartition(".")[2]) is not None
    names = [file.name for file in path.iterdir()]
    return any(name.endswith((*TABLES[1:], *TMX, *ZIP)) for name in names) or bool(_sides(names))


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
    """The languages in the name of a file: of several parts that look like a pair, the last."""
    pairs = [pair for part in file.name.split(".") if (pair := _pair_in(part))]
    if not pairs:
        raise CorpusError(
            f"{file}: the name of the file tells its languages, as in WikiMatrix.de-en.tsv.gz: rename it"
        )
    return _normal(pairs[-1], str(file))


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


# ---- Reads TMX, Translation Memory eXchange, unit by unit, as OPUS distributes it: ----
#
#     <tmx version="1.4"><header … /><body>
#       <tu><tuv xml:lang="en"><seg>a cat</seg></tuv><tuv xml:lang="fr"><seg>un chat</seg></tuv></tu>
#
# A document that declares entities is refused: a few lines of them can expand to gigabytes, or read other files.
# Codes of formatting inside of a segment (`bpt`, `ept`, `it`, `ph`, `ut`) are left out; text that is marked (`hi`)
# is kept.

_CHUNK = 1 << 16  # bytes that are parsed together
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})

Unit = tuple[int, list[tuple[str, str]]]  # line, and (language, text) of each segment


def read_tmx(open_stream: Callable[[], IO[bytes]], file: str | Path, *, max_characters: int) -> Iterator[Unit]:
    """Yields the units of a document, each with its line.

    Args:
        open_stream: opens the document.
        file: what errors call it.
        max_characters: no more than one character beyond these is kept of a text.

    Raises:
        CorpusError: for a document that cannot be read, is no well-formed XML, or declares entities.
        LanguageTagError: for a segment without a language, or in an unknown one.
    """
    parser = _Parser(file, max_characters)
    fed = 0
    try:
        with open_stream() as stream:
            while chunk := stream.read(_CHUNK):
                fed += len(chunk)
                parser.expat.Parse(chunk, False)
                if fed - parser.expat.CurrentByteIndex > MAX_BYTES:
                    parser.refuse(f"more than the {MAX_BYTES:,} bytes that a tag may have")
                yield from parser.taken()
            parser.expat.Parse(b"", True)
            yield from parser.taken()
    except expat.ExpatError as error:
        parser.refuse(f"no well-formed XML: {error}")
    except (OSError, EOFError, zlib.error) as error:
        parser.refuse(str(error))


class _Parser:
    """Collects the units while expat calls it with tags and texts."""

    def __init__(self, file: str | Path, max_characters: int) -> None:
        self.file, self.limit = file, max_characters + 1
        self.units: list[Unit] = []
        self.segments: list[tuple[str, str]] = []
        self.line, self.language = 0, ""
        self.text: list[str] | None = None  # of the segment that is open
        self.length = self.codes = 0
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self._characters
        self.expat.EntityDeclHandler = self._entity
        self.expat.SkippedEntityHandler = self._skipped

    def taken(self) -> list[Unit]:
        """The units since the last call."""
        units, self.units = self.units, []
        return units

    def refuse(self, problem: str) -> NoReturn:
        raise CorpusError(f"{self.file} line {self.expat.CurrentLineNumber}: {problem}") from None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self.line, self.segments = self.expat.CurrentLineNumber, []
        elif name == "tuv":
            try:
                self.language = normalize_language(attributes.get("xml:lang") or attributes.get("lang") or "")
            except LanguageTagError as error:
                place = f"{self.file} line {self.expat.CurrentLineNumber}"
                raise LanguageTagError(f"{place}: {error}") from None
        elif name == "seg":
            self.text, self.length, self.codes = [], 0, 0
        elif name in _CODES:
            self.codes += 1

    def _end(self, name: str) -> None:
        if name == "seg" and self.text is not None:
            self.segments.append((self.language, "".join(self.text)))
            self.text = None
        elif name in _CODES:
            self.codes -= 1
        elif name == "tu":
            self.units.append((self.line, self.segments))

    def _characters(self, data: str) -> None:
        if self.text is not None and not self.codes and self.length < self.limit:
            kept = data[: self.limit - self.length]
            self.length += len(kept)
            self.text.append(kept)

    def _entity(self, name: str, *_: Any) -> NoReturn:
        self.refuse(f"the document declares the entity {name!r}, and entities are not expanded: remove it")

    def _skipped(self, name: str, *_: Any) -> NoReturn:
        self.refuse(f"the entity {name!r} is not known")
