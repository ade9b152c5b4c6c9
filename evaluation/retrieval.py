"""Text-image retrieval on a caption corpus, language by language; and the translate-test baseline, for which captions
are machine-translated for a model of few languages. `ranking.py` explains protocols and ties."""

import math
import operator
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

import datasets
import numpy as np
import torch

from ..data.batching.views import RetrievalSets, images_of
from ..data.corpus.corpus import languages_of
from ..inference.cross_encoder import Reranker
from ..inference.embedder import COSINE_TIE, Embedder, first_dimensions
from ..inference.texts import known_languages
from ..inference.translation import TranslatingEmbedder, Translator
from ..modeling.losses.contrastive import symmetric_contrastive_loss
from ..modeling.modeling_dual_encoder import MIN_TEMPERATURE
from ..utils.errors import InputError, LanguageTagError
from ..utils.language_matching import learned_language
from ..utils.languages import normalize_language, normalize_languages
from .ranking import QueryRanks, check_protocol, cosine_scores, embedding_ranks, over_languages, ranks_by

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


# ---- During training ----


class RetrievalEvaluator:
    """Measures retrieval between the images of a caption corpus and their captions in each of `languages` (BCP-47
    tags, by default all). Trainers of dual encoders use it by default; to add functions, pass
    `evaluator=[RetrievalEvaluator(), mine]`. `batch_size` is the number of texts or images to encode at a time, and of
    pairs in a batch for the loss."""

    def __init__(self, *, languages: Sequence[str] | None = None, batch_size: int = 64) -> None:
        self.languages, self.batch_size = languages, batch_size

    def __call__(self, model: Any, processor: Any, data: datasets.Dataset) -> dict[str, float]:
        """Returns `mean_recall` in percent, on average and for each language (`mean_recall_de`); `mean_recall_dim_64`
        for each width of the model's `matryoshka_dims`; and `loss`, the mean over languages and batches of the
        contrastive loss between captions and images (MURAL, section 3.1: the sum of both directions), with CLIP's
        temperature, 1/100, for a model without a learned one."""
        languages = evaluated_languages(processor, data, self.languages)
        embeddings: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] = {}
        embedder = Embedder(model, processor, batch_size=self.batch_size)
        recalls = evaluate_retrieval(embedder, data, languages, embeddings=embeddings)
        by_metric: dict[str, dict[str, float]] = {}
        for language, (texts, images, rows) in embeddings.items():
            for width in getattr(model.config, "matryoshka_dims", None) or ():
                cut = embedding_ranks(first_dimensions(images, width), first_dimensions(texts, width), rows)
                recalls[language][f"mean_recall_dim_{width}"] = cut.recalls()["mean_recall"]
            for name, value in recalls[language].items():
                if name.startswith("mean_recall"):
                    by_metric.setdefault(name, {})[language] = value
        learned = getattr(model, "temperature", None)
        temperature = MIN_TEMPERATURE if learned is None else max(learned.item(), MIN_TEMPERATURE)
        metrics = {"loss": fmean(self._loss(temperature, *each) for each in embeddings.values())}
        for name, of in by_metric.items():
            metrics |= over_languages(name, of)
        return metrics

    @torch.no_grad()
    def _loss(self, temperature: float, texts: np.ndarray, images: np.ndarray, rows: list[list[int]]) -> float:
        """The mean loss of captions [T, d], whose images are `rows` [T] of images [N, d]."""
        captions, pictures = torch.from_numpy(texts), torch.from_numpy(images)
        labels = torch.tensor([first for first, *_ in rows])
        batches = math.ceil(len(captions) / self.batch_size)
        losses = []
        for start in range(batches):
            own = labels[start::batches]  # successive captions of one image go to different batches
            batch = pictures[own], captions[start::batches]
            losses.append(symmetric_contrastive_loss(*batch, temperature=temperature, positives=own))
        return torch.stack(losses).mean().item()


def evaluated_languages(processor: Any, data: Any, languages: Sequence[str] | None = None) -> list[str]:
    """Returns `languages`, or else the languages of the caption corpus `data`. The processor must read them."""
    wanted = normalize_languages(list(languages or languages_of(data)))
    known = known_languages(processor)
    if known is None:  # the model reads any language
        return wanted
    for tag in wanted:
        try:
            learned_language(tag, known)
        except LanguageTagError as error:
            raise InputError(f"eval_dataset: {error}; name the languages to evaluate in eval_languages") from error
    return wanted
