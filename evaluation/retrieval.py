"""Text-image retrieval on a caption corpus, language by language; and the translate-test baseline, for which captions
are machine-translated for a model of few languages. `ranking.py` explains protocols and ties."""

import operator
from contextlib import suppress
from typing import Any

import datasets
import numpy as np

from ..data.batching.views import RetrievalSets, images_of
from ..inference.cross_encoder import Reranker
from ..inference.embedder import COSINE_TIE, Embedder
from ..inference.translation import TranslatingEmbedder, Translator
from ..utils.errors import InputError, LanguageTagError
from ..utils.languages import normalize_language, normalize_languages
from .ranking import QueryRanks, check_protocol, cosine_scores, ranks_by

Numbers = dict[str, Any]


def evaluate_retrieval(
    embedder: Embedder,
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    *,
    protocol: str = "standard",
    only_captioned: bool = False,
    reranker: Reranker | None = None,
    ranks: dict[str, QueryRanks] | None = None,
    image_embeddings: np.ndarray | None = None,
    embeddings: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] | None = None,
) -> dict[str, dict[str, float]]:
    """Evaluates retrieval between the images of a caption corpus, which are encoded once, and their captions in each
    language. Recall counts a caption that several images have as correct only for its own image, and as wrong for the
    others, with which it ties (`ranking`); a second reading, in which it is correct for all of them, is also reported.

    Args:
        protocol: `"standard"`, or `"mla"` for the numbers of MLA's paper.
        only_captioned: whether a language only searches the images that have a caption in it: the protocol of WIT
            (MURAL, section 4), where each language has its own images. By default, all images of the corpus.
        ranks, embeddings: receive, by language, the ranks of single queries; and the embeddings of captions [T, d] and
            gallery images [n, d], with the indices of each caption's images.
        image_embeddings: those of all images of the corpus [N, d], if they are already computed.

    Returns:
        For each language, in percent, `t2i_r1`, `t2i_r5`, `t2i_r10` (text to image), `i2t_r1`, `i2t_r5`, `i2t_r10` and
            `mean_recall`, the mean of the six; `n_images` and `n_texts`. If several images share captions:
            `n_equal_texts`, the number of these captions, and the second reading's recalls, ending in `_equal_texts`.
    """
    check_protocol(protocol)
    of_corpus = RetrievalSets(corpus)
    sets = [of_corpus.of(language, only_captioned=only_captioned) for language in normalize_languages(languages)]
    if not sets:
        return {}
    searched = np.unique(np.concatenate([queries.rows for queries in sets]))
    if image_embeddings is None:
        selected = corpus.select(searched) if len(searched) < len(corpus) else corpus
        images = embedder.encode_image(images_of(selected))
    else:
        images = image_embeddings[searched]
    results = {}
    for queries in sets:
        texts = embedder.encode_text(queries.texts, language=queries.language)
        own = images[np.searchsorted(searched, queries.rows)]
        if embeddings is not None:
            embeddings[queries.language] = (texts, own, queries.text_to_images)
        alike = queries.with_equal_texts()
        count = sum(map(operator.ne, alike.text_to_images, queries.text_to_images))
        scores = cosine_scores(own, texts) if reranker is None else reranker.scores(queries, own, texts)
        found, *other = (
            ranks_by(*scores, each.text_to_images, len(texts), len(own), protocol=protocol, tie=COSINE_TIE)
            for each in ([queries, alike] if count else [queries])
        )
        results[queries.language] = numbers = found.recalls()
        for reading in other:  # without the counts of images and texts, which are the same
            numbers |= {"n_equal_texts": count}
            numbers |= {f"{name}_equal_texts": value for name, value in reading.recalls().items() if name[:2] != "n_"}
        if ranks is not None:
            ranks[queries.language] = QueryRanks.of(queries, found)
    return results


def evaluate_translate_test(
    embedder: Embedder,
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    translator: Translator,
    *,
    to: str = "en",
    ranks: dict[str, QueryRanks] | None = None,
    **options: Any,
) -> dict[str, Numbers]:
    """Evaluates retrieval with the original captions and with their machine translations into the language `to`: a
    multilingual model should be compared with translated queries and an English model (Jain et al. 2021, MURAL, table
    2; Burns et al. 2020, SMALR, "Trans. to En"). `options` are those of `evaluate_retrieval`; `ranks` receives the
    ranks of the original captions. Returns for each language the results of `evaluate_retrieval`, `untranslated` (None
    for a language not learned) and `translated` (None for `to`); `gain`, the difference of each recall; and `n_empty`,
    the number of empty translations, for which the original caption is used."""
    tags, to = normalize_languages(languages), normalize_language(to)
    if tags == [to]:
        raise InputError(f"there is nothing to translate: all captions are already in {to}")
    sets = RetrievalSets(corpus)
    examples = [sets.of(tag).texts[0] for tag in tags]
    embedder.encode_text(examples[:1], language=to)  # raises an error now if the model has not learned it
    images = embedder.encode_image(images_of(corpus))
    results: dict[str, Numbers] = {}
    for tag in tags:
        results[tag] = {"untranslated": None, "translated": None}
        with suppress(LanguageTagError):  # the model has not learned the language
            found = evaluate_retrieval(embedder, corpus, tag, ranks=ranks, image_embeddings=images, **options)
            results[tag]["untranslated"] = found[tag]
        if tag != to:
            # The translating embedder has the same methods for encoding.
            translating: Any = TranslatingEmbedder(embedder, translator, to=to)
            translated = evaluate_retrieval(translating, corpus, tag, image_embeddings=images, **options)[tag]
            results[tag] |= {"translated": translated, "n_empty": translating.n_empty}
            if before := results[tag]["untranslated"]:
                # Captions may be equal only before or only after translation.
                recalls = [name for name in before if name in translated and not name.startswith("n_")]
                results[tag]["gain"] = {name: translated[name] - before[name] for name in recalls}
    return results
