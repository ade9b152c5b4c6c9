"""Views of a corpus: what a task eats, made from the rows when asked for.

    image_text_pairs   image, image_id, text, language                      one for every caption
    translation_pairs  text_a, language_a, text_b, language_b, (image_id)   one for every two texts that say the same
    triplets           the columns of both                                  one for every image and two such texts
    weak_pairs         the same                                             and two texts in different languages
    retrieval_set      the queries, images and right answers of one language

A view holds two or three numbers for each example, found with Arrow in the captions alone: the row, and which of the
row's captions it takes. Images stay on disk until an example is read, and come as upright RGB. A view of a stream
gives the same examples, block by block of its rows. Examples carry a corpus's `features` beside the image, or in its
place without one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, overload

import numpy as np
import PIL.Image
import pyarrow as pa
from datasets import Dataset, Image, IterableDataset

from ...configuration.errors import CorpusError
from ...configuration.languages import normalize_language, normalize_languages
from ..corpus.caption_index import (
    CaptionIndex,
    LanguagePair,
    Places,
    Selection,
    merged,
    pairs_in,
    repeats,
    texts_in,
    weak_pairs_in,
)
from ..corpus.corpus import describe, languages_of
from ..corpus.images import image_bytes, read_image

Example = dict[str, Any]
Select = Callable[[pa.Table], dict[str, Selection]]  # the examples of rows, for every language or pair of languages

_STREAM_BLOCK = 256  # rows of a stream that are looked at together


def image_text_pairs(
    corpus: Dataset | IterableDataset, languages: str | list[str] | tuple[str, ...] | None = None
) -> "View":
    """Examples {image, image_id, text, language}: one for every caption in `languages`, by default in any.

    Raises:
        CorpusError: when the corpus has no caption in one of the languages. (A stream cannot know.)
        LanguageTagError: for an unknown language.
    """
    wanted = None if languages is None else normalize_languages(languages)
    return _view("image_text_pairs", corpus, partial(texts_in, languages=wanted), ["image", "features", "image_id"])


def translation_pairs(corpus: Dataset | IterableDataset, pairs: Iterable[LanguagePair] | None = None) -> "View":
    """Examples {text_a, language_a, text_b, language_b}, with `image_id` where the corpus has it. No image is read.

    Where both languages have equally many captions in a row, the first says the same as the first, and so on; else
    every caption is paired with every other. Rows that share an `image_id` (drawings of one thing by several artists,
    under the same names) give every pair of texts once; a stream sees only repetitions that stand close together.

    Args:
        corpus: a caption corpus or a translation corpus.
        pairs: (language_a, language_b) tuples; by default every two languages that meet in a row,
            in alphabetical order.

    Raises:
        CorpusError: when no row has texts in both languages of a pair. (A stream cannot know.)
        LanguageTagError: for an unknown language.
    """
    select = partial(pairs_in, pairs=_normal_pairs(pairs), once=True)
    return _view("translation_pairs", corpus, select, ["image_id"])


def triplets(corpus: Dataset | IterableDataset, pairs: Iterable[LanguagePair] | None = None) -> "View":
    """Examples {image, image_id, text_a, language_a, text_b, language_b}: every image with every pair of its texts.

    Texts are paired, and errors raised, as in `translation_pairs`.
    """
    select = partial(pairs_in, pairs=_normal_pairs(pairs), once=False)
    return _view("triplets", corpus, select, ["image", "features", "image_id"])


def weak_pairs(
    corpus: Dataset | IterableDataset, languages: str | list[str] | tuple[str, ...] | None = None
) -> "View":
    """Examples as of `triplets`: every image with every two of its texts in different languages.

    The texts say something of the same image and need not say the same: they are weakly aligned (Zhou et al. 2023,
    RC3, section 2.1), as are the captions that Wikipedias in different languages write under one photograph.
    Every text of one language meets every one of the other, however many there are.

    Args:
        corpus: a caption corpus.
        languages: of the texts, by default all in alphabetical order; an earlier one gives `text_a`.

    Raises:
        CorpusError: when a language never meets another of them in a row. (A stream cannot know.)
        LanguageTagError: for an unknown language.
    """
    wanted = None if languages is None else normalize_languages(languages)
    select = partial(weak_pairs_in, languages=wanted)
    return _view("weak_pairs", corpus, select, ["image", "features", "image_id"])


@dataclass(frozen=True)
class RetrievalSet:
    """Queries in one language, the images they search, and which images are right for which text.

    Attributes:
        language: of the texts.
        images: the images [n_images], read when asked for, or their features.
        image_ids: what each image shows [n_images].
        texts: the captions [n_texts]; rows that share an image_id give the same text once.
        text_image_ids: what each text describes [n_texts].
        text_to_images: for each text, the positions of all images of what it describes [n_texts][1 or more].
    """

    language: str
    images: "Images | ImageFeatures"
    image_ids: list[str]
    texts: list[str]
    text_image_ids: list[str]
    text_to_images: list[list[int]]


def retrieval_set(corpus: Dataset, language: str, *, only_captioned: bool = False) -> RetrievalSet:
    """The captions of `language` and the images of `corpus`, for retrieval in both directions.

    All languages search the same images, those of the whole corpus, so that their results can be compared.

    Args:
        only_captioned: leave out images without a caption in `language` (the protocol of WIT, where every language
            has images of its own).

    Raises:
        CorpusError: when the corpus has no caption in `language`, or is a stream: ranking needs all images.
    """
    language = normalize_language(language)
    if isinstance(corpus, IterableDataset):
        raise CorpusError("retrieval ranks all images at once, and a stream has no end in sight: load it as a Dataset")
    index = CaptionIndex(_text_table(corpus))
    numbers = index.numbers_in(language)
    if not len(numbers):
        raise CorpusError(f"no captions in {language}; the corpus has {describe(languages_of(corpus))}")
    if only_captioned:
        return retrieval_set(corpus.select(np.unique(index.rows[numbers])), language)
    numbers = numbers[~repeats(index.rows[numbers], index.concepts[index.rows[numbers]], index.text_codes[numbers])]
    image_ids = list(corpus["image_id"])
    positions: dict[str, list[int]] = {}
    for position, image_id in enumerate(image_ids):
        positions.setdefault(image_id, []).append(position)
    text_image_ids = [image_ids[row] for row in index.rows[numbers]]
    return RetrievalSet(
        language=language,
        images=images_of(corpus),
        image_ids=image_ids,
        texts=index.texts.take(pa.array(numbers)).to_pylist(),
        text_image_ids=text_image_ids,
        text_to_images=[positions[image_id] for image_id in text_image_ids],
    )


class CorpusView(Sequence[Example]):
    """Examples made from the rows of a corpus when asked for; it pickles, and reads batches at once."""

    def __init__(self, name: str, corpus: Dataset, columns: list[str], rows: np.ndarray, places: Places) -> None:
        """
        Args:
            name: what the view is called.
            corpus: where the examples come from.
            columns: what they carry beside texts and languages.
            rows: the row of each example [N].
            places: which of its row's captions each example takes [N], by suffix of its columns text and language.
        """
        self._name = name
        self._corpus = _undecoded(corpus.select_columns([*columns, "captions"])).with_format("arrow")
        self._columns = columns
        self._rows = rows
        self._places = places

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def corpus(self) -> Dataset:
        """Where the examples come from, images undecoded."""
        return self._corpus.with_format(None)

    @property
    def images(self) -> "Images":
        """The images of the corpus; `rows` says which one each example has."""
        return Images(self.corpus)

    @property
    def rows(self) -> np.ndarray:
        """The row of the corpus that each example is made from [N]."""
        return self._rows

    def without_images(self) -> "CorpusView":
        """The same examples, of which no image is read."""
        columns = [column for column in self._columns if column != "image"]
        return CorpusView(self._name, self._corpus, columns, self._rows, self._places)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return self.__getitems__(range(len(self))[index])
        return self.__getitems__([range(len(self))[index]])[0]  # the range counts negative indices from the end

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        chosen = np.asarray(indices, dtype=np.int64)
        rows = self._rows[chosen]
        table = self._corpus[rows]
        columns = {name: table[name].to_pylist() for name in self._columns}
        places = {suffix: places[chosen] for suffix, places in self._places.items()}
        columns |= _text_columns(table["captions"].combine_chunks(), places)
        return [_with_image(example, row) for row, example in zip(rows, _examples(columns), strict=True)]

    def __repr__(self) -> str:
        columns = ", ".join(
            [*self._columns, *(name + suffix for suffix in self._places for name in ("text", "language"))]
        )
        return f"{self._name}: {len(self):,} examples ({columns}) from {len(self._corpus):,} rows"


class StreamView(Iterable[Example]):
    """Examples made from the rows of a stream, read in passing: a block of rows becomes a `CorpusView`."""

    def __init__(self, name: str, corpus: IterableDataset, columns: list[str], select: Select) -> None:
        """
        Args:
            name: what the view is called.
            corpus: where the examples come from.
            columns: what they carry beside texts and languages.
            select: finds the examples of rows.
        """
        self._name = name
        self._rows = _undecoded(corpus.select_columns([*columns, "captions"]).with_format(None))
        self._columns = columns
        self._select = select

    @property
    def rows(self) -> IterableDataset:
        """The rows of the stream, their images unread."""
        return self._rows

    def examples_of(self, rows: list[dict[str, Any]]) -> CorpusView:
        """The examples of some of the `rows`, none where they have no text in the view's languages."""
        block = Dataset.from_list(rows, features=self._rows.features)
        return CorpusView(self._name, block, self._columns, *merged(self._select(_text_table(block))))

    def __iter__(self) -> Iterator[Example]:
        rows = iter(self._rows)
        while block := list(islice(rows, _STREAM_BLOCK)):
            yield from self.examples_of(block)

    def __repr__(self) -> str:
        return f"{self._name}: examples of a stream of {self._rows.num_shards:,} shards"


View = CorpusView | Any  # a StreamView of a stream, which the type checker cannot tell from a Dataset


class Images(Sequence[PIL.Image.Image]):
    """The images of a corpus as upright RGB, each read when asked for."""

    def __init__(self, corpus: Dataset) -> None:
        self._corpus = _undecoded(corpus.select_columns(["image", "image_id"]))

    def __len__(self) -> int:
        return len(self._corpus)

    @overload
    def __getitem__(self, index: int) -> PIL.Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> list[PIL.Image.Image]: ...
    def __getitem__(self, index: int | slice) -> PIL.Image.Image | list[PIL.Image.Image]:
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        row = range(len(self))[index]
        return _with_image(self._corpus[row], row)["image"]

    def encoded(self, row: int) -> bytes:
        """An image as it is stored, undecoded."""
        stored = self._corpus[row]
        return image_bytes(stored["image"], f"image_id {stored['image_id']!r}, row {row}")

    def __repr__(self) -> str:
        return f"Images: {len(self):,}, read when asked for"


class ImageFeatures:
    """The features that a corpus has in the place of images, [N] rows of float32."""

    def __init__(self, corpus: Dataset) -> None:
        self._corpus = corpus.select_columns("features").with_format("numpy")

    def __len__(self) -> int:
        return len(self._corpus)

    def __getitem__(self, rows: Sequence[int]) -> np.ndarray:
        """Those of some rows, [n, F].

        Raises:
            CorpusError: when a row has none, or numbers that are not finite, or they are not equally long.
        """
        found = self._corpus[rows]["features"]
        for row, features in zip(rows, found, strict=True):
            if features is None or not len(features) or not np.isfinite(features).all():
                raise CorpusError(f"row {row}: the features of an image are a list of finite numbers")
        sizes = sorted({len(features) for features in found})
        if len(sizes) > 1:
            raise CorpusError(f"features of images are of one length, not of {' and '.join(map(str, sizes))} numbers")
        return np.stack(found)


def images_of(corpus: Dataset) -> Images | ImageFeatures:
    """What a corpus has of its images: themselves or, in their place, features."""
    return Images(corpus) if "image" in corpus.column_names else ImageFeatures(corpus)


def _view(
    name: str,
    corpus: Dataset | IterableDataset,
    select: Select,
    columns: list[str],
) -> View:
    """The view whose examples `select` finds, from the rows' captions, for every language or pair of languages."""
    if "captions" not in (corpus.column_names or []):
        raise CorpusError("no column 'captions': bring it into form with as_caption_corpus or as_translation_corpus")
    columns = [column for column in columns if column in corpus.column_names]
    if isinstance(corpus, IterableDataset):
        return StreamView(name, corpus, columns, select)
    selections = select(_text_table(corpus))
    absent = [languages for languages, (rows, _) in selections.items() if not len(rows)]
    if absent:
        raise CorpusError(f"no row has texts in {', '.join(absent)}; the corpus has {describe(languages_of(corpus))}")
    return CorpusView(name, corpus, columns, *merged(selections))


def _text_table(corpus: Dataset) -> pa.Table:
    """The columns that say which examples there are; no image is read."""
    names = [name for name in ("image_id", "captions") if name in corpus.column_names]
    return corpus.select_columns(names).with_format("arrow")[:]


def _undecoded(corpus: Dataset | IterableDataset) -> Any:
    """With images as {bytes, path}: `read_image` opens them, with its guards."""
    return corpus.cast_column("image", Image(decode=False)) if "image" in corpus.column_names else corpus


def _normal_pairs(pairs: Iterable[LanguagePair] | None) -> list[LanguagePair] | None:
    if pairs is None:
        return None
    normal = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise CorpusError(f"{pair!r} is no pair of languages; give a list such as [('en', 'de'), ('en', 'ja')]")
        normal.append((normalize_language(pair[0]), normalize_language(pair[1])))
    return list(dict.fromkeys(normal))


# ------------------------------------------------------------------------------------------ what an example holds


def _text_columns(captions: pa.ListArray, places: Places) -> dict[str, list[str]]:
    """The columns text and language of examples: of each one's captions, that at its place."""
    columns = {}
    for suffix, chosen in places.items():
        taken = captions.values.take(pa.array(captions.offsets.to_numpy()[:-1] + chosen))
        columns["text" + suffix] = taken.field("text").to_pylist()
        columns["language" + suffix] = taken.field("language").to_pylist()
    return columns


def _examples(columns: dict[str, list[Any]]) -> Iterator[Example]:
    return (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))


def _with_image(example: Example, row: int | None = None) -> Example:
    if "image" not in example:
        return example
    place = f"image_id {example['image_id']!r}" + (f", row {row}" if row is not None else "")
    return example | {"image": read_image(example["image"], place)}
