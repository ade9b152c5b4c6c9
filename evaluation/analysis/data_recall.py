"""What results say about languages: recall against the amount of training text, with the rank correlation; which
images are found in every language and which in one only; and what a training has forgotten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...configuration.errors import ComparisonError
from ..comparison import Difference, RunResults, Score, compare
from ..query_ranks import QueryRanks
from .numbers import analysis_extra

_FEWEST = 3  # languages that a correlation needs


@dataclass(frozen=True)
class TrainingTexts:
    """The training texts in one language, each text counted once.

    Args:
        captions: texts with an image.
        translations: texts that have translations and no image.
        characters: the characters of all of them.
    """

    captions: int = 0
    translations: int = 0
    characters: int = 0

    @property
    def texts(self) -> int:
        """The number of all texts."""
        return self.captions + self.translations


@dataclass(frozen=True)
class DataRecall:
    """Recall and amount of training text by language.

    Args:
        metric: the metric, in percent.
        test_set: what it was measured on.
        languages: BCP-47 tags, [L].
        captions, translations, characters: the training texts of each language, [L], as in `TrainingTexts`.
        recalls: the metric of each language, [L].
        correlation, p: Spearman's rank correlation of recall and number of texts over all languages, and its
            two-sided p; null where all languages have as many texts.
        trained_correlation, trained_p: both over the languages with training text alone; null for fewer than three.
    """

    metric: str
    test_set: str
    languages: list[str]
    captions: list[int]
    translations: list[int]
    characters: list[int]
    recalls: list[float]
    correlation: float | None
    p: float | None
    trained_correlation: float | None
    trained_p: float | None


def recall_by_data(
    amounts: Mapping[str, TrainingTexts],
    recalls: Mapping[str, float],
    *,
    metric: str = "t2i_r10",
    test_set: str = "captions",
) -> DataRecall:
    """Relates the recall of languages to their training texts.

    Args:
        amounts: language -> its training texts; a language that is missing had none.
        recalls: language -> its recall.
        metric, test_set: the names of what was measured, for the figure.

    Raises:
        MissingExtraError: without scikit-learn.
        ComparisonError: for fewer than three languages.
    """
    languages = list(recalls)
    if len(languages) < _FEWEST:
        raise ComparisonError(f"a correlation needs at least {_FEWEST} languages, and there are {len(languages)}")
    given = [amounts.get(language, TrainingTexts()) for language in languages]
    every = [(each.texts, recalls[language]) for language, each in zip(languages, given, strict=True)]
    correlation, p = _spearman(every)
    trained_correlation, trained_p = _spearman([pair for pair in every if pair[0]])
    return DataRecall(
        metric=metric,
        test_set=test_set,
        languages=languages,
        captions=[each.captions for each in given],
        translations=[each.translations for each in given],
        characters=[each.characters for each in given],
        recalls=[recalls[language] for language in languages],
        correlation=correlation,
        p=p,
        trained_correlation=trained_correlation,
        trained_p=trained_p,
    )


def _spearman(pairs: list[tuple[int, float]]) -> tuple[float | None, float | None]:
    """The rank correlation and its p; None where there are too few pairs, or one of the values is always the same."""
    with analysis_extra():
        from scipy.stats import spearmanr
    texts, recalls = zip(*pairs, strict=True) if pairs else ((), ())
    if len(pairs) < _FEWEST or min(len(set(texts)), len(set(recalls))) < 2:
        return None, None
    found = spearmanr(texts, recalls)
    return float(found.statistic), float(found.pvalue)


# ---- Which images every language finds, and which only one ----
# An image is found in a language when one of its captions in that language has the image among the first k.


@dataclass(frozen=True)
class LanguageAgreement:
    """What languages find together and alone, of the images that have captions in all of them.

    Args:
        languages: BCP-47 tags, [L].
        k: an image is found when it is among the first k.
        n_images: the number of images with captions in all languages.
        n_searched: the number of images that captions search.
        found: language -> the percentage of images that it finds.
        found_alone: language -> the images that it finds and no other language.
        by_count: the number of images that exactly 0, 1, …, L languages find, [L + 1].
        expected_by_count: the same if languages found images independently of each other, each as many as it does.
        in_all, in_none: the images that every language finds, and that none does.
        shared: of the images that the language of the row finds, the percentage that the language of the column finds
            too, [L, L]; null where the row finds none.
    """

    languages: list[str]
    k: int
    n_images: int
    n_searched: int
    found: dict[str, float]
    found_alone: dict[str, list[str]]
    by_count: list[int]
    expected_by_count: list[float]
    in_all: list[str]
    in_none: list[str]
    shared: np.ndarray


def language_agreement(
    ranks: Mapping[str, QueryRanks], *, k: int = 10, image_ids: Sequence[str] | None = None
) -> LanguageAgreement:
    """Compares which images the captions of each language find.

    Args:
        ranks: language -> the ranks of its queries, as `evaluate_retrieval(…, ranks=ranks)` collects them, or
            `read_ranks` reads them.
        k: an image is found when it is among the first k.
        image_ids: the names of the images that are searched; by default their indices.

    Raises:
        ComparisonError: for fewer than two languages, for languages that search different images, and when no image
            has captions in all languages.
    """
    languages = list(ranks)
    if len(languages) < 2:
        raise ComparisonError("languages are compared with each other: there must be two or more with ranks")
    first = ranks[languages[0]]
    for language, each in ranks.items():
        if each.images != first.images:
            raise ComparisonError(f"{languages[0]} and {language} search different images, and cannot be compared")
    n_searched = len(first.image_to_text)
    best = np.stack([_best_rank(ranks[language], n_searched) for language in languages])  # [L, n_searched]
    asked = np.flatnonzero((best > 0).all(0))
    if not len(asked):
        raise ComparisonError(f"no image has captions in all of {', '.join(languages)}")
    found = best[:, asked] <= k  # [L, n_images]
    names = [str(image) for image in asked] if image_ids is None else [image_ids[image] for image in asked.tolist()]
    counts = found.sum(0)

    def named(chosen: np.ndarray) -> list[str]:
        return [names[image] for image in np.flatnonzero(chosen).tolist()]

    with np.errstate(invalid="ignore"):
        shared = 100 * (found.astype(float) @ found.T) / found.sum(1)[:, None]
    return LanguageAgreement(
        languages=languages,
        k=k,
        n_images=len(asked),
        n_searched=n_searched,
        found={language: 100 * float(row.mean()) for language, row in zip(languages, found, strict=True)},
        found_alone={language: named(row & (counts == 1)) for language, row in zip(languages, found, strict=True)},
        by_count=np.bincount(counts, minlength=len(languages) + 1).tolist(),
        expected_by_count=_expected(found).tolist(),
        in_all=named(counts == len(languages)),
        in_none=named(counts == 0),
        shared=shared,
    )


def _best_rank(ranks: QueryRanks, n_searched: int) -> np.ndarray:
    """The best rank of an image by any of its captions; 0 for an image without one, [n_searched]."""
    best = np.full(n_searched, np.iinfo(np.int32).max, dtype=np.int32)
    np.minimum.at(best, ranks.image_of_text, ranks.text_to_image)
    return np.where(best == np.iinfo(np.int32).max, 0, best)


def _expected(found: np.ndarray) -> np.ndarray:
    """The number of images by how many of independent languages find them: a sum of Bernoulli variables, [L + 1]."""
    distribution = np.ones(1)
    for probability in found.mean(1):
        distribution = np.convolve(distribution, [1 - probability, probability])
    return distribution * found.shape[1]


# ---- What was forgotten ----
# The recall in all languages before and after a training, or after each of several.
#
# Differences are tested by the paired bootstrap of `comparison.py` where the ranks of the queries are at hand.


MEAN_RECALL = "mean_recall"


@dataclass(frozen=True)
class Forgetting:
    """The recall by language and model.

    Args:
        models: the names of the models, from the first to the last training, [M].
        test_set: what they were evaluated on.
        metric: the metric, in percent.
        languages: BCP-47 tags, [L].
        scores: the metric of each language and model, mean over the seeds of a model, [L, M].
        differences: the difference of each model to the first one, [L, M - 1].
        tests: for each of them its interval and p by the paired bootstrap; null where there are no ranks.
        forgotten: the languages whose score fell from the first model to the last by more than chance; by any amount
            where there are no ranks.
        mean_before, mean_after: the mean over the languages of the first and of the last model.
    """

    models: list[str]
    test_set: str
    metric: str
    languages: list[str]
    scores: np.ndarray
    differences: np.ndarray
    tests: list[list[Difference | None]]
    forgotten: list[str]
    mean_before: float
    mean_after: float


def forgetting(
    models: Mapping[str, Sequence[RunResults]], *, metric: str = MEAN_RECALL, test_set: str | None = None
) -> Forgetting:
    """Compares the results of models in the order of their training.

    Args:
        models: by name, the results of each seed of two or more models.
        metric: one of the metrics that all of them have.
        test_set: the test set; by default the first that all of them have.

    Raises:
        ComparisonError: for fewer than two models, for a test set that one of them lacks, and as `compare`.
    """
    if len(models) < 2:
        raise ComparisonError("what was forgotten shows between two models or more, and there is one")
    means = {name for results in models.values() for run in results for part in run.groups.values() for name in part}
    scores = [score for score in compare(models, [metric]) if score.language not in means]
    test_sets = list(dict.fromkeys(score.test_set for score in scores))
    chosen = test_set or test_sets[0]
    if chosen not in test_sets:
        raise ComparisonError(
            f"there is no test set {chosen!r} in all of the results; there are {', '.join(test_sets)}"
        )
    by_place: dict[str, dict[str, Score]] = {}
    for score in scores:
        if score.test_set == chosen:
            by_place.setdefault(score.language, {})[score.row] = score
    names, rows = list(models), list(by_place.values())
    matrix = np.array([[row[name].mean for name in names] for row in rows])
    tests = [[row[name].difference for name in names[1:]] for row in rows]
    differences = matrix[:, 1:] - matrix[:, :1]
    lost = [
        change[-1] < 0 and (test[-1] is None or bool(test[-1].stars))
        for change, test in zip(differences, tests, strict=True)
    ]
    return Forgetting(
        models=names,
        test_set=chosen,
        metric=metric,
        languages=list(by_place),
        scores=matrix,
        differences=differences,
        tests=tests,
        forgotten=[language for language, is_lost in zip(by_place, lost, strict=True) if is_lost],
        mean_before=float(matrix[:, 0].mean()),
        mean_after=float(matrix[:, -1].mean()),
    )
