"""Parallel texts: for each row of a corpus one text in every language, as analyses of languages compare them."""

from collections.abc import Mapping
from dataclasses import dataclass

import datasets
import numpy as np
import pyarrow as pa

from ...configuration.errors import CorpusError
from ...configuration.languages import normalize_languages
from ...data.corpus.caption_index import CaptionIndex
from ...data.corpus.corpus import describe, languages_of
from ...data.corpus.sampling import evenly_spread
from ...inference.embedder import Embedder


@dataclass(frozen=True)
class ParallelTexts:
    """Texts of the same meaning in several languages.

    Args:
        ids: for each text the `image_id` of its row, or the index of the row in a corpus of translations, [N].
        texts: language -> the texts [N]; those of one index are translations of each other.
        rows: for each text its row in the corpus, [N].
    """

    ids: list[str]
    texts: Mapping[str, list[str]]
    rows: list[int]

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of `texts`."""
        return list(self.texts)


def parallel_texts(
    corpus: datasets.Dataset, languages: str | list[str] | tuple[str, ...], *, limit: int | None = None
) -> ParallelTexts:
    """The first text in each language of every row that has texts in all of them.

    Args:
        corpus: a caption corpus or a translation corpus. Of rows that share an `image_id`, the first is taken.
        languages: BCP-47 tags.
        limit: at most this many rows, at even distances.

    Raises:
        LanguageTagError: for an unknown language.
        CorpusError: when the corpus is a stream, lacks one of the languages, or has no row with all of them.
    """
    tags = list(dict.fromkeys(normalize_languages(languages)))
    if isinstance(corpus, datasets.IterableDataset):
        raise CorpusError("parallel texts are taken from all rows at once: load the corpus as a Dataset")
    columns = [name for name in ("captions", "image_id") if name in corpus.column_names]
    table = corpus.select_columns(columns).with_format("arrow")[:]
    index = CaptionIndex(table)
    if missing := [tag for tag in tags if tag not in index.languages]:
        raise CorpusError(f"no captions in {', '.join(missing)}; the corpus has {describe(languages_of(corpus))}")
    captions: dict[str, np.ndarray] = {}  # of each row the index of its first caption in the language, or -1
    for tag in tags:
        own = index.captions_in(tag)
        found, first = np.unique(index.rows[own], return_index=True)
        captions[tag] = np.full(len(table), -1)
        captions[tag][found] = own[first]
    complete = np.flatnonzero(np.all([each >= 0 for each in captions.values()], axis=0))
    _, first = np.unique(index.concepts[complete], return_index=True)
    rows = complete[np.sort(first)]
    if not len(rows):
        fewest = min(tags, key=lambda tag: int((captions[tag] >= 0).sum()))
        raise CorpusError(
            f"no row has texts in all of {', '.join(tags)}; the fewest rows, {(captions[fewest] >= 0).sum()}, have "
            f"texts in {fewest}"
        )
    if limit is not None:
        rows = rows[evenly_spread(len(rows), limit)]
    ids = [str(name) for name in table["image_id"].take(pa.array(rows)).to_pylist()] if "image_id" in columns else None
    return ParallelTexts(
        ids=[str(row) for row in rows] if ids is None else ids,
        texts={tag: index.texts.take(pa.array(captions[tag][rows])).to_pylist() for tag in tags},
        rows=rows.tolist(),
    )


def encode_parallel(
    embedder: Embedder, parallel: ParallelTexts, *, task: str | None = None, show_progress: bool | None = None
) -> dict[str, np.ndarray]:
    """The embeddings of parallel texts: language -> float32 [N, d].

    Args:
        embedder: the model.
        parallel: the texts.
        task, show_progress: as in `Embedder.encode_text`.

    Raises:
        As `Embedder.encode_text`.
    """
    return {
        language: embedder.encode_text(texts, language=language, task=task, show_progress=show_progress)
        for language, texts in parallel.texts.items()
    }
