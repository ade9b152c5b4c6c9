"""Which images every language finds, and which only one.

An image is found in a language when one of its captions in that language has the image among the first k.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...configuration.errors import ComparisonError
from ..query_ranks import QueryRanks


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
