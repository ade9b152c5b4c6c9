"""The four questions of the emoji benchmark.

1. Unseen concepts: does the model find emoji with a concept it never saw, drawn by a vendor it was trained on?
2. Unseen vendor: does it find the concepts it was trained on, drawn by a vendor it never saw, with queries in
   languages that had images in training?
3. The same, with queries in languages that only had translations.
4. The same, with queries in languages it never saw.

Question 1 is asked in each group of languages. A query is always the CLDR name of an emoji, and searches all images of
the vendor and split, including flags. Flags are named after countries, which the images do not show, so the recall for
flags and the recall for all other emoji are also reported separately.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from datasets import Dataset
from PIL import Image

from ..data.batching.retrieval_sets import RetrievalSet, RetrievalSets
from ..data.batching.views import Images
from ..data.emoji.benchmark import load_emoji
from ..inference.cross_encoder import Reranker
from ..inference.embedder import Embedder
from ..utils.defaults import BENCHMARK_LANGUAGES
from ..utils.errors import CorpusError, InputError
from ..utils.languages import normalize_languages
from .ranking import QueryRanks, RetrievalRanks, chance_recalls, retrieval_ranks

GROUP_TITLES = {"image": "image pairs", "pair": "translation pairs only", "unseen": "never seen"}
TITLES = {"unseen_concepts": "Unseen concepts", "unseen_vendor": "Unseen vendor"}
_LABELS = 4  # per image in `labelled_images`


@dataclass(frozen=True)
class LabelledImage:
    """An image and labels in one language; the first label is correct."""

    image: Image.Image
    language: str
    labels: list[str]


class EmojiBenchmark:
    """Evaluates a model on the four questions.

    The images of each vendor and the names in each language are encoded once for all questions.

    Args:
        image_languages: languages that had image-text pairs in training.
        pair_languages: languages that only had translation pairs.
        unseen_languages: languages that had neither.
        test_vendor, seen_vendor: a vendor whose images the model never saw, and one whose images it was trained on.
        corpus: the emoji benchmark; by default `load_emoji()` with the two vendors and these languages.
        reranker: a cross-encoder that reorders the best candidates of every query.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        image_languages: Sequence[str] = BENCHMARK_LANGUAGES["image"],
        pair_languages: Sequence[str] = BENCHMARK_LANGUAGES["pair"],
        unseen_languages: Sequence[str] = BENCHMARK_LANGUAGES["unseen"],
        test_vendor: str = "noto",
        seen_vendor: str = "twemoji",
        corpus: Dataset | None = None,
        reranker: Reranker | None = None,
        show_progress: bool | None = None,
    ) -> None:
        groups = {"image": image_languages, "pair": pair_languages, "unseen": unseen_languages}
        self.groups = {group: normalize_languages(list(languages)) for group, languages in groups.items() if languages}
        languages = [language for members in self.groups.values() for language in members]
        if twice := {language for language in languages if languages.count(language) > 1}:
            raise InputError(f"a language can only be in one group, but {', '.join(sorted(twice))} is in two")
        if corpus is None:
            corpus = load_emoji(vendors=[seen_vendor, test_vendor], languages=[*languages, "en"])
        self.galleries = {
            "unseen_concepts": _VendorGallery(embedder, reranker, corpus, seen_vendor, "test", show_progress),
            "unseen_vendor": _VendorGallery(embedder, reranker, corpus, test_vendor, "train", show_progress),
        }

    def report(self) -> dict[str, Any]:
        """Computes the answers as JSON values.

        `unseen_concepts` holds question 1, `unseen_vendor` questions 2 (group `image`), 3 (`pair`) and 4 (`unseen`).
        Each has `vendor`, `split`, `n_images`, `n_flags`, `chance` (text-to-image recall of a random ranking) and
        `groups`; a group has `languages`, with the numbers of `evaluate_retrieval` for each, and `mean`, their means.
        In addition to these numbers, `flags` and `others` have the same numbers for flags and for other emoji as
        queries.
        """
        return {
            name: gallery.facts()
            | {"groups": {group: gallery.answer(languages) for group, languages in self.groups.items()}}
            for name, gallery in self.galleries.items()
        }

    def ranks(self) -> dict[str, QueryRanks]:
        """Returns the ranks of single queries, by question and language: `unseen_vendor/de`."""
        return {
            f"{name}/{language}": gallery.ranks(language)
            for name, gallery in self.galleries.items()
            for languages in self.groups.values()
            for language in languages
        }

    def labelled_images(self, count: int = 3) -> list[LabelledImage]:
        """Returns images of unseen concepts, each with its name and three other names in one of the training
        languages.

        They are selected by a hash of the emoji, independently of the model's answers, without flags.
        """
        languages = [*self.groups.get("image", []), *self.groups.get("pair", [])]
        gallery = self.galleries["unseen_concepts"]
        return [gallery.labelled_image(languages[index % len(languages)], index) for index in range(count)]


class _VendorGallery:
    """The images of one vendor for the concepts of one split, which the queries of a question search."""

    def __init__(
        self,
        embedder: Embedder,
        reranker: Reranker | None,
        corpus: Dataset,
        vendor: str,
        split: str,
        show_progress: bool | None,
    ) -> None:
        self.vendor, self.split = vendor, split
        chosen = (np.array(corpus["vendor"]) == vendor) & (np.array(corpus["split"]) == split)
        if not chosen.any():
            raise CorpusError(f"the corpus has no images by {vendor!r} in the split {split!r}")
        self._corpus = corpus.select(np.flatnonzero(chosen))
        self._is_flag = np.array(self._corpus["category"]) == "Flags"
        self._embedder, self._reranker = embedder, reranker
        self._show_progress = show_progress
        self._asked: dict[str, tuple[RetrievalSet, np.ndarray, RetrievalRanks]] = {}

    def facts(self) -> dict[str, Any]:
        n_images = len(self._corpus)
        return {
            "vendor": self.vendor,
            "split": self.split,
            "n_images": n_images,
            "n_flags": int(self._is_flag.sum()),
            "chance": chance_recalls([[0]], n_images),
        }

    def answer(self, languages: Sequence[str]) -> dict[str, Any]:
        results = {language: self._numbers(language) for language in languages}
        return {"languages": results, "mean": _mean(list(results.values()))}

    def ranks(self, language: str) -> QueryRanks:
        queries, _, ranks = self._ask(language)
        return QueryRanks.of(queries, ranks)

    def labelled_image(self, language: str, index: int) -> LabelledImage:
        """Returns the image at this index, in the order of `_in_order`, with its name and the names of the next
        three."""
        queries = self._ask(language)[0]
        positions = self._in_order(queries)
        chosen = [positions[(_LABELS * index + step) % len(positions)] for step in range(_LABELS)]
        labels = [queries.texts[text].replace(",", "") for text in chosen]  # the Hub splits labels at commas
        image = self._images[queries.text_to_images[chosen[0]][0]]
        return LabelledImage(image, language, list(dict.fromkeys(labels)))

    def _in_order(self, queries: RetrievalSet) -> list[int]:
        """Returns the indices of the queries that are not flags, in an order that only depends on the emoji."""
        positions = [text for text, right in enumerate(queries.text_to_images) if not self._is_flag[right[0]]]
        return sorted(positions, key=lambda text: hashlib.sha256(queries.text_image_ids[text].encode()).digest())

    @cached_property
    def _sets(self) -> RetrievalSets:
        return RetrievalSets(self._corpus)

    @cached_property
    def _images(self) -> Images:
        return Images(self._corpus)

    @cached_property
    def _image_embeddings(self) -> np.ndarray:
        return self._embedder.encode_image(self._images, show_progress=self._show_progress)

    def _ask(self, language: str) -> tuple[RetrievalSet, np.ndarray, RetrievalRanks]:
        """Returns the queries of a language, their embeddings and their ranks, computing them once."""
        if language not in self._asked:
            queries = self._sets.of(language)
            texts = self._embedder.encode_text(queries.texts, language=language, show_progress=self._show_progress)
            ranks = retrieval_ranks([queries], self._image_embeddings, texts, self._reranker)[0]
            self._asked[language] = queries, texts, ranks
        return self._asked[language]

    def _numbers(self, language: str) -> dict[str, Any]:
        queries, _, ranks = self._ask(language)
        flag_texts = np.array([self._is_flag[right[0]] for right in queries.text_to_images])
        parts = {"flags": (flag_texts, self._is_flag), "others": (~flag_texts, ~self._is_flag)}
        return ranks.recalls() | {part: ranks.recalls(*masks) for part, masks in parts.items() if masks[0].any()}


def _mean(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the mean of every number over the languages that have it."""
    means: dict[str, Any] = {}
    for name in dict.fromkeys(name for result in results for name in result):
        values = [result[name] for result in results if name in result]
        means[name] = _mean(values) if isinstance(values[0], dict) else sum(values) / len(values)
    return means


def question_number(name: str, group: str) -> int:
    """Returns the number of a question: 1 for unseen concepts in any group; 2, 3 and 4 for the groups of unseen
    vendors."""
    return 1 if name == "unseen_concepts" else 2 + list(GROUP_TITLES).index(group)
