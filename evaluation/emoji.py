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

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from ..data.emoji.benchmark import load_emoji
from ..inference.embedder import Embedder
from ..utils.errors import CorpusError, InputError
from ..utils.languages import normalize_languages
from .ranking import QueryRanks, RetrievalRanks, chance_recalls
from .retrieval import evaluate_retrieval

# The language groups of the published numbers: languages with images in training, with only translations, and with
# neither.
BENCHMARK_LANGUAGES = {
    "image": ("en", "cs", "de", "fr", "ja", "zh"),
    "pair": ("es", "hi", "id", "ko", "ru", "sw", "tr"),
    "unseen": ("ar", "fi", "it", "nl", "pl", "pt", "sv", "th", "uk", "yo"),
}
GROUP_TITLES = {"image": "image pairs", "pair": "translation pairs only", "unseen": "never seen"}
TITLES = {"unseen_concepts": "Unseen concepts", "unseen_vendor": "Unseen vendor"}
SEEN_VENDOR, TEST_VENDOR = "twemoji", "noto"


class EmojiBenchmark:
    """Evaluates a model on the four questions, with images and names encoded once. In training, the model had
    image-text pairs in `image_languages`, only translation pairs in `pair_languages`, nothing in `unseen_languages`,
    and images of Twemoji, but none of Noto. `corpus` is by default `load_emoji()` with these vendors and languages."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        image_languages: Sequence[str] = BENCHMARK_LANGUAGES["image"],
        pair_languages: Sequence[str] = BENCHMARK_LANGUAGES["pair"],
        unseen_languages: Sequence[str] = BENCHMARK_LANGUAGES["unseen"],
        corpus: Dataset | None = None,
    ) -> None:
        groups = {"image": image_languages, "pair": pair_languages, "unseen": unseen_languages}
        self.groups = {group: normalize_languages(list(languages)) for group, languages in groups.items() if languages}
        self.languages = [language for members in self.groups.values() for language in members]
        if twice := {language for language in self.languages if self.languages.count(language) > 1}:
            raise InputError(f"a language can only be in one group, but {', '.join(sorted(twice))} is in two")
        if corpus is None:
            corpus = load_emoji(vendors=[SEEN_VENDOR, TEST_VENDOR], languages=[*self.languages, "en"])
        self.embedder = embedder
        self.corpora = {
            "unseen_concepts": _images_of_vendor(corpus, SEEN_VENDOR, "test"),
            "unseen_vendor": _images_of_vendor(corpus, TEST_VENDOR, "train"),
        }

    def report(self, ranks: dict[str, QueryRanks] | None = None) -> dict[str, Any]:
        """Computes the answers as JSON values: `unseen_concepts` has question 1, `unseen_vendor` questions 2 (group
        `image`), 3 (`pair`) and 4 (`unseen`). Each has `vendor`, `split`, `n_images`, `n_flags`, `chance`
        (text-to-image recall of a random ranking) and `groups` with the numbers of `evaluate_retrieval` by
        `languages`, and their `mean`; `flags` and `others` have them for flags and for other emoji as queries. `ranks`
        receives the ranks of single queries, by question and language: `unseen_vendor/de`."""
        report: dict[str, Any] = {}
        for name, corpus in self.corpora.items():
            is_flag, found = np.array(corpus["category"]) == "Flags", dict[str, QueryRanks]()
            evaluate_retrieval(self.embedder, corpus, self.languages, ranks=found)
            groups = {}
            for group, members in self.groups.items():
                numbers = {language: _numbers(found[language], is_flag) for language in members}
                groups[group] = {"languages": numbers, "mean": _mean(list(numbers.values()))}
            if ranks is not None:
                ranks |= {f"{name}/{language}": each for language, each in found.items()}
            report[name] = {
                "vendor": corpus["vendor"][0],
                "split": corpus["split"][0],
                "n_images": len(corpus),
                "n_flags": int(is_flag.sum()),
                "chance": chance_recalls(len(corpus)),
                "groups": groups,
            }
        return report


def _images_of_vendor(corpus: Dataset, vendor: str, split: str) -> Dataset:
    chosen = (np.array(corpus["vendor"]) == vendor) & (np.array(corpus["split"]) == split)
    if not chosen.any():
        raise CorpusError(f"the corpus has no images by {vendor!r} in the split {split!r}")
    return corpus.select(np.flatnonzero(chosen))


def _numbers(ranks: QueryRanks, is_flag: np.ndarray) -> dict[str, Any]:
    numbers: dict[str, Any] = dict(ranks.recalls())
    for part, images in {"flags": is_flag, "others": ~is_flag}.items():
        if (texts := images[ranks.image_of_text]).any():  # the queries of this part, ranked among all items
            numbers[part] = RetrievalRanks(ranks.text_to_image[texts], ranks.image_to_text[images]).recalls()
    return numbers


def _mean(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of every number over the languages that have it."""
    means: dict[str, Any] = {}
    for name in dict.fromkeys(name for result in results for name in result):
        values = [result[name] for result in results if name in result]
        means[name] = _mean(values) if isinstance(values[0], dict) else sum(values) / len(values)
    return means
