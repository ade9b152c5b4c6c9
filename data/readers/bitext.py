"""Sentence pairs at scale, as a stream:

    Moses      CCMatrix.de-en.de, CCMatrix.de-en.en    two files whose lines correspond, plain or `.gz`; OPUS has both
                                                       in `de-en.txt.zip`, of CCMatrix with `CCMatrix.de-en.scores`
    a table    WikiMatrix.de-en.tsv.gz                 score, text, text, between tabs, without a header
               TED2020-en-de-train.tsv.gz              text, text, as sentence-transformers publishes them

The name of a file has its two languages, the first text's first. No file is held in memory. Several files, such as one
for each pair of languages, are read by turns in proportion to their sizes, so that a batch has pairs of all of them.
Translation memories (`.tmx`) are not read.
"""

import heapq
import logging
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datasets import Dataset, Features, IterableDataset, config

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.identity import file_states
from ...utils.languages import counts_as, normalize_language, normalize_languages
from ..corpus.captions import RowCount, enumeration
from ..corpus.corpus import CAPTIONS
from ..corpus.loading import load_translations
from ..corpus.parquet_files import cache_key, prepared
from ..corpus.table_rows import SCORE, has_header, pair_in_name, table_rows
from ..corpus.text_files import NO_TMX, TMX, files_matching, kind_of, numbered_lines, open_plain

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "bitext"
TABLES = (".tsv",)

_VERSION = 2  # of the rows that are made of the same files
_ZIP = (".zip",)
_SCORES = "scores"
_TAG = r"[A-Za-z]{2,3}(?:_[A-Za-z]+)*"
_PAIR = re.compile(rf"({_TAG})-({_TAG})")


class Pair(NamedTuple):
    """Texts of the same meaning: the line of the file, its score if the file has scores, and (language, text)s."""

    line: int
    score: float | None
    texts: list[tuple[str, str]]


@dataclass(frozen=True)
class Bitext:
    """A table of sentence pairs, or two texts whose lines correspond, in two files or as members of a zip file.

    Args:
        file: the file; of two, the first.
        languages: the languages of its texts.
        size: its size in bytes.
        names: of both texts, and of their scores where there are any; empty for a table.
        archive: the zip file that holds them.
    """

    file: Path
    languages: tuple[str, str]
    size: int
    names: tuple[str, ...] = ()
    archive: Path | None = None

    @property
    def files(self) -> list[Path]:
        """All files that are read."""
        return [self.file] if self.archive or not self.names else [self.file.parent / name for name in self.names]

    def read(self) -> Iterator[Pair]:
        return self._lines() if self.names else self._rows()

    def _rows(self) -> Iterator[Pair]:
        names, rows = table_rows(self.file)
        for line, cells in rows:
            record = dict(zip(names, cells, strict=True))
            score = _score(record[SCORE], self.file, line) if SCORE in record else None
            yield Pair(line, score, [(language, record[language]) for language in self.languages])

    def _lines(self) -> Iterator[Pair]:
        columns = [numbered_lines(partial(self._open, name), self._place(name)) for name in self.names]
        for number, cells in enumerate(zip_longest(*columns), 1):
            if None in cells:
                ended = cells.index(None)
                others = ", ".join(name for name in self.names if name != self.names[ended])
                raise CorpusError(
                    f"{self._place(self.names[ended])} ends before line {number}, and its lines should correspond to "
                    f"those of {others}"
                )
            texts = [text for _, text in cells]
            score = _score(texts[2], self._place(self.names[2]), number) if len(texts) > 2 else None
            yield Pair(number, score, list(zip(self.languages, texts[:2], strict=True)))

    def _open(self, name: str) -> Any:
        return open_plain(self.file.parent / name) if self.archive is None else _Member(self.archive, name)

    def _place(self, name: str) -> str:
        return str(self.file.parent / name) if self.archive is None else f"{self.archive} {name}"


class _Member:
    """A member of a zip file, which is closed together with the file."""

    def __init__(self, archive: Path, name: str) -> None:
        self.archive = zipfile.ZipFile(archive)
        self.member = self.archive.open(name)
        self.readline = self.member.readline

    def __enter__(self) -> "_Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.member.close()
        self.archive.close()


@dataclass(frozen=True)
class BitextRules:
    """Which pairs are kept; arguments as those of `load_bitext`."""

    languages: tuple[str, ...] | None = None
    min_score: float | None = None
    max_characters: int = 10_000


def load_bitext(
    source: str | Path,
    *,
    languages: str | list[str] | tuple[str, ...] | None = None,
    min_score: float | None = None,
    shards: int = 1,
    max_caption_characters: int = 10_000,
    streaming: bool = True,
    cache_dir: str | Path | None = None,
) -> Dataset | IterableDataset:
    """Loads published sentence pairs as a stream: a translation corpus with the column `captions`.

    Lines with an empty or an over-long text are left out, and a warning counts them at the end of each file. Pairs
    that occur several times are all returned.

    Args:
        source: a file, a folder or a pattern, such as `wikimatrix/*.tsv.gz`:

            - `WikiMatrix.de-en.tsv.gz`: score, text and text between tabs, as WikiMatrix is published; also `.tsv`;
            - `de-en.txt.zip`: two texts whose lines correspond, as OPUS publishes them (Moses), with their scores
              where there are any, as in CCMatrix. The texts themselves beside each other: `CCMatrix.de-en` stands
              for `CCMatrix.de-en.de`, `CCMatrix.de-en.en` and `CCMatrix.de-en.scores`, also with `.gz`.

            The names tell the languages; the first text is in the first of them.
        languages: languages of the texts to keep; files without two of them are not read. By default all.
        min_score: pairs with a lower score are left out. WikiMatrix recommends 1.04. A file without scores is refused.
        shards: number of shards among which the files are divided. With one shard, every batch has pairs of all files;
            as many shards as there are workers in all processes let each of them read files of its own.
        max_caption_characters: longer texts are left out.
        streaming: whether to return an `IterableDataset`. A `Dataset` is written to the cache by the first call with
            the same files and options; its rows can be counted, shuffled and held out.
        cache_dir: the folder of the cache; by default `DEFAULT_CACHE`.

    Raises:
        CorpusError: for a source without such files, fewer files than shards, and, while the files are read, for a
            file that is damaged or of another form, with the line.
        LanguageTagError: for an unknown language.

    Examples:
        >>> corpus = load_bitext("wikimatrix/*.tsv.gz", languages=["de", "en", "fr"], min_score=1.04)
    """
    wanted = None if languages is None else tuple(normalize_languages(languages))
    if wanted is not None and len(wanted) < 2:
        raise CorpusError(f"a translation needs two languages or more, not {wanted[0]!r} alone")
    found = bitexts(source)
    files = [each for each in found if len({_asked_for(tag, wanted) for tag in each.languages} - {None}) > 1]
    if not files:
        pairs = sorted({"-".join(each.languages) for each in found})
        raise CorpusError(f"{source}: no file has two of {', '.join(wanted or ())}; there are {enumeration(pairs)}")
    if len(files) < len(found):
        logger.info(
            "%s: %d of %d files are in other languages, and are not read", source, len(found) - len(files), len(found)
        )
    if not 1 <= shards <= len(files):
        raise CorpusError(f"{source}: shards={shards}, and there can be from 1 to {len(files)}, the number of files")
    files.sort(key=lambda each: (-each.size, each.file))
    groups = [files[start::shards] for start in range(shards)]
    rules = BitextRules(wanted, min_score, max_caption_characters)
    features, read = Features(captions=CAPTIONS), dict[str, Any](groups=groups, rules=rules)
    if streaming:
        return IterableDataset.from_generator(bitext_rows, gen_kwargs=read, features=features)
    key = cache_key(_VERSION, rules, shards, [file_states(each.files) for each in files])
    rows = partial(bitext_rows, **read)
    return prepared(rows, features, Path(cache_dir or DEFAULT_CACHE) / key, source=source)


def read_translations(
    source: str, *, languages: list[str] | None = None, on_incomplete: Literal["error", "skip"] = "error"
) -> Dataset:
    """Translations as a dataset, by `load_bitext` or by `load_translations`, as the names of the files tell.

    Args:
        source, languages: as in both.
        on_incomplete: as in `load_translations`; sentence pairs are always complete.
    """
    if is_bitext(source):
        corpus = load_bitext(source, languages=languages, streaming=False)
        assert isinstance(corpus, Dataset)
        return corpus
    return load_translations(source, languages=languages, on_incomplete=on_incomplete)


def bitext_rows(groups: list[list[Bitext]], rules: BitextRules) -> Iterator[dict[str, Any]]:
    """The rows of groups of files; the files of a group are read by turns, in proportion to their sizes."""
    for files in groups:
        readers = [_kept(file, rules) for file in files]
        # By the share of a file that is read, as far as lines are equally long.
        turns = [(0.0, index) for index in range(len(files))]
        while turns:
            _, index = turns[0]
            line, row = next(readers[index], (0, None))
            if row is None:
                heapq.heappop(turns)
            else:
                heapq.heapreplace(turns, (line / max(1, files[index].size), index))
                yield row


def _kept(file: Bitext, rules: BitextRules) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, row) of the pairs of a file that the rules keep; the others are counted in the log."""
    count, tags = RowCount(str(file.file)), [_asked_for(tag, rules.languages) for tag in file.languages]
    for line, score, texts in file.read():
        if rules.min_score is not None:
            if score is None:
                raise CorpusError(f"{file.file} has no scores, so that min_score={rules.min_score} cannot be applied")
            if not score >= rules.min_score:
                count.leave_out(f"with a score below {rules.min_score}")
                continue
        captions = [
            {"language": tag, "text": text.strip()}
            for tag, (_, text) in zip(tags, texts, strict=True)
            if tag is not None
        ]
        reason = _reason(captions, rules)
        if reason is None:
            count.read += 1
            yield line, {"captions": captions}
            continue
        count.leave_out(reason, f"line {line}")
    count.report()


def _reason(captions: list[dict[str, str]], rules: BitextRules) -> str | None:
    """Why a pair is left out."""
    if any(not caption["text"] for caption in captions):
        return "with an empty text"
    if any(len(caption["text"]) > rules.max_characters for caption in captions):
        return f"with a text longer than {rules.max_characters:,} characters"
    return None


def _asked_for(tag: str, languages: tuple[str, ...] | None) -> str | None:
    return tag if languages is None else counts_as(tag, languages)


def bitexts(source: str | Path) -> list[Bitext]:
    """The files of sentence pairs that a source names: a file, a folder, a pattern, or what two files of Moses have in
    common, such as `CCMatrix.de-en`.
    """
    files = files_matching(source) or files_matching(f"{source}.*")
    found: list[Bitext] = []
    for file in files:
        if kind_of(file) in TABLES:
            found.append(Bitext(file, _named_languages(file), file.stat().st_size))
        elif file.name.endswith(_ZIP):
            found += _in_zip(file)
    by_folder: dict[Path, list[str]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file.name)
    for folder, names in by_folder.items():
        for languages, texts in _moses(names, folder):
            size = sum((folder / name).stat().st_size for name in texts[:2])
            found.append(Bitext(folder / texts[0], languages, size, texts))
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
    if source.endswith((*TMX, *_ZIP)) or _is_pair_table(path):
        return True
    if not path.is_dir():
        return any(path.parent.glob(f"{path.name}.*")) and _pair_in(path.name.rpartition(".")[2]) is not None
    files = list(path.iterdir())
    return any(file.name.endswith((*TMX, *_ZIP)) or _is_pair_table(file) for file in files) or bool(
        _sides([file.name for file in files])
    )


def _is_pair_table(file: Path) -> bool:
    if kind_of(file) not in TABLES:
        return False
    if "*" in file.name:
        return pair_in_name(file) is not None or any(map(_is_pair_table, file.parent.glob(file.name)))
    return pair_in_name(file) is not None and file.is_file() and not has_header(file)


def _in_zip(file: Path) -> Iterator[Bitext]:
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
        yield Bitext(file, languages, sum(sizes[name] for name in names[:2]), names, file)


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
            f"{file}: the name of a table without a header has its languages, as in WikiMatrix.de-en.tsv.gz: rename "
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
        raise CorpusError(f"{file} line {line}: {text[:40]!r} is not a score") from None
