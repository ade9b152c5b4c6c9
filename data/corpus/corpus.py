"""The caption corpus, in which babelens stores images with captions: a dataset or a stream with the columns

    image       datasets.Image
    image_id    string: what the image shows; rows that share it are never negatives of each other
    captions    list of {language, text}; languages are canonical BCP 47 tags
    features    list of float32, optional: precomputed image features
    split       string, optional

in this order, and any other columns after them. A translation corpus has the same form without images. Captions of any
accepted form become a list of {language, text}, and every row that is left out is counted. Training and test data
overlap if image files, or texts, are equal.
"""

import hashlib
import logging
import math
import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, Image, IterableDataset, List, Value, concatenate_datasets

from ...processing.images import truncated_repr
from ...utils.errors import CorpusError, LanguageTagError
from ...utils.language_matching import counts_as
from ...utils.languages import normalize_language, normalize_languages
from .images import image_bytes

AnyDataset = TypeVar("AnyDataset", Dataset, IterableDataset)
Corpora = Mapping[str, Dataset | IterableDataset]  # by name
Caption = dict[str, str]  # {"language": …, "text": …}
Languages = str | list[str] | tuple[str, ...] | None  # tags; None means all languages
CAPTIONS = List({"language": Value("string"), "text": Value("string")})
FEATURES = List(Value("float32"))
IMAGE_URL = "image_url"  # URL of an image that was not downloaded
PLACE = "__place__"  # the names of a table's rows in messages, such as `pairs.tsv line 3`; not kept in a corpus
DOWNLOAD = "download the images (img2dataset does), and name the files"
MAX_CHARACTERS = 10_000  # of a text; longer ones are refused

_PART_ROWS = 10_000  # number of rows held as Python objects
_NAMED_ROWS = 10  # number of rows that the log names for each reason

logger = logging.getLogger(__name__)


def image_id_of(value: Any, place: str) -> str:
    nothing = value is None or (isinstance(value, float) and not math.isfinite(value))
    if nothing or isinstance(value, bool | list | dict) or not str(value).strip():
        raise CorpusError(f"{place}: image_id is {value!r}; give every row an id or drop the column")
    return str(value)


def captions_of(corpus: Dataset) -> pa.ChunkedArray:
    """Returns the captions as one Arrow column, list<struct<language, text>>; no other column is read."""
    return corpus.select_columns("captions").with_format("arrow")[:]["captions"]


def undecoded(corpus: AnyDataset) -> AnyDataset:
    """Returns the corpus with images as {bytes, path}, which `read_image` decodes and checks."""
    return corpus.cast_column("image", Image(decode=False)) if "image" in corpus.column_names else corpus


def with_captions(corpus: Dataset, captions: Iterable[list[Caption]]) -> Dataset:
    """Replaces the captions of a corpus; the order of columns stays."""
    rows = ({"captions": row} for row in captions)
    parts = []
    while part := list(islice(rows, _PART_ROWS)):  # stored compactly in Arrow before more rows are made
        parts.append(Dataset.from_list(part, features=Features(captions=CAPTIONS)))
    others, made = corpus.remove_columns("captions"), concatenate_datasets(parts)
    whole = concatenate_datasets([others, made], axis=1) if others.column_names else made
    return whole.select_columns(corpus.column_names)


def evenly_spaced(size: int, count: int) -> list[int]:
    """Returns the indices of `count` evenly spaced rows among `size`; all if there are fewer."""
    count = min(count, size)
    return [index * size // count for index in range(count)]


def tags_of(languages: Languages) -> tuple[str, ...] | None:
    return None if languages is None else tuple(normalize_languages(languages))


def languages_of(corpus: Dataset) -> dict[str, int]:
    """Returns language -> number of its captions, most frequent first."""
    tags = pc.value_counts(pc.struct_field(pc.list_flatten(captions_of(corpus)), "language"))
    counts = {tag["values"]: tag["counts"] for tag in tags.to_pylist()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def images_by_language_pair(corpus: Dataset) -> dict[tuple[str, str], int]:
    """Returns two sorted languages -> number of images with a text in both, as in RC3's table 5 (Zhou et al. 2023)."""
    chunks = captions_of(corpus).chunks
    languages = (pa.ListArray.from_arrays(part.offsets, part.values.field("language")) for part in chunks)
    pairs = (combinations_with_replacement(sorted({*own.as_py()}), 2) for part in languages for own in part)
    return dict(sorted(Counter(pair for own in pairs for pair in own).items()))


def describe(languages: dict[str, int]) -> str:
    """Describes languages and their counts: 'en (120), de (80)'."""
    return ", ".join(f"{language} ({count})" for language, count in languages.items())


def enumeration(names: Sequence[str], shown: int = 10, total: int | None = None, between: str = "; ") -> str:
    """Lists names; `total` counts those that are not even in `names`."""
    more = (total or len(names)) - len(names[:shown])
    return between.join([*names[:shown], *([f"and {more:,} more"] if more else [])])


@dataclass
class RowCount:
    """Counts the rows of a source that are read, or left out for a reason. A refused row raises an error."""

    source: str
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    _named: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, reason: str, row: str | None = None) -> None:
        """Counts a row as left out. `row` is its name in the log; None if the caller asked to leave it out."""
        self.left_out[reason] += 1
        if row is not None and len(rows := self._named.setdefault(reason, [])) < _NAMED_ROWS:
            rows.append(row.removeprefix(f"{self.source} "))

    def report(self) -> None:
        """Logs the counts in one line, as a warning if rows were left out without the caller asking for it."""
        reasons = [
            f"{count:,} {reason}" + (f" ({enumeration(rows, total=count, between=', ')})" if rows else "")
            for reason, count in (+self.left_out).most_common()
            for rows in [self._named.get(reason, [])]
        ]
        if reasons:
            counts = f"read {self.read:,} of {self.read + self.left_out.total():,} rows; left out {'; '.join(reasons)}"
            logger.log(logging.WARNING if self._named else logging.INFO, "%s: %s", self.source, counts)


@dataclass(frozen=True)
class CaptionRules:
    """Decides which captions a corpus accepts and keeps. A caption in `en-US` counts as `en` among the languages to
    keep, unless the row has one in `en`."""

    language: str | None = None  # of plain-text captions
    languages: tuple[str, ...] | None = None  # canonical tags; rows without a caption in any of them are left out
    at_least: int = 1  # number of texts in a row: one for an image, two for a translation
    skip_incomplete: bool = False  # leave out rows with fewer texts with a warning, instead of refusing them


def normalize_row(value: Any, rules: CaptionRules, place: str, count: RowCount | None = None) -> list[Caption]:
    """Returns the captions of a row, and counts it; an empty list for a row to leave out. The value is a list of
    {language, text}; {language: text, texts or None}; or, if `rules.language` is given, one text or several."""
    count = count or RowCount("captions")
    try:
        captions = [{"language": language, "text": _checked(text)} for language, text in _tagged(value, rules)]
    except (CorpusError, LanguageTagError) as error:
        raise type(error)(f"{place}: {error}") from None
    if len(captions) < rules.at_least:
        if rules.skip_incomplete:
            count.leave_out("with too few texts", place)
            return []
        absent = [language for language, text in value.items() if not text] if isinstance(value, dict) else []
        empty = f" (nothing in {', '.join(absent)})" if absent else ""
        raise CorpusError(f"{place}: {len(captions)} texts{empty}, but a row needs at least {rules.at_least}")
    if rules.languages is not None:
        given = {caption["language"] for caption in captions}
        under = [(caption, counts_as(caption["language"], rules.languages)) for caption in captions]
        captions = [
            caption | {"language": tag}
            for caption, tag in under
            if tag is not None and (tag == caption["language"] or tag not in given)
        ]
        if len(captions) < rules.at_least:
            needed = "a text" if rules.at_least == 1 else f"{rules.at_least} texts"
            count.leave_out(f"without {needed} in {', '.join(rules.languages)}")
            return []
    count.read += 1
    return captions


def _tagged(value: Any, rules: CaptionRules) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value.keys() == {"language", "translation"}:  # `TranslationVariableLanguages`
        pairs = zip(listed(value["language"]), listed(value["translation"]), strict=True)
        value = [{"language": language, "text": text} for language, text in pairs]
    if isinstance(value, dict):
        # Arrow gives every row the keys of all rows.
        tags = [(normalize_language(tag), texts) for tag, texts in value.items() if texts is not None]
        if repeated := [language for language, count in Counter(tag for tag, _ in tags).items() if count > 1]:
            raise CorpusError(f"language {repeated[0]!r} is given twice, in {', '.join(map(repr, value))}")
        yield from ((language, text) for language, texts in tags for text in listed(texts))
        return
    for caption in listed(value):
        is_tagged = isinstance(caption, dict) and caption.keys() == {"language", "text"}
        tag, text = (caption["language"], caption["text"]) if is_tagged else (None, caption)
        if tag is None and rules.language is None:
            name = "language='en', language_column='lang', or for a trainer, languages=['en']"
            raise CorpusError(f"{truncated_repr(text)} has no language; name it, as in {name}")
        yield rules.language or "" if tag is None else normalize_language(tag), text


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def captions_in(texts: Mapping[str, Any]) -> list[Caption]:
    """Returns the captions in {language: text, texts or None}."""
    return [{"language": tag, "text": text} for tag, own in texts.items() for text in listed(own) if text is not None]


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise CorpusError(f"{truncated_repr(text)} is not a text")
    if not text or text.isspace():
        raise CorpusError("a text is empty")
    if len(text) > MAX_CHARACTERS:
        raise CorpusError(
            f"a text of {len(text)} characters ({truncated_repr(text)}), where {MAX_CHARACTERS} are allowed"
        )
    return text


# ---- Overlap of training and test data ----


@dataclass(frozen=True)
class Overlap:
    """Number of distinct held-out `images` or `texts`, and of those that are also in the training data; `unchecked`
    data, such as streams, were not compared."""

    kind: str
    total: int
    same: int
    unchecked: tuple[str, ...] = ()

    @property
    def is_notable(self) -> bool:
        """Returns whether results may be too good. One text in a hundred is a name or a single word."""
        return self.same > (0.01 * self.total if self.kind == "texts" else 0)

    def __str__(self) -> str:
        found = f"{self.same:,} of the {self.total:,} held-out {self.kind} are also in the training data"
        return found + (f" ({', '.join(self.unchecked)} not compared)" if self.unchecked else "")


def corpus_overlaps(held_out: Dataset, *, images: Corpora, texts: Corpora) -> list[Overlap]:
    """Compares a held-out corpus with the images and the texts that are trained on, except streams and features."""
    found = []
    if images and "image" in held_out.column_names:
        at_hand, others = _with_column(images, "image")
        ours = list(_image_files(held_out))
        sizes = {size for size, _ in ours}  # only files as large as a held-out one are read
        trained = {digest for corpus in at_hand for _, digest in _image_files(corpus, sizes)}
        found.append(Overlap("images", len(held_out), sum(digest in trained for _, digest in ours), others))
    if texts and "captions" in held_out.column_names:
        at_hand, others = _with_column(texts, "captions")
        distinct = _distinct_texts(held_out)
        same = distinct & {text for corpus in at_hand for text in _distinct_texts(corpus)}
        found.append(Overlap("texts", len(distinct), len(same), others))
    return found


def _with_column(given: Corpora, column: str) -> tuple[list[Dataset], tuple[str, ...]]:
    found = {name: data for name, data in given.items() if isinstance(data, Dataset) and column in data.column_names}
    return list(found.values()), tuple(name for name in given if name not in found)


def _distinct_texts(corpus: Dataset) -> set[str]:
    texts = pc.unique(pc.struct_field(pc.list_flatten(captions_of(corpus)), "text")).to_pylist()
    return {" ".join(unicodedata.normalize("NFC", text).split()) for text in texts}


def _image_files(corpus: Dataset, sizes: Collection[int] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yields (size, digest) of the readable local image files; if `sizes` is given, only files of those sizes."""
    for row, cell in enumerate(undecoded(corpus.select_columns("image"))):
        try:
            image = cell["image"]
            size = os.path.getsize(image["path"]) if image["bytes"] is None else len(image["bytes"])
            if sizes is None or size in sizes:
                yield size, hashlib.sha256(image_bytes(image, f"row {row}")).digest()
        except (CorpusError, OSError, TypeError):  # not on this machine, or not an image: refused on use
            continue
