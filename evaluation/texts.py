"""Bitext retrieval: finding a text's translation among all texts in another language."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

from ..data.batching.views import LanguagePair, translation_pairs
from ..inference.embedder import Embedder
from ..utils.errors import CorpusError
from .query_ranks import QueryRanks
from .ranking import RECALL_AT, embedding_ranks


def evaluate_bitext(
    embedder: Embedder,
    corpus: Dataset | IterableDataset,
    pairs: Iterable[LanguagePair] | None = None,
    *,
    task: str | None = None,
    ranks: dict[str, QueryRanks] | None = None,
) -> dict[str, dict[str, float]]:
    """Measures how often a text finds its translation among all texts in the other language, in both directions.

    Repeated texts count once; any translation of a text is correct. Ties count against the text (`ranking`).

    Args:
        embedder: the model.
        corpus: a translation corpus, as `load_translations` and `load_bitext` read it.
        pairs: pairs of languages; by default all that occur.
        task: the head, for a model with a head for each task, such as `"text_text"` for MURAL.
        ranks: a dictionary to which the rank of each text's translation is added, by direction, for comparing models
            text by text (`evaluation.comparison`).

    Returns:
        For each direction, such as `de-en` and `en-de`, the recall `r1`, `r5` and `r10` in percent; `n_texts`, the
        number of queries, and `n_candidates`, the number of candidates.

    Examples:
        >>> evaluate_bitext(embedder, load_translations("pairs.tsv"), [("de", "en")])["de-en"]["r1"]
    """
    found: dict[LanguagePair, list[tuple[str, str]]] = {}
    row: Any
    for row in translation_pairs(corpus, pairs):
        found.setdefault((row["language_a"], row["language_b"]), []).append((row["text_a"], row["text_b"]))
    if not found:
        raise CorpusError("the corpus has no translations in these languages")
    texts_of: dict[str, dict[str, None]] = {}
    for languages, texts in found.items():
        for language, side in zip(languages, zip(*texts, strict=True), strict=True):
            texts_of.setdefault(language, {}).update(dict.fromkeys(side))
    # A language occurs in several pairs; its texts are encoded once.
    embeddings = {
        language: dict(zip(texts, embedder.encode_text(list(texts), language=language, task=task), strict=True))
        for language, texts in texts_of.items()
    }
    results = {}
    for (first, second), texts in found.items():
        queries, candidates = (list(dict.fromkeys(side)) for side in zip(*texts, strict=True))
        indices = {text: index for index, text in enumerate(candidates)}
        right: dict[str, dict[int, None]] = {text: {} for text in queries}
        for text, translation in texts:
            right[text][indices[translation]] = None
        found_at = embedding_ranks(
            np.stack([embeddings[second][text] for text in candidates]),
            np.stack([embeddings[first][text] for text in queries]),
            [list(own) for own in right.values()],
        )
        recalls = found_at.recalls()
        if ranks is not None:
            ranks[f"{first}-{second}"] = QueryRanks.of_labels(queries, queries, found_at.text_to_image)
            ranks[f"{second}-{first}"] = QueryRanks.of_labels(candidates, candidates, found_at.image_to_text)
        counts = len(queries), len(candidates)
        results[f"{first}-{second}"] = _direction(recalls, "t2i", *counts)
        results[f"{second}-{first}"] = _direction(recalls, "i2t", *reversed(counts))
    return results


def _direction(recalls: dict[str, float], way: str, n_texts: int, n_candidates: int) -> dict[str, float]:
    """Selects one direction of the recalls, in which the texts of the second language take the place of images."""
    found = {f"r{k}": recalls[f"{way}_r{k}"] for k in RECALL_AT}
    return found | {"n_texts": n_texts, "n_candidates": n_candidates}
