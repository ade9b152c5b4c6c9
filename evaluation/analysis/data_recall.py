"""Recall against the amount of training text in each language, with the rank correlation."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...configuration.errors import ComparisonError
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
        MissingExtraError: without `babelens[analysis]`.
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
