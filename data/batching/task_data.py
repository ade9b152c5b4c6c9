"""Which part of a corpus a task is trained or evaluated on."""

from dataclasses import dataclass

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
