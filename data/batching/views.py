"""Views of a corpus: the examples that a task trains on, made from the rows of the corpus on access. A view stores two
or three integers for each example: its row, and the indices of its captions. Images, upright RGB, stay on disk until
an example is read. A corpus' `features` come in addition to its images, or instead of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations, islice
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, IterableDataset

from ...utils.errors import CorpusError
from ...utils.languages import normalize_language
from ..corpus.corpus import DOWNLOAD, IMAGE_URL, Languages, describe, languages_of, tags_of, undecoded
from ..corpus.images import image_bytes, read_image

Example = dict[str, Any]
LanguagePair = tuple[str, str]
# Suffix of the columns `text` and `language` -> index of each example's caption in its row's list [N].
Positions = dict[str, np.ndarray]
# The row of each example [N], ascending, and the positions of its captions.
Selection = tuple[np.ndarray, Positions]
Select = Callable[[Dataset], dict[str, Selection]]  # rows -> examples of each language or language pair

_IMAGES = ("image", "features", "image_id")
_TEXT_BLOCK = 10_000  # number of examples whose texts are read together
_STREAM_BLOCK = 256  # number of rows of a stream that are read together
_NOTHING = np.empty(0, dtype=np.int64)
_NO_PAIRS: Selection = (_NOTHING, {"_a": _NOTHING, "_b": _NOTHING})


def image_text_pairs(corpus: Dataset | IterableDataset, languages: Languages = None) -> "View":
    """Returns examples {image, image_id, text, language}: one for each caption in `languages`, by default all. A
    language without captions is an error (not checked for a stream).

    Examples:
        >>> view = image_text_pairs(load_captions("photos"), ["de", "fr"])
        >>> view[0]["text"], view[0]["language"]
    """
    return _view(corpus, partial(_texts_in, languages=tags_of(languages)), _IMAGES)


def translation_pairs(
    corpus: Dataset | IterableDataset,
    pairs: Iterable[LanguagePair] | None = None,
    languages: Languages = None,
    *,
    co_captions: bool = False,
) -> "View":
    """Returns examples {text_a, language_a, text_b, language_b}, with `image_id` if the corpus has it, without images.
    If a row has equally many captions in both languages, they are paired in order; otherwise every caption is paired
    with every other. Rows that share an `image_id` (drawings of one thing by several vendors, with the same names)
    give each pair of texts once; in a stream, only repetitions within a block of rows are detected.

    By default, `pairs` are all pairs of `languages` (or of all languages) that occur in the same row, in alphabetical
    order. With `co_captions`, a language paired with itself gives every two different captions of a row; by default,
    each caption is its own translation.
    """
    taken = partial(_pairs_in, pairs=_normal_pairs(pairs), languages=tags_of(languages), once=True)
    return _view(corpus, partial(taken, co_captions=co_captions), ("image_id",))


def triplets(
    corpus: Dataset | IterableDataset, pairs: Iterable[LanguagePair] | None = None, languages: Languages = None
) -> "View":
    """Returns examples {image, image_id, text_a, language_a, text_b, language_b}: one for each translation pair of an
    image. Arguments and errors are as in `translation_pairs`."""
    return _view(corpus, partial(_pairs_in, pairs=_normal_pairs(pairs), languages=tags_of(languages)), _IMAGES)


def weak_pairs(corpus: Dataset | IterableDataset, languages: Languages = None) -> "View":
    """Returns examples like those of `triplets`: one for each image and two of its texts in different languages; the
    earlier of two `languages`, by default all in alphabetical order, gives `text_a`. The texts need not be
    translations: they are weakly aligned (Zhou et al. 2023, RC3, section 2.1), like the captions of a photograph in
    several Wikipedias, so every text in one language is paired with every text in the other."""
    return _view(corpus, partial(_pairs_in, languages=tags_of(languages), aligned=False), _IMAGES)


class CorpusView(Sequence[Example]):
    """Examples made from the rows of a corpus on access. `columns` are those of the examples, except texts and
    languages; `rows` [N] and `positions` are those of each example and its captions."""

    def __init__(self, corpus: Dataset, columns: list[str], rows: np.ndarray, positions: Positions) -> None:
        self._corpus = undecoded(corpus.select_columns([*columns, "captions"])).with_format("arrow")
        self.columns = columns
        self.rows = rows
        self._positions = positions

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def corpus(self) -> Dataset:
        """The corpus of the examples, with encoded images."""
        return self._corpus.with_format(None)

    @property
    def images(self) -> "Images":
        """The images of the corpus; `rows` is the index of each example's image."""
        return Images(self.corpus)

    def texts(self) -> dict[str, list[str]]:
        """Returns the texts of all examples [N] and their languages by column name; no image is read."""
        index, columns = CaptionIndex(self._corpus), {}
        texts = index.texts.cast(pa.large_string())  # `take` fails on more than 2 GB of `string`
        first = np.searchsorted(index.rows, self.rows)  # first caption of each row
        for suffix, positions in self._positions.items():
            columns[f"text{suffix}"] = texts.take(pa.array(first + positions)).to_pylist()
            codes = index.language_codes[first + positions].tolist()
            columns[f"language{suffix}"] = [index.languages[code] for code in codes]
        return columns

    def by_language_pair(self) -> dict[str, np.ndarray]:
        """Returns the sorted indices of the examples of each language pair, described as in `de with en`."""
        index = CaptionIndex(self._corpus)
        first = np.searchsorted(index.rows, self.rows)  # first caption of each row
        sides = np.stack([index.language_codes[first + self._positions[side]] for side in ("_a", "_b")])
        found, pair = np.unique(np.sort(sides, axis=0), axis=1, return_inverse=True)
        names = [_pair_name(*sorted(index.languages[code] for code in codes)) for codes in found.T]
        return {name: np.flatnonzero(pair.ravel() == names.index(name)) for name in sorted(names)}

    def without_images(self) -> "CorpusView":
        columns = [column for column in self.columns if column != "image"]
        return CorpusView(self._corpus, columns, self.rows, self._positions)

    def __getitem__(self, index: int | slice) -> Any:
        rows = range(len(self))[index]  # which resolves negative indices
        return self.__getitems__(rows) if isinstance(rows, range) else self.__getitems__([rows])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        chosen = np.asarray(indices, dtype=np.int64)
        table = self._corpus[self.rows[chosen]]
        columns = {name: table[name].to_pylist() for name in self.columns}
        captions = table["captions"].combine_chunks()
        for suffix, positions in self._positions.items():
            taken = captions.values.take(pa.array(captions.offsets.to_numpy()[:-1] + positions[chosen]))
            columns |= {name + suffix: taken.field(name).to_pylist() for name in ("text", "language")}
        examples = (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
        return [_with_image(example, row) for row, example in zip(self.rows[chosen], examples, strict=True)]

    def __iter__(self) -> Iterator[Example]:
        """Yields the examples one by one; reads the texts of many at a time."""
        size = 1 if {"image", "features"} & {*self.columns} else _TEXT_BLOCK
        for start in range(0, len(self), size):
            yield from self[start : start + size]


class StreamView(Iterable[Example]):
    """Examples made from the rows of a stream as they are read; `select` selects those of a block of rows."""

    def __init__(self, corpus: IterableDataset, columns: list[str], select: Select) -> None:
        self.rows = undecoded(corpus.select_columns([*columns, "captions"]).with_format(None))
        self._columns = columns
        self._select = select

    def examples_of(self, rows: list[dict[str, Any]]) -> CorpusView:
        """Returns the examples of some `rows`; none if the rows have no text in the languages of the view."""
        block = Dataset.from_list(rows, features=self.rows.features)
        return CorpusView(block, self._columns, *_merged(self._select(block)))

    def __iter__(self) -> Iterator[Example]:
        rows = iter(self.rows)
        while block := list(islice(rows, _STREAM_BLOCK)):
            yield from self.examples_of(block)


View = CorpusView | Any  # a StreamView, if the corpus is a stream; the type checker does not read `datasets`


class Images(Sequence[PIL.Image.Image]):
    """The images of a corpus as upright RGB, each read on access."""

    def __init__(self, corpus: Dataset) -> None:
        self._corpus = undecoded(corpus.select_columns(["image", "image_id"]))

    def __len__(self) -> int:
        return len(self._corpus)

    def __getitem__(self, index: int | slice | list[int]) -> Any:
        row = index if isinstance(index, list) else range(len(self))[index]
        return _with_image(self._corpus[row], row)["image"] if isinstance(row, int) else [self[each] for each in row]

    def encoded(self, row: int) -> bytes:
        stored = self._corpus[row]
        return image_bytes(stored["image"], f"image_id {stored['image_id']!r}, row {row}")


class ImageFeatures:
    """The features that replace images in a corpus."""

    def __init__(self, corpus: Dataset) -> None:
        self._corpus = corpus.select_columns("features").with_format("numpy")

    def __len__(self) -> int:
        return len(self._corpus)

    def __getitem__(self, rows: Sequence[int]) -> np.ndarray:
        """Returns the features of some rows, float32 [n, F]."""
        by_row = self._corpus[rows]["features"]
        for row, features in zip(rows, by_row, strict=True):
            if features is None or not len(features) or not np.isfinite(features).all():
                raise CorpusError(f"row {row}: the features of an image must be a list of finite numbers")
        return np.stack(by_row)


def images_of(corpus: Dataset) -> Images | ImageFeatures:
    """Returns the images of a corpus, or its features if it has no images."""
    _refuse_addresses(corpus)
    return Images(corpus) if "image" in corpus.column_names else ImageFeatures(corpus)


def _view(corpus: Dataset | IterableDataset, select: Select, columns: Sequence[str]) -> View:
    if "captions" not in (corpus.column_names or []):
        raise CorpusError("the corpus has no column 'captions': use load_captions or load_translations first")
    if "image" in columns:
        _refuse_addresses(corpus)
    present = [column for column in columns if column in corpus.column_names]
    if isinstance(corpus, IterableDataset):
        return StreamView(corpus, present, select)
    selections = select(corpus)
    if absent := [languages for languages, (rows, _) in selections.items() if not len(rows)]:
        raise CorpusError(f"no row has texts in {', '.join(absent)}; the corpus has {describe(languages_of(corpus))}")
    return CorpusView(corpus, present, *_merged(selections))


def _refuse_addresses(corpus: Dataset | IterableDataset) -> None:
    names = corpus.column_names or []
    if IMAGE_URL in names and "image" not in names and "features" not in names:
        raise CorpusError(f"the corpus has addresses instead of images: {DOWNLOAD}")


def _normal_pairs(pairs: Iterable[LanguagePair] | None) -> list[LanguagePair] | None:
    if pairs is None:
        return None
    return list(dict.fromkeys((normalize_language(a), normalize_language(b)) for a, b in pairs))


def _with_image(example: Example, row: int) -> Example:
    if "image" in example:
        example["image"] = read_image(example["image"], f"image_id {example['image_id']!r}, row {row}")
    return example


class CaptionIndex:
    """All captions of a corpus, their `rows`, `positions` in the rows' lists, and `languages`; no image is read."""

    def __init__(self, corpus: Dataset) -> None:
        names = [name for name in ("image_id", "captions") if name in corpus.column_names]
        self._table = table = corpus.select_columns(names).with_format("arrow")[:]
        captions = pc.list_flatten(table["captions"])
        self.texts = pc.struct_field(captions, "text")
        self.rows = pc.list_parent_indices(table["captions"]).to_numpy()
        counts = np.bincount(self.rows, minlength=len(table))
        self.positions = np.arange(len(self.rows)) - (np.cumsum(counts) - counts)[self.rows]
        self.language_codes, languages = _encoded(pc.struct_field(captions, "language"))
        self.languages = languages.to_pylist()

    def captions_in(self, language: str) -> np.ndarray:
        if language not in self.languages:
            return _NOTHING
        return np.flatnonzero(self.language_codes == self.languages.index(language))

    @cached_property
    def text_codes(self) -> np.ndarray:
        """Returns an integer for each caption; equal texts have equal integers."""
        return _encoded(self.texts)[0]

    @cached_property
    def concepts(self) -> np.ndarray:
        """Returns an integer for each row; rows that share an image_id have equal integers."""
        names = self._table.column_names
        return _encoded(self._table["image_id"])[0] if "image_id" in names else np.arange(len(self._table))


def _texts_in(corpus: Dataset, languages: Sequence[str] | None) -> dict[str, Selection]:
    index = CaptionIndex(corpus)
    captions = {language: index.captions_in(language) for language in languages or index.languages}
    return {language: (index.rows[own], {"": index.positions[own]}) for language, own in captions.items()}


def _pairs_in(
    corpus: Dataset,
    pairs: list[LanguagePair] | None = None,
    languages: Sequence[str] | None = None,
    *,
    once: bool = False,
    co_captions: bool = False,
    aligned: bool = True,
) -> dict[str, Selection]:
    """Selects pairs of captions as `translation_pairs` describes, by the description of their languages; empty for a
    pair, or a language, that does not occur with another. `once` selects a pair of texts once from all rows with one
    image_id; without `aligned`, every caption is paired with every other."""
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
            new = ~_repeats(rows, index.concepts[rows], index.text_codes[a], index.text_codes[b])
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


def _repeats(rows: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Returns which entries have the same keys as an entry of an earlier row; `rows` [N] ascend. -> boolean [N]"""
    key = np.zeros(len(rows), dtype=np.int64)
    for part in keys:
        _, key = np.unique(key * (part.max(initial=0) + 1) + part, return_inverse=True)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return rows[first][inverse] < rows


def _encoded(strings: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    distinct = pc.unique(strings)
    return pc.index_in(strings, value_set=distinct).to_numpy().astype(np.int64), distinct


def _merged(selections: dict[str, Selection]) -> Selection:
    rows = np.concatenate([rows for rows, _ in selections.values()])
    order = np.argsort(rows, kind="stable")
    suffixes = next(iter(selections.values()))[1]
    positions = {suffix: np.concatenate([own[suffix] for _, own in selections.values()]) for suffix in suffixes}
    return rows[order], {suffix: positions[suffix][order] for suffix in suffixes}


# ---- Retrieval ----


@dataclass(frozen=True)
class RetrievalSet:
    """Queries in one language, the searched images, and the correct ones."""

    language: str  # of the texts
    images: Images | ImageFeatures  # [n_images], read on access, or their features
    image_ids: list[str]  # [n_images]
    texts: list[str]  # [n_texts]; a text is listed once for all rows that share an image_id
    text_image_ids: list[str]  # the image_id that each text describes [n_texts]
    text_to_images: list[list[int]]  # for each text, the indices of all images with its image_id
    rows: np.ndarray  # the row of each image in the corpus [n_images]

    def with_equal_texts(self) -> "RetrievalSet":
        """Returns the same queries, but a text is correct for every image that has an equal caption. By `image_id`,
        chance decides between two images with the same caption, and no model can find both."""
        by_text: dict[str, set[int]] = defaultdict(set)
        for text, images in zip(self.texts, self.text_to_images, strict=True):
            by_text[text].update(images)
        return replace(self, text_to_images=[sorted(by_text[text]) for text in self.texts])


def retrieval_set(corpus: Dataset, language: str, *, only_captioned: bool = False) -> RetrievalSet:
    """Returns the captions of a corpus in one language and its images, for retrieval in both directions. All languages
    search all images, so results compare; with `only_captioned`, those with a caption in it (WIT's protocol)."""
    return RetrievalSets(corpus).of(language, only_captioned=only_captioned)


class RetrievalSets:
    """Makes a `retrieval_set` for several languages of one corpus, whose captions are read once."""

    def __init__(self, corpus: Dataset) -> None:
        if isinstance(corpus, IterableDataset):
            raise CorpusError("retrieval ranks all images at once, and cannot use a stream: load it as a Dataset")
        self._corpus = corpus
        self._index = CaptionIndex(corpus)
        self._image_ids = np.array(corpus["image_id"][:], dtype=object)

    def of(self, language: str, *, only_captioned: bool = False) -> RetrievalSet:
        language, index = normalize_language(language), self._index
        captions = index.captions_in(language)
        if not len(captions):
            raise CorpusError(f"no captions in {language}; the corpus has {describe(languages_of(self._corpus))}")
        rows = index.rows[captions]
        searched = np.unique(rows) if only_captioned else np.arange(len(self._corpus))
        captions = captions[~_repeats(rows, index.concepts[rows], index.text_codes[captions])]
        image_ids, described = (self._image_ids[each].tolist() for each in (searched, index.rows[captions]))
        places: dict[str, list[int]] = defaultdict(list)
        for place, image_id in enumerate(image_ids):
            places[image_id].append(place)
        return RetrievalSet(
            language,
            images_of(self._corpus.select(searched) if only_captioned else self._corpus),
            image_ids,
            texts=index.texts.take(pa.array(captions)).to_pylist(),
            text_image_ids=described,
            text_to_images=[places[image_id] for image_id in described],
            rows=searched,
        )
