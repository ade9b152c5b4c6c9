"""Texts compared with texts: their similarity as people see it (STS), and finding a text's translation (bitext)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

from ..configuration.errors import CorpusError, InputError, MissingExtraError
from ..data.batching.views import LanguagePair, translation_pairs
from ..inference.embedder import Embedder
from ..inference.similarity import COSINE_TIE
from .query_ranks import QueryRanks
from .ranking import RECALL_AT, embedding_ranks


def evaluate_similarity(
    embedder: Embedder, corpus: Dataset, *, task: str | None = None
) -> dict[str, dict[str, float]]:
    """Spearman's correlation between the cosines of texts and the similarity that people see in them, in percent.

    Args:
        embedder: the model.
        corpus: the columns `text_a`, `language_a`, `text_b`, `language_b` and `score`, as `load_similarity` reads
            them.
        task: the head of a model that has one for each task, such as `"text_text"` for MURAL.

    Returns:
        For each pair of languages, such as `de-en`, `spearman`, -100 to 100, and `n_pairs`. A collapsed model, whose
        cosines are all the same, has 0.

    Raises:
        MissingExtraError: without scipy.
        InputError: for a pair of languages whose scores are all the same, or that has a single pair of texts.
        ModelKindError: for a task that the model has no head for.
        UnknownLanguageError: for a language that the model has not learned.

    Examples:
        >>> evaluate_similarity(embedder, load_similarity("sts17.tsv"))["de-en"]["spearman"]
    """
    try:
        from scipy.stats import spearmanr
    except ModuleNotFoundError as error:
        raise MissingExtraError("similarity is measured by scipy: pip install scipy") from error
    columns = corpus.with_format(None)[:]
    sides = [
        embedder.encode_text(columns[f"text_{side}"], language=columns[f"language_{side}"], task=task) for side in "ab"
    ]
    cosines = (sides[0] * sides[1]).sum(1)
    pairs = np.array([f"{a}-{b}" for a, b in zip(columns["language_a"], columns["language_b"], strict=True)])
    results = {}
    for pair in dict.fromkeys(pairs.tolist()):
        rows = pairs == pair
        gold = np.array(columns["score"])[rows]
        if np.ptp(gold) == 0:
            raise InputError(
                f"{pair}: all {len(gold)} pairs of texts have the score {gold[0]}; a correlation needs others"
            )
        is_collapsed = np.ptp(cosines[rows]) < COSINE_TIE
        correlation = 0.0 if is_collapsed else float(spearmanr(cosines[rows], gold).statistic)
        results[pair] = {"spearman": 100 * correlation, "n_pairs": len(gold)}
    return results


def evaluate_bitext(
    embedder: Embedder,
    corpus: Dataset | IterableDataset,
    pairs: Iterable[LanguagePair] | None = None,
    *,
    task: str | None = None,
    ranks: dict[str, QueryRanks] | None = None,
) -> dict[str, dict[str, float]]:
    """How often a text finds its translation among all texts of the other language, in both directions, in percent.

    Every text is searched for and found once, however often it occurs; any of its translations is right. Ties count
    against the text (`ranking`).

    Args:
        embedder: the model.
        corpus: a translation corpus, as `load_translations` and `load_bitext` read it.
        pairs: pairs of languages; by default all that occur.
        task: as in `evaluate_similarity`.
        ranks: receives for each direction the rank of each text's translation, so that models can be compared text by
            text (`evaluation.comparison`).

    Returns:
        For each direction, such as `de-en` and `en-de`, the recall `r1`, `r5` and `r10`; `n_texts`, the number of
        texts that search, and `n_candidates`, of those that are searched.

    Raises:
        CorpusError: for a corpus without such pairs.
        LanguageTagError: for an unknown language.
        ModelKindError, UnknownLanguageError: as `evaluate_similarity`.

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
    # A language stands in as many pairs as there are others; its texts are encoded once.
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
    """One direction of the ranks, in which the texts of the second language have the place of images."""
    found = {f"r{k}": recalls[f"{way}_r{k}"] for k in RECALL_AT}
    return found | {"n_texts": n_texts, "n_candidates": n_candidates}
