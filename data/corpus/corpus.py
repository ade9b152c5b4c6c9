"""The caption corpus, in which babelens stores images with captions: a dataset or a stream with the columns

    image       datasets.Image
    image_id    string: what the image shows; rows that share it are never negatives of each other
    captions    list of {language, text}; languages are canonical BCP 47 tags
    features    list of float32, optional: precomputed image features
    split       string, optional

in this order, and any other columns after them. A translation corpus has the same form without images.
"""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations_with_replacement, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, List, Value, concatenate_datasets

from ...utils.errors import CorpusError

Caption = dict[str, str]  # {"language": …, "text": …}
CAPTIONS = List({"language": Value("string"), "text": Value("string")})
FEATURES = List(Value("float32"))
IMAGE_URL = "image_url"  # URL of an image that was not downloaded
DOWNLOAD = "download the images (img2dataset does), and name the files"

_PART_ROWS = 10_000  # number of rows held as Python objects


def image_id_of(value: Any, place: str) -> str:
    nothing = value is None or (isinstance(value, float) and not math.isfinite(value))
    if nothing or isinstance(value, bool | list | dict) or not str(value).strip():
        raise CorpusError(f"{place}: image_id is {value!r}; give every row an id or drop the column")
    return str(value)


def captions_of(corpus: Dataset) -> pa.ChunkedArray:
    """Returns the captions as one Arrow column, list<struct<language, text>>; no other column is read."""
    return corpus.select_columns("captions").with_format("arrow")[:]["captions"]


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
    """Returns the indices of `count` evenly spaced rows among `size`; all if there are fewer.

    >>> evenly_spaced(10, 4)
    [0, 2, 5, 7]
    """
    count = min(count, size)
    return [index * size // count for index in range(count)]


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
