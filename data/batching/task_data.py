"""Which part of a corpus a task is trained or evaluated on, and the labels of its positive pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from datasets import Dataset, IterableDataset


@dataclass(frozen=True)
class TaskData:
    """A corpus, and the languages or language pairs of it that a task uses.

    Args:
        corpus: a caption corpus, a translation corpus or the data of a task, or a stream of one.
        languages: the languages of the captions; by default those of the training arguments, or else all languages.
        pairs: the language pairs of the translations; by default all pairs.
    """

    corpus: Dataset | IterableDataset
    languages: list[str] | None = None
    pairs: list[tuple[str, str]] | None = None


# ---- Labels of positive pairs ----
# Labels of images and texts, by which a loss finds the pairs that are positives of each other.

# By which two pairs may be positives of each other: the same image, or the same text on either side.
IDENTITY_COLUMNS = ("image_id", "text", "text_a", "text_b")
# The column of labels that were computed before, in the place of the columns above.
IDENTITIES = "identities"


def identity_label(value: str) -> int:
    """A 63-bit label of a string, which is the same in every process."""
    return int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "big") >> 1


def labels_of(columns: Mapping[str, Sequence[str]], *, equal_texts: bool = True) -> np.ndarray:
    """The labels of examples; two of them are a pair of positives if they have an equal label in the same column.

    Args:
        columns: name -> the column [N] of all examples; names other than `IDENTITY_COLUMNS` are ignored.
        equal_texts: whether pairs with an equal text, on the same side, are positives of each other, as pairs with the
            same image always are.

    Returns:
        int64 [N, k], for k groups of columns in the order of `IDENTITY_COLUMNS`.
    """
    groups = _groups([name for name in IDENTITY_COLUMNS if name in columns], equal_texts)
    joined = ((columns[name] for name in group) for group in groups)
    return np.array(
        [[identity_label("\0".join(values)) for values in zip(*group, strict=True)] for group in joined],
        dtype=np.int64,
    ).T


def _groups(columns: list[str], equal_texts: bool) -> list[list[str]]:
    """The groups of columns of which the examples of a positive pair have equal values."""
    if equal_texts:
        return [[column] for column in columns]
    return [["image_id"]] if "image_id" in columns else [columns]  # a repeated pair is not its own negative
