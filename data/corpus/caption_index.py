"""Which examples the captions of a corpus give, found with Arrow in the captions alone."""

from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LanguagePair = tuple[str, str]
Places = dict[str, np.ndarray]  # by suffix of the columns `text` and `language`: which of its row's captions it takes
Selection = tuple[np.ndarray, Places]  # the row of every example, ascending, and the places of its texts

_NOTHING = np.empty(0, dtype=np.int64)
_NO_PAIRS: Selection = (_NOTHING, {"_a": _NOTHING, "_b": _NOTHING})


class CaptionIndex:
    """The captions of a table, numbered in order: the row of each, its place in the row's list, language and text."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        captions = pc.list_flatten(table["captions"])
        self.texts = pc.struct_field(captions, "text")
        self.rows = pc.list_parent_indices(table["captions"]).to_numpy()
        counts = np.bincount(self.rows, minlength=len(table))
        self.places = np.arange(len(self.rows)) - (np.cumsum(counts) - counts)[self.rows]
        self._language_codes, languages = _encoded(pc.struct_field(captions, "language"))
        self.languages = languages.to_pylist()

    def numbers_in(self, language: str) -> np.ndarray:
        """The captions in `language`."""
        if language not in self.languages:
            return _NOTHING
        return np.flatnonzero(self._language_codes == self.languages.index(language))

    @cached_property
    def text_codes(self) -> np.ndarray:
        """A number for each caption; equal texts have equal numbers."""
        return _encoded(self.texts)[0]

    @cached_property
    def concepts(self) -> np.ndarray:
        """A number for each row; rows that share an image_id have equal numbers."""
        names = self._table.column_names
        return _encoded(self._table["image_id"])[0] if "image_id" in names else np.arange(len(self._table))


def texts_in(table: pa.Table, languages: list[str] | None) -> dict[str, Selection]:
    index = CaptionIndex(table)
    chosen = {language: index.numbers_in(language) for language in languages or index.languages}
    return {language: (index.rows[numbers], {"": index.places[numbers]}) for language, numbers in chosen.items()}


def pairs_in(table: pa.Table, pairs: list[LanguagePair] | None, once: bool) -> dict[str, Selection]:
    """
    Args:
        once: give the same two texts for the same image_id in another row no second time.
    """
    index = CaptionIndex(table)
    repeating = once and len(np.unique(index.concepts)) < len(table)
    selections = {}
    for language_a, language_b in combinations(sorted(index.languages), 2) if pairs is None else pairs:
        a, b = _matched(index, index.numbers_in(language_a), index.numbers_in(language_b), aligned=True)
        rows = index.rows[a]
        if repeating:
            new = ~repeats(rows, index.concepts[rows], index.text_codes[a], index.text_codes[b])
            rows, a, b = rows[new], a[new], b[new]
        if len(rows) or pairs is not None:
            selections[f"{language_a} with {language_b}"] = rows, {"_a": index.places[a], "_b": index.places[b]}
    return selections or {"two languages": _NO_PAIRS}


def weak_pairs_in(table: pa.Table, languages: list[str] | None) -> dict[str, Selection]:
    """Every two texts of a row in different languages, in the order of `languages`; none for one that stands alone."""
    index = CaptionIndex(table)
    selections, met = {}, set()
    for language_a, language_b in combinations(languages or sorted(index.languages), 2):
        a, b = _matched(index, index.numbers_in(language_a), index.numbers_in(language_b), aligned=False)
        if len(a):
            places = {"_a": index.places[a], "_b": index.places[b]}
            selections[f"{language_a} with {language_b}"] = index.rows[a], places
            met |= {language_a, language_b}
    alone = [f"{language} and another of the languages" for language in languages or () if language not in met]
    return selections | dict.fromkeys(alone, _NO_PAIRS) or {"two languages": _NO_PAIRS}


def _matched(index: CaptionIndex, a: np.ndarray, b: np.ndarray, aligned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Captions `a` with captions `b`, row by row: all with all, but one to one if `aligned` and equally many."""
    size = index.rows[-1] + 1 if len(index.rows) else 0
    count_a, count_b = np.bincount(index.rows[a], minlength=size), np.bincount(index.rows[b], minlength=size)
    equal = (count_a == count_b) & aligned
    examples = np.where(equal, count_a, count_a * count_b)
    row = np.repeat(np.arange(size), examples)  # of each example
    step = np.arange(len(row)) - (np.cumsum(examples) - examples)[row]  # its number within the row
    offset_a = np.where(equal[row], step, step // count_b[row])
    offset_b = np.where(equal[row], step, step % count_b[row])
    return a[(np.cumsum(count_a) - count_a)[row] + offset_a], b[(np.cumsum(count_b) - count_b)[row] + offset_b]


def repeats(rows: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Which entries have the same keys as one of an earlier row. `rows` ascend."""
    key = np.zeros(len(rows), dtype=np.int64)
    for part in keys:
        _, key = np.unique(key * (part.max(initial=0) + 1) + part, return_inverse=True)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return rows[first][inverse] < rows


def _encoded(strings: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """A number for each string, and the string of each number."""
    distinct = pc.unique(strings)
    return pc.index_in(strings, value_set=distinct).to_numpy().astype(np.int64), distinct


def merged(selections: dict[str, Selection]) -> Selection:
    """All examples, row by row."""
    rows = np.concatenate([rows for rows, _ in selections.values()])
    order = np.argsort(rows, kind="stable")
    suffixes = next(iter(selections.values()))[1]
    places = {suffix: np.concatenate([places[suffix] for _, places in selections.values()]) for suffix in suffixes}
    return rows[order], {suffix: places[suffix][order] for suffix in suffixes}
