"""Text-image retrieval on a caption corpus, language by language; `metric.py` computes the same numbers from scores.

For protocols, ties and the meaning of the numbers, see `ranking.py`.
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
# For each language in a gallery: texts as queries, and the display text of each query.
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
    """Evaluates retrieval between the images of a caption corpus and their captions in each language.

    Every language searches all images of the corpus, which are encoded once.

    Several images can have exactly the same caption. Recall counts the caption as correct only for its own image, and
    as wrong for the others, with which it ties (`ranking`). A second reading, in which it is correct for all of these
    images, is also reported.

    Args:
        embedder: the model.
        corpus: a caption corpus.
        languages: BCP-47 tags.
        protocol: `"standard"`, or `"mla"` for the numbers of MLA's paper.
        only_captioned: whether a language only searches the images that have a caption in it: the protocol of WIT
            (MURAL, section 4), where each language has its own images.
        reranker: a cross-encoder that reorders the best candidates of every query.
        ranks: a dictionary to which the ranks of single queries are added, by language.
        image_embeddings: the embeddings of all images of the corpus [N, d], if they are already computed.
        embeddings: a dictionary to which embeddings are added, by language: the embeddings of the captions [T, d] and
            of the gallery images [n, d], and for each caption the indices of its images.
        show_progress: as in `Embedder.encode_image`.

    Returns:
        For each language, in percent, `t2i_r1`, `t2i_r5`, `t2i_r10` (text to image), `i2t_r1`, `i2t_r5`, `i2t_r10`
        (image to text) and `mean_recall`, the mean of the six; `n_images` and `n_texts`. If several images have the
        same caption: `n_equal_texts`, the number of these captions, and the recalls of the second reading, with the
        suffix `_equal_texts`.
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
        for reading in other:  # without the counts of images and texts, which are the same
            second = {name: value for name, value in reading.recalls().items() if not name.startswith("n_")}
            named = {f"{name}_equal_texts": value for name, value in second.items()}
            results[queries.language] |= {"n_equal_texts": count} | named
        if ranks is not None:
            ranks[queries.language] = QueryRanks.of(queries, found)
    return results
