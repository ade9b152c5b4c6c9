"""Sentence pairs at scale, as a stream:

    Moses      CCMatrix.de-en.de, CCMatrix.de-en.en    two files whose lines correspond, plain or `.gz`; OPUS has both
                                                       in `de-en.txt.zip`, for CCMatrix with `CCMatrix.de-en.scores`
    a table    WikiMatrix.de-en.tsv.gz                 score, text, text, between tabs, without a header
               TED2020-en-de-train.tsv.gz              text, text, as sentence-transformers publishes them

The name of a file states its two languages, the first text's first. No file is held in memory. Several files are read
by turns in proportion to their sizes, so a batch has pairs of all files.
"""

import heapq
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datasets import Dataset, Features, IterableDataset

from ...utils.errors import CorpusError
from ...utils.language_matching import counts_as
from ...utils.languages import normalize_language
from ..corpus.columns import tag_in
from ..corpus.corpus import CAPTIONS, MAX_CHARACTERS, RowCount, enumeration, tags_of
from ..corpus.files import NO_TMX, TMX, files_matching, kind_of, numbered_lines, open_plain
from ..corpus.loading import cached_rows, load_translations
from ..corpus.tables import SCORE, has_header, pair_in_name, table_rows

_SCORES = "scores"
_TAG = r"[A-Za-z]{2,3}(?:_[A-Za-z]+)*"
# The name of a text: its stem, which ends with two languages, and its own language; `.gz` if it is compressed.
_SIDE = re.compile(rf"((?:.*[./])?({_TAG})-({_TAG}))\.(\2|\3|{_SCORES})(?:\.gz)?")


class Bitext(NamedTuple):
    """A table of sentence pairs; or two texts, and any scores, whose lines correspond: `names` in `place`."""

    place: Path
    languages: tuple[str, str]
    size: int  # in bytes
    names: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        return [self.place / name for name in self.names] if self.place.is_dir() else [self.place]

    def pairs(self) -> Iterator[tuple[int, list[str]]]:
        """Yields the line, and the two texts and any score of each pair."""
        if not self.names:
            columns, rows = table_rows(self.place)
            tags = [(name, tag_in(name)[0]) for name in columns]  # a header may have `EN-US` for `en`
            named = [counts_as(tag, self.languages) if tag else name for name, tag in tags]
            order = [named.index(name) for name in (*self.languages, SCORE) if name in named]
            yield from ((line, [cells[column] for column in order]) for line, cells in rows)
            return
        texts = [numbered_lines(self.place / name, self._open) for name in self.names]
        for number, lines in enumerate(zip_longest(*texts), 1):
            if None in lines:
                ended = self.place / self.names[lines.index(None)]
                raise CorpusError(
                    f"{ended} ends before line {number}; its lines must match {' and '.join(self.names)}"
                )
            yield number, [text for _, text in lines]

    def _open(self, file: Path) -> Any:
        if self.place.is_dir():
            return open_plain(file)
        return zipfile.Path(self.place, file.relative_to(self.place).as_posix()).open("rb")


def load_bitext(
    files: str | Path,
    *,
    languages: str | list[str] | tuple[str, ...] | None = None,
    min_score: float | None = None,
    shards: int = 1,
    streaming: bool = True,
) -> Dataset | IterableDataset:
    """Loads published sentence pairs as a stream: a translation corpus with the column `captions`. Without
    `streaming`, `datasets` writes the rows to its cache. A warning counts left-out lines with an empty or an over-long
    text.

    Args:
        files: a file, a folder or a pattern, such as `wikimatrix/*.tsv.gz`; `CCMatrix.de-en` for the files of Moses.
        languages: languages of the texts to keep; files without two of them are not read. By default all.
        min_score: pairs with a lower score are left out. WikiMatrix recommends 1.04. A file without scores is refused.
        shards: with one, every batch has pairs of all files; with one a worker, each worker reads separate files.

    Examples:
        >>> corpus = load_bitext("wikimatrix/*.tsv.gz", languages=["de", "en", "fr"], min_score=1.04)
    """
    tags = tags_of(languages)
    found = bitexts(files)
    read = [
        each for each in found if tags is None or len({counts_as(tag, tags) for tag in each.languages} - {None}) > 1
    ]
    if not read:
        pairs = sorted({"-".join(each.languages) for each in found})
        raise CorpusError(f"{files}: no file has two of {', '.join(tags or ())}; there are {enumeration(pairs)}")
    if not 1 <= shards <= len(read):
        raise CorpusError(f"{files}: shards={shards}, and there can be from 1 to {len(read)}, the number of files")
    read.sort(key=lambda each: (-each.size, each.files))
    groups = [read[start::shards] for start in range(shards)]
    given: dict[str, Any] = {"groups": groups, "languages": tags, "min_score": min_score}
    features = Features(captions=CAPTIONS)
    if streaming:
        return IterableDataset.from_generator(bitext_rows, gen_kwargs=given, features=features)
    read_files = [file for each in read for file in each.files]
    return cached_rows(partial(bitext_rows, **given), features, source=files, files=read_files)


def read_translations(
    source: str, *, languages: list[str] | None = None, on_incomplete: Literal["error", "skip"] = "error"
) -> Dataset:
    """Loads translations with `load_bitext` or `load_translations`, depending on the names of the files."""
    if is_bitext(source):
        return load_bitext(source, languages=languages, streaming=False)
    return load_translations(source, languages=languages, on_incomplete=on_incomplete)


def bitext_rows(
    groups: list[list[Bitext]], languages: tuple[str, ...] | None, min_score: float | None
) -> Iterator[dict[str, Any]]:
    """Yields the rows of groups of files; the files of a group are read by turns, in proportion to their sizes."""
    for files in groups:
        readers = [_kept(file, index, languages, min_score) for index, file in enumerate(files)]
        yield from (row for _, row in heapq.merge(*readers, key=itemgetter(0)))


def _kept(
    bitext: Bitext, index: int, languages: tuple[str, ...] | None, min_score: float | None
) -> Iterator[tuple[tuple[float, int], dict[str, Any]]]:
    """Yields the turn and the row of the pairs to keep; the log counts the others. A turn is the share of the file
    that is read before the row, assuming lines of equal length, and the file's index."""
    file, share = bitext.files[0], 0.0
    count = RowCount(str(file))
    tags = [tag if languages is None else counts_as(tag, languages) for tag in bitext.languages]
    for line, (first, second, *scores) in bitext.pairs():
        texts = zip(tags, (first, second), strict=True)
        captions = [{"language": tag, "text": text.strip()} for tag, text in texts if tag is not None]
        try:
            score = float(scores[0]) if scores else None
        except ValueError:
            raise CorpusError(f"{file} line {line}: {scores[0][:40]!r} is not a score") from None
        if min_score is not None and score is None:
            raise CorpusError(f"{file} has no scores, so that min_score={min_score} cannot be applied")
        if score is not None and min_score is not None and not score >= min_score:
            count.leave_out(f"with a score below {min_score}")
        elif not all(caption["text"] for caption in captions):
            count.leave_out("with an empty text", f"line {line}")
        elif any(len(caption["text"]) > MAX_CHARACTERS for caption in captions):
            count.leave_out(f"with a text longer than {MAX_CHARACTERS:,} characters", f"line {line}")
        else:
            count.read += 1
            yield (share, index), {"captions": captions}
            share = line / max(1, bitext.size)
    count.report()


def bitexts(source: str | Path) -> list[Bitext]:
    """Finds the sentence pairs in a file, a folder, a pattern, or what two files of Moses have in common."""
    files = files_matching(source) or files_matching(f"{source}.*")
    found: list[Bitext] = []
    sizes: dict[Path, dict[str, int]] = defaultdict(dict)  # by folder or zip file
    for file in files:
        sizes[file.parent][file.name] = file.stat().st_size
        if kind_of(file) == ".tsv":
            if (pair := pair_in_name(file)) is None:
                raise CorpusError(f"{file}: name the languages in a header, or in the name, as in x.de-en.tsv")
            found.append(Bitext(file, pair, file.stat().st_size))
        elif file.suffix == ".zip":
            try:
                with zipfile.ZipFile(file) as archive:
                    sizes[file] = {info.filename: info.compress_size for info in archive.infolist()}
            except (OSError, zipfile.BadZipFile) as error:
                raise CorpusError(f"{file}: {error}") from error
    for place, names in sizes.items():
        own = _moses(names, place)
        if place.suffix == ".zip" and not own:
            raise CorpusError(f"{place} holds {', '.join(names) or 'nothing'}, and no two texts such as x.de-en.de")
        found += own
    if not found:
        if memory := next((file for file in files if file.name.endswith(TMX)), None):
            raise CorpusError(f"{memory}: {NO_TMX}")
        raise CorpusError(f"{source}: no sentence pairs, as in x.de-en.tsv, x.de-en.zip, or x.de-en.de and x.de-en.en")
    return found


def is_bitext(source: str) -> bool:
    """Returns whether a source is one of `bitexts`; `load_translations` reads tables with a header."""
    for file in files_matching(source) or files_matching(f"{source}.*"):
        side, is_table = _SIDE.fullmatch(file.name), kind_of(file) == ".tsv" and pair_in_name(file) is not None
        if file.name.endswith((*TMX, ".zip")) or (side and side[4] != _SCORES) or (is_table and not has_header(file)):
            return True
    return False


def _moses(sizes: dict[str, int], place: Path) -> list[Bitext]:
    """Finds the texts that belong together by name, `CCMatrix.de-en.de` and `CCMatrix.de-en.en`, and their scores."""
    stems: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for match in filter(None, map(_SIDE.fullmatch, sorted(sizes))):
        stems[match[1], match[2], match[3]][match[4]] = match[0]
    found = []
    for (stem, *pair), sides in stems.items():
        if sides.keys() == {_SCORES}:
            continue
        if missing := [tag for tag in pair if tag not in sides]:
            raise CorpusError(f"{place}: {stem}.{missing[0]} is missing, to match {', '.join(sides.values())}")
        names = tuple(sides[name] for name in (*pair, _SCORES) if name in sides)
        languages = normalize_language(pair[0]), normalize_language(pair[1])
        found.append(Bitext(place, languages, sum(sizes[name] for name in names[:2]), names))
    return found
