"""How well a language was learned in closed form: retrieval of held-out native sentences by predictions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeModel
from .ridge_solving import CHUNK, Solution

SENTENCES, CAPTIONS, WORDS = "sentences", "captions", "words"
_RESAMPLES = 1000
# The first weight that does not make retrieval worse than without a glossary, or twice as much if that does not
# either.
GLOSS_WEIGHTS = (1.0, 0.5)


@dataclass(frozen=True)
class LanguageResult:
    """How well the map of a language retrieves held-out translations.

    Args:
        pairs, words: the number of sentences, and of words in the glossary.
        tested: the number of tested sentences: all of them, each left out in turn, or a held-out part.
        r1, r10: the recall of the native translations, R@1 and R@10, in percent.
        r10_low, r10_high: the 95 % confidence interval of `r10`, by bootstrap over the texts.
        chance: `r10` of a random order.
        zero_shot: `r10` of the native model reading the texts directly; None if it was not measured.
        encoder_weight: of the text encoder relative to the n-grams; 0 without a text encoder.
        names: the language of the names that were learned in addition to the sentences; None without names.
        gloss_weight: of the word-by-word translation relative to the map's prediction; 0 without a glossary.
        learned_from: `sentences`; `captions`, whose images are found instead of translations; or `words` of a
            dictionary, `pairs` of them, where the tested texts are lists of words, every fifth of them unknown.
    """

    pairs: int
    tested: int
    r1: float
    r10: float
    r10_low: float
    r10_high: float
    chance: float
    zero_shot: float | None
    strength: float
    encoder_weight: float
    names: str | None = None
    gloss_weight: float = 0.0
    words: int = 0
    learned_from: str = SENTENCES

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def warning(self, language: str) -> str | None:
        """Returns a warning if the result is implausible or bad, otherwise None."""
        if self.r10_low <= 2 * self.chance:
            return (
                f"{language}: {self.r10:.1f} % of the texts find their translation among the first ten, but "
                f"{self.chance:.1f} % would by chance: the two columns hardly match. Look for swapped "
                "columns, shifted lines, or another language in the column"
            )
        if self.zero_shot is not None and self.zero_shot > self.r10_high:
            return (
                f"{language}: without training, the base model finds {self.zero_shot:.1f} % among the first ten, "
                f"and the learned map {self.r10:.1f} %: use the base model for this language"
            )
        return None


def _ranks(queries: Tensor, candidates: Tensor, right: Tensor) -> np.ndarray:
    """Counts the wrong candidates with at least the score of the right candidate."""
    found = []
    for rows in torch.arange(len(queries)).split(CHUNK):
        scores = queries[rows] @ candidates.T
        found.append((scores >= scores.gather(1, right[rows, None])).sum(1) - 1)
    return torch.cat(found).numpy()


def _ranks_of(model: RidgeModel, directions: Tensor, targets: Tensor, right: Tensor, among: Tensor) -> np.ndarray:
    """Returns the ranks of the right targets [t] for predicted directions [t, rank], among the targets `among`."""
    embeddings = normalize(model.maps.mean + model.maps.radius * directions @ model.maps.directions)
    return _ranks(embeddings, targets[among], torch.searchsorted(among, right))


def result_of(
    model: RidgeModel,
    solved: Solution,
    predicted: Tensor,
    targets: Tensor,
    rows: Tensor,
    tested: Tensor,
    untaught: tuple[Tensor, Tensor] | None = None,
) -> LanguageResult:
    """Measures the retrieval of native sentences by `predicted` [t, rank], the directions of the held-out sentences at
    `tested` [t]. The target of each sentence is `rows` [m] of `targets` [n, d]; the candidates are the targets of
    `solved.tested`. `untaught` are the targets of other texts, and the native model's own embeddings of these texts,
    which it measures as well."""
    among = rows[solved.tested].unique()
    found_at = _ranks_of(model, predicted, targets, rows[tested], among)
    hits = (found_at < 10).astype(float)
    resampled = np.random.default_rng(0).choice(hits, (_RESAMPLES, len(hits))).mean(1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    zero_shot = None
    if untaught is not None:
        right, guesses = untaught
        zero_shot = 100 * float((_ranks(guesses, targets[among], torch.searchsorted(among, right)) < 10).mean())
    return LanguageResult(
        pairs=len(rows),
        tested=len(hits),
        r1=100 * float((found_at < 1).mean()),
        r10=100 * float(hits.mean()),
        r10_low=100 * float(low),
        r10_high=100 * float(high),
        chance=100 * min(10 / len(among), 1.0),
        zero_shot=zero_shot,
        strength=solved.strength,
        encoder_weight=solved.encoder_weight,
    )


def gloss_weight_of(
    model: RidgeModel,
    predicted: Tensor,
    glosses: Tensor,
    targets: Tensor,
    right: Tensor,
    among: Tensor,
    weights: Sequence[float] = GLOSS_WEIGHTS,
) -> tuple[float, Tensor]:
    """Chooses the weight of a glossary among `weights` and twice the first that is good, by the mean reciprocal rank
    of the translations. Returns it, or 0 if retrieval is better without the glossary, and the predictions with it.
    `predicted` and `glosses` [t, rank] are the map's predictions for sentences that were held out of map and glossary,
    and the directions of their glosses; `right` [t] and `among` are rows of `targets` [n, d]: the target of each
    sentence, and the candidates."""
    among = among.unique()

    def scored(found: Tensor) -> float:
        return float((1 / (1 + _ranks_of(model, found, targets, right, among))).mean())

    least = scored(predicted)
    for weight in weights if glosses.any() else ():
        found = normalize(predicted + weight * glosses)
        if (once := scored(found)) >= least:
            more = normalize(predicted + 2 * weight * glosses)
            return (2 * weight, more) if scored(more) >= once else (weight, found)
    return 0.0, predicted
