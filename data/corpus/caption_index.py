"""Selects the examples of a view from the captions of a corpus, with Arrow and without reading any image."""

from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

LanguagePair = tuple[str, str]
# Suffix of the columns `text` and `language` -> index of each example's caption in its row's list [N].
Positions = dict[str, np.ndarray]
# The row of each example [N], ascending, and the positions of its captions.
Selection = tuple[np.ndarray, Positions]

_NOTHING = np.empty(0, dtype=np.int64)
_NO_PAIRS: Selection = (_NOTHING, {"_a": _NOTHING, "_b": _NOTHING})


class CaptionIndex:
    """All captions of a corpus, and their `rows`, `positions` in the rows' lists, and `languages`."""

    def __init__(self, corpus: Dataset) -> None:
        names = [name for name in ("image_id", "captions") if name in corpus.column_names]
        self._table = table = corpus.select_columns(names).with_format("arrow")[:]
        captions = pc.list_flatten(table["captions"])
        self.texts = pc.struct_field(captions, "text")
        self.rows = pc.list_parent_indices(table["captions"]).to_numpy()
        counts = np.bincount(self.rows, minlength=len(table))
        self.positions = np.arange(len(self.rows)) - (np.cumsum(counts) - counts)[self.rows]
        self._language_codes, languages = _encoded(pc.struct_field(captions, "language"))
        self.languages = languages.to_pylist()

    def captions_in(self, language: str) -> np.ndarray:
        if language not in self.languages:
            return _NOTHING
        return np.flatnonzero(self._language_codes == self.languages.index(language))

    def pairs_at(self, rows: np.ndarray, positions: Positions) -> dict[str, np.ndarray]:
        """Returns the sorted indices of the examples by pair of languages; `rows` and `positions` are of the captions
        `_a`, `_b`."""
        first = np.searchsorted(self.rows, rows)  # first caption of each row
        sides = np.stack([self._language_codes[first + positions[side]] for side in ("_a", "_b")])
        found, pair = np.unique(np.sort(sides, axis=0), axis=1, return_inverse=True)
        names = [_pair_name(*sorted(self.languages[code] for code in codes)) for codes in found.T]
        return {name: np.flatnonzero(pair.ravel() == names.index(name)) for name in sorted(names)}

    @cached_property
    def text_codes(self) -> np.ndarray:
        """Returns an integer for each caption; equal texts have equal integers."""
        return _encoded(self.texts)[0]

    @cached_property
    def concepts(self) -> np.ndarray:
        """Returns an integer for each row; rows that share an image_id have equal integers."""
        names = self._table.column_names
        return _encoded(self._table["image_id"])[0] if "image_id" in names else np.arange(len(self._table))


def texts_in(corpus: Dataset, languages: list[str] | None) -> dict[str, Selection]:
    index = CaptionIndex(corpus)
    captions = {language: index.captions_in(language) for language in languages or index.languages}
    return {language: (index.rows[own], {"": index.positions[own]}) for language, own in captions.items()}


def pairs_in(
    corpus: Dataset,
    pairs: list[LanguagePair] | None = None,
    languages: list[str] | None = None,
    *,
    once: bool = False,
    co_captions: bool = False,
    aligned: bool = True,
) -> dict[str, Selection]:
    """Selects the pairs of captions that are translations of each other, by the description of their languages; empty
    for a pair, or a language, that does not occur with another. By default, all pairs that occur in a row.

    Args:
        languages: without `pairs`, the languages that are paired, in this order; by default all, alphabetically.
        once: whether to select a pair of texts only once if several rows with the same image_id have it.
        co_captions: whether a language paired with itself gives every two different captions of a row, earlier first.
        aligned: whether captions are paired in order if a row has equally many in both languages.
    """
    index = CaptionIndex(corpus)
    repeating = once and len(np.unique(index.concepts)) < len(corpus)
    selections, met = {}, set[str]()
    for language_a, language_b in combinations(languages or sorted(index.languages), 2) if pairs is None else pairs:
        two = co_captions and language_a == language_b
        captions = index.captions_in(language_a), index.captions_in(language_b)
        a, b = _matched(index, *captions, aligned=aligned and not two)
        if two:
            different = (a < b) & (index.text_codes[a] != index.text_codes[b])
            a, b = a[different], b[different]
        rows = index.rows[a]
        if repeating:
            new = ~repeats(rows, index.concepts[rows], index.text_codes[a], index.text_codes[b])
            rows, a, b = rows[new], a[new], b[new]
        if len(rows) or pairs is not None:
            selections[_pair_name(language_a, language_b)] = rows, {"_a": index.positions[a], "_b": index.positions[b]}
            met |= {language_a, language_b}
    absent = [language for language in (languages or ()) if pairs is None and language not in met]
    alone: dict[str, Selection] = {f"{language} and another of the languages": _NO_PAIRS for language in absent}
    return selections | alone or {"two languages": _NO_PAIRS}


def _pair_name(language_a: str, language_b: str) -> str:
    return f"{language_a} with {language_b}"


def _matched(index: CaptionIndex, a: np.ndarray, b: np.ndarray, aligned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pairs captions `a` and `b` of the same row: all combinations, or in order if `aligned` and equally many."""
    size = index.rows[-1] + 1 if len(index.rows) else 0
    count_a, count_b = np.bincount(index.rows[a], minlength=size), np.bincount(index.rows[b], minlength=size)
    equal = (count_a == count_b) & aligned
    examples = np.where(equal, count_a, count_a * count_b)
    row = np.repeat(np.arange(size), examples)  # row of each example
    within = np.arange(len(row)) - (np.cumsum(examples) - examples)[row]  # index of each example within its row
    offset_a = np.where(equal[row], within, within // count_b[row])
    offset_b = np.where(equal[row], within, within % count_b[row])
    return a[(np.cumsum(count_a) - count_a)[row] + offset_a], b[(np.cumsum(count_b) - count_b)[row] + offset_b]


def repeats(rows: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Returns which entries have the same keys as an entry of an earlier row; `rows` [N] ascend. -> boolean [N]"""
    key = np.zeros(len(rows), dtype=np.int64)
    for part in keys:
        _, key = np.unique(key * (part.max(initial=0) + 1) + part, return_inverse=True)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return rows[first][inverse] < rows


def _encoded(strings: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    distinct = pc.unique(strings)
    return pc.index_in(strings, value_set=distinct).to_numpy().astype(np.int64), distinct


def merged(selections: dict[str, Selection]) -> Selection:
    rows = np.concatenate([rows for rows, _ in selections.values()])
    order = np.argsort(rows, kind="stable")
    suffixes = next(iter(selections.values()))[1]
    positions = {suffix: np.concatenate([own[suffix] for _, own in selections.values()]) for suffix in suffixes}
    return rows[order], {suffix: positions[suffix][order] for suffix in suffixes}
