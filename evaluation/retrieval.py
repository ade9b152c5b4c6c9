"""Text-image retrieval on a caption corpus, language by language; `metric.py` has the same numbers for scores.

Protocols, ties and the meaning of the numbers: `ranking.py`.
"""

import operator

import datasets
import numpy as np

from ..data.batching.retrieval_sets import RetrievalSets
from ..data.batching.views import images_of
from ..inference.cross_encoder import Reranker
from ..inference.embedder import Embedder
from ..utils.languages import normalize_languages
from .query_ranks import QueryRanks
from .ranking import check_protocol, ranks_in_readings

_ENGLISH = "en"
# Of each language in a gallery: texts as queries, and what is shown of each query.
_GALLERY_TEXTS, _GALLERY_IMAGES = 2, 6


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
    show_progress: bool | None = None,
) -> dict[str, dict[str, float]]:
    """Retrieval between the images of a caption corpus and their captions in each language.

    Every language searches all images of the corpus; they are encoded once.

    Captions of several images may be equal, word for word. The recall counts such a caption as correct for its own
    image alone, and as wrong for the others, with which it ties (`ranking`). The second reading, in which it is
    correct for all of them, is reported beside it.

    Args:
        embedder: the model.
        corpus: a caption corpus.
        languages: BCP-47 tags.
        protocol: `"standard"`, or `"mla"` for the numbers of MLA's paper.
        only_captioned: whether a language searches only the images that have a caption in it: the protocol of WIT
            (MURAL, section 4), where languages have images of their own.
        reranker: a cross-encoder that reorders the best candidates of every query.
        ranks: a dictionary to which the ranks of the single queries are added, by language.
        image_embeddings: the embeddings of all images of the corpus [N, d], where they are at hand.
        embeddings: a dictionary to which embeddings are added, by language: those of the captions [T, d] and of the
            images that they search [n, d], and for each caption the indices of its images.
        show_progress: as in `Embedder.encode_image`.

    Returns:
        For each language, in percent, `t2i_r1`, `t2i_r5`, `t2i_r10` (text to image), `i2t_r1`, `i2t_r5`, `i2t_r10`
        (image to text) and `mean_recall`, the mean of the six; `n_images` and `n_texts`. If another image has
        one of the captions too: `n_equal_texts`, the number of such captions, and the recalls in the reading in which
        these are correct for all of their images, with `_equal_texts` at the end of their names.
    """
    check_protocol(protocol)
    tags = normalize_languages(languages)
    of_corpus = RetrievalSets(corpus)
    sets = [of_corpus.of(language, only_captioned=only_captioned) for language in tags]
    if not sets:
        return {}
    searched = np.unique(np.concatenate([queries.rows for queries in sets]))
    if len(searched) < len(corpus):
        corpus = corpus.select(searched)
    if image_embeddings is None:
        images = embedder.encode_image(images_of(corpus), show_progress=show_progress)
    else:
        images = image_embeddings[searched]
    results = {}
    for queries in sets:
        texts = embedder.encode_text(queries.texts, language=queries.language, show_progress=show_progress)
        own = images[np.searchsorted(searched, queries.rows)]
        if embeddings is not None:
            embeddings[queries.language] = (texts, own, queries.text_to_images)
        alike = queries.with_equal_texts()
        count = sum(map(operator.ne, alike.text_to_images, queries.text_to_images))
        readings = [queries, alike] if count else [queries]
        found, *other = ranks_in_readings(readings, own, texts, reranker, protocol=protocol)
        results[queries.language] = found.recalls()
        for reading in other:  # without the numbers of images and texts, which are the same
            second = {name: value for name, value in reading.recalls().items() if not name.startswith("n_")}
            named = {f"{name}_equal_texts": value for name, value in second.items()}
            results[queries.language] |= {"n_equal_texts": count} | named
        if ranks is not None:
            ranks[queries.language] = QueryRanks.of(queries, found)
    return results
