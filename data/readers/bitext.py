"""Sentence pairs at scale, as a stream: OPUS and Moses, WikiMatrix and CCMatrix (`bitext_files` has their forms).

No file is held in memory. Several files, such as one for each pair of languages, are read by turns in proportion to
their sizes, so that a batch has pairs of all of them.
"""

import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, Features, IterableDataset, config

from ...utils.errors import CorpusError
from ...utils.identity import file_states
from ...utils.languages import counts_as, normalize_languages
from ..corpus.captions import enumeration
from ..corpus.corpus import CAPTIONS
from ..corpus.loading import load_translations
from ..corpus.parquet_files import cache_key, prepared
from ..corpus.row_count import RowCount
from .bitext_files import Bitext, bitexts, is_bitext

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "bitext"

_VERSION = 2  # of the rows that are made of the same files


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

    Lines with an empty or an over-long text are left out; warnings name the first one of each file, and count them at
    its end. Pairs that occur several times are all returned.

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

    Raises: as both.
    """
    if is_bitext(source):
        corpus = load_bitext(source, languages=languages, streaming=False)
        assert isinstance(corpus, Dataset)
        return corpus
    return load_translations(source, languages=languages, on_incomplete=on_incomplete)


def bitext_rows(groups: list[list[Bitext]], rules: BitextRules) -> Iterator[dict[str, Any]]:
    """The rows of groups of files; the files of a group are read by turns, in proportion to their sizes.

    Raises:
        CorpusError, LanguageTagError: as `load_bitext`.
    """
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
    for line, score, texts in file.read(rules.max_characters):
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
        if not count.unasked:
            logger.warning(
                "%s line %d: a line %s; such lines are left out, and counted at the end", file.file, line, reason
            )
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
