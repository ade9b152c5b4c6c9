"""Retrieval with cross-lingual consistency (Burns et al. 2020, section 3.4), for any dual encoder: a caption and its
translations are scored with all images, and `CrossLingualConsistency` combines the scores. A translator computes the
machine translations of the paper; without one, the corpus' captions in the other languages are used. If people wrote
these independently, they contain more information, and the gain is larger than the method's. A score is 1 + cosine, 2
minus the paper's distance. It is never negative, so CLC-C's ReLU keeps it.

    scores, right = consistency_scores(embedder, validation, "en", languages)
    consistency = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=languages))
    consistency.fit(scores, right)
    evaluate_consistent_retrieval(embedder, test, "en", consistency)
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import datasets
import torch
from torch import Tensor

from ..configuration.configuration_consistency import CrossLingualConsistencyConfig
from ..data.batching.views import RetrievalSet, RetrievalSets, images_of, retrieval_set, translation_pairs
from ..data.emoji.benchmark import load_emoji
from ..inference.embedder import Embedder, finite_matrix, unit_rows
from ..inference.translation import Translator
from ..modeling.modeling_consistency import CrossLingualConsistency
from ..utils.errors import CorpusError, InputError
from ..utils.language_matching import learned_language
from ..utils.languages import normalize_languages
from .emoji import SEEN_VENDOR, TEST_VENDOR
from .ranking import Scores, check_protocol, ranks_by

_SCORES_AT_ONCE = 2**22  # over all languages; the hidden layer of CLC needs several times as many numbers


def evaluate_consistent_retrieval(
    embedder: Embedder,
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    consistency: CrossLingualConsistency,
    *,
    translator: Translator | None = None,
    protocol: str = "standard",
) -> dict[str, dict[str, float]]:
    """Evaluates retrieval as `evaluate_retrieval` does, by the joint scores of captions and their translations.
    Without a `translator`, these are the corpus' captions in the other languages, paired as in `translation_pairs`;
    the scores of several are averaged. `languages` are among those of `consistency`, CLC-A or a trained CLC-C."""
    texts = _TranslatedTexts(embedder, corpus, translator)
    return _evaluate(texts, languages, [consistency], protocol)[0]


def compare_consistency(
    embedder: Embedder,
    corpora: Mapping[str, datasets.Dataset],
    languages: str | list[str] | tuple[str, ...],
    *,
    validation: datasets.Dataset | None = None,
    translator: Translator | None = None,
    protocol: str = "standard",
) -> dict[str, dict[str, Any]]:
    """Evaluates retrieval in `corpora` (name -> caption corpus) with CLC-A, and with CLC-C fitted on `validation`,
    which should not be in `corpora`; without it, CLC-C is left out. The scores of all `languages` are combined.
    Captions in each language are queries; those in the first one fit CLC-C.

    Returns `clc_a` and `clc_c`, as JSON values: `recalls`, the numbers of `evaluate_retrieval` by name and language;
    `parameters`, the number of trained weights; `importances`, the share of each language in the joint score;
    `translations`, `machine` or `captions` (of the same image). CLC-C also has its `weights`, `hidden` and `output`;
    `losses`, before each iteration and after the last; and `fitted_in`, its queries' language.
    """
    tags = normalize_languages(languages)
    kinds = {"clc_a": "mean"} | ({} if validation is None else {"clc_c": "mlp"})
    models = {
        kind: CrossLingualConsistency(CrossLingualConsistencyConfig(languages=tags, aggregation=aggregation))
        for kind, aggregation in kinds.items()
    }
    results: dict[str, dict[str, Any]] = {kind: {"recalls": {}} for kind in models}
    if validation is not None:
        losses = models["clc_c"].fit(*consistency_scores(embedder, validation, tags[0], tags, translator=translator))
        weights = {name.partition(".")[0]: weight.tolist() for name, weight in models["clc_c"].named_parameters()}
        results["clc_c"] |= {"weights": weights, "losses": losses, "fitted_in": tags[0]}
    for name, corpus in corpora.items():
        found = _evaluate(_TranslatedTexts(embedder, corpus, translator), tags, list(models.values()), protocol)
        for kind, recalls in zip(models, found, strict=True):
            results[kind]["recalls"][name] = recalls
    for kind, model in models.items():
        results[kind] |= {
            "parameters": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
            "importances": model.importances,
            "translations": "captions" if translator is None else "machine",
        }
    return results


def consistency_scores(
    embedder: Embedder,
    corpus: datasets.Dataset,
    language: str,
    languages: list[str] | tuple[str, ...],
    *,
    translator: Translator | None = None,
) -> tuple[Tensor, list[list[int]]]:
    """Returns the scores of captions in `language` and their translations with all images, [L, n_texts, n_images] in
    the order of `languages`, and each text's correct images, for `CrossLingualConsistency.fit`."""
    languages = normalize_languages(languages)
    learned_language(language, languages, farthest=-1)
    queries = retrieval_set(corpus, language)
    texts = _TranslatedTexts(embedder, corpus, translator)
    return _scores(texts.embed(queries, languages), texts.images()), queries.text_to_images


def parallel_captions(
    corpus: datasets.Dataset, queries: RetrievalSet, languages: Sequence[str]
) -> dict[str, list[list[str]]]:
    """Returns language -> for each query, its translations among the captions, as in `translation_pairs`."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {language: defaultdict(list) for language in languages}
    for pair in translation_pairs(corpus, [(queries.language, language) for language in languages]):
        found[pair["language_b"]][pair["image_id"], pair["text_a"]].append(pair["text_b"])
    keys = list(zip(queries.text_image_ids, queries.texts, strict=True))
    for language, captions in found.items():
        for image_id, text in keys:
            if (image_id, text) not in captions:
                raise CorpusError(
                    f"image_id {image_id!r}: {text!r} ({queries.language}) has no parallel caption in {language}; "
                    "leave the image or the language out, or give a translator"
                )
    return {language: [captions[key] for key in keys] for language, captions in found.items()}


@dataclass
class _TranslatedTexts:
    """Embeds the images, the captions and their translations; each text of a language is embedded once."""

    embedder: Embedder
    corpus: datasets.Dataset
    translator: Translator | None
    known: dict[str, dict[str, Tensor]] = field(default_factory=lambda: defaultdict(dict))  # language -> text -> [d]

    def images(self) -> Tensor:
        return unit_rows(self.embedder.encode_image(images_of(self.corpus)))

    def embed(self, queries: RetrievalSet, languages: list[str]) -> Tensor:
        """Embeds the queries in each language, [L, n_texts, d]; cosines with a mean are the means of cosines."""
        others = [language for language in languages if language != queries.language]
        translated = {queries.language: [[text] for text in queries.texts]}
        if self.translator is None:
            translated |= parallel_captions(self.corpus, queries, others) if others else {}
        else:
            translated |= {language: self._translations(self.translator, queries, language) for language in others}
        return torch.stack([self._means(translated[language], language) for language in languages])

    @staticmethod
    def _translations(translator: Translator, queries: RetrievalSet, language: str) -> list[list[str]]:
        texts = translator.translate(queries.texts, queries.language, language)
        if len(texts) != len(queries.texts):
            raise InputError(f"the translator returned {len(texts)} translations for {len(queries.texts)} texts")
        for text, translation in zip(queries.texts, texts, strict=True):
            if not translation.strip():
                raise InputError(f"the translation of {text!r} ({queries.language}) into {language} is empty")
        return [[text] for text in texts]

    def _means(self, texts: list[list[str]], language: str) -> Tensor:
        known = self.known[language]
        if new := list(dict.fromkeys(text for several in texts for text in several if text not in known)):
            vectors = self.embedder.encode_text(new, language=language)
            known.update(zip(new, unit_rows(vectors), strict=True))
        return torch.stack([torch.stack([known[text] for text in several]).mean(0) for several in texts])


def _evaluate(
    texts: _TranslatedTexts,
    languages: str | list[str] | tuple[str, ...],
    models: Sequence[CrossLingualConsistency],
    protocol: str,
) -> list[dict[str, dict[str, float]]]:
    """Evaluates several models for the same languages, with texts and images embedded once."""
    check_protocol(protocol)
    known = models[0].config.languages
    languages = normalize_languages(languages)
    for language in languages:
        learned_language(language, known, farthest=-1)
    of_corpus = RetrievalSets(texts.corpus)
    sets = [of_corpus.of(language) for language in languages]
    images = texts.images()
    results: list[dict[str, dict[str, float]]] = [{} for _ in models]
    for queries in sets:
        embedded = texts.embed(queries, known)
        sizes = len(queries.texts), len(images)
        for model, found in zip(models, results, strict=True):
            scores = _joint_scores(model, embedded, images)
            at_once = _SCORES_AT_ONCE // len(known)
            ranks = ranks_by(*scores, queries.text_to_images, *sizes, protocol=protocol, tie=0.0, at_once=at_once)
            found[queries.language] = ranks.recalls()
    return results


def _scores(texts: Tensor, images: Tensor) -> Tensor:
    """1 + cosine. [L, n_texts, d], [n_images, d] -> [L, n_texts, n_images]"""
    return (1 + texts @ images.T).clamp(min=0)


def _joint_scores(consistency: CrossLingualConsistency, texts: Tensor, images: Tensor) -> tuple[Scores, Scores]:
    """Functions for the joint scores of some texts with all images, and of some images with all texts. texts: [L,
    n_texts, d], images: [n_images, d]"""

    @torch.no_grad()
    def joint(some_texts: Tensor, some_images: Tensor) -> Tensor:
        scores = _scores(some_texts, some_images).to(consistency.device)
        return finite_matrix(consistency(scores).float().cpu().numpy(), "scores")

    return (lambda rows: joint(texts[:, rows], images)), (lambda rows: joint(texts, images[rows]).T)


def emoji_consistency(embedder: Embedder, languages: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Evaluates CLC on the emoji benchmark, where the names of an emoji in all languages form a joint query. In the
    `recalls` of `compare_consistency`, `unseen_concepts` are of a vendor in training, and `unseen_vendor` was held
    out. CLC-C is fitted on the validation concepts of the vendor in training."""
    tags = list(languages)
    corpora = {
        "unseen_concepts": load_emoji(vendors=[SEEN_VENDOR], split="test", languages=tags),
        "unseen_vendor": load_emoji(vendors=[TEST_VENDOR], split="train", languages=tags),
    }
    validation = load_emoji(vendors=[SEEN_VENDOR], split="validation", languages=tags)
    return compare_consistency(embedder, corpora, tags, validation=validation)
