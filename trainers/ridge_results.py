"""How well a language was learned in closed form: retrieval of native sentences by predictions that were made without
them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeModel
from .ridge_solving import CHUNK, Solution

_RESAMPLES = 1000
# The first with which translations are found no worse than without, or twice as much where that is no worse still.
_GLOSS_WEIGHTS = (1.0, 0.5)


@dataclass(frozen=True)
class LanguageResult:
    """How well the map of a language finds translations that it was not solved with.

    Args:
        pairs: the number of sentences.
        tested: how many of them were tested: all, each left out in turn, or a part that was held out.
        r1, r10: share of texts that find their native translation first, and among the first ten, in percent.
        r10_low, r10_high: 95 % interval of `r10`, by bootstrap over the texts.
        chance: `r10` of a random order.
        zero_shot: `r10` of the native model reading the texts by itself; None where it was not asked.
        strength: of the regression.
        encoder_weight: of the text encoder beside the n-grams; 0 without one.
        names: the language of the names that were learned beside the sentences; None without names.
        gloss_weight: of the text translated word by word, beside the map's prediction; 0 without a glossary.
        words: the number of words in the glossary.
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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def warning(self, language: str) -> str | None:
        """What is wrong, in words; None if nothing is."""
        if self.r10_low <= 2 * self.chance:
            return (
                f"{language}: {self.r10:.1f} % of the texts find their translation among the first ten, and "
                f"{self.chance:.1f} % would by chance: the two columns hardly translate each other. Look for swapped "
                "columns, shifted lines, or another language in the column"
            )
        if self.zero_shot is not None and self.zero_shot > self.r10_high:
            return (
                f"{language}: the base model, which was not taught, finds {self.zero_shot:.1f} % among the first ten, "
                f"and the learned map {self.r10:.1f} %: use the base model for this language"
            )
        return None


def ranks(queries: Tensor, candidates: Tensor, right: Tensor) -> np.ndarray:
    """Counts the candidates, other than the right one, that score as high as it or higher."""
    found = []
    for rows in torch.arange(len(queries)).split(CHUNK):
        scores = queries[rows] @ candidates.T
        found.append((scores >= scores.gather(1, right[rows, None])).sum(1) - 1)
    return torch.cat(found).numpy()


def _ranks_of(model: RidgeModel, directions: Tensor, targets: Tensor, right: Tensor, among: Tensor) -> np.ndarray:
    """The ranks of the right targets [t] for predicted directions [t, rank], among the targets at some places."""
    places = among.unique()
    embeddings = normalize(model.maps.mean + model.maps.radius * directions @ model.maps.directions)
    return ranks(embeddings, targets[places], torch.searchsorted(places, right))


def result_of(
    model: RidgeModel,
    solved: Solution,
    predicted: Tensor,
    targets: Tensor,
    rows: Tensor,
    tested: Tensor,
    untaught: tuple[Tensor, Tensor] | None = None,
) -> LanguageResult:
    """Measures the retrieval of native sentences by predictions, and by the native model's own embeddings of texts.

    Args:
        model: the model.
        solved: the map.
        predicted ([t, rank]): the directions that are predicted for sentences from which nothing was learned.
        targets ([n, d]): native embeddings.
        rows ([m]): the target of each sentence. Each is to be found among those of `solved.tested`.
        tested ([t]): the positions of the sentences.
        untaught: the targets of other texts, and the native model's embeddings of these.
    """
    places = rows[solved.tested].unique()
    found_at = _ranks_of(model, predicted, targets, rows[tested], places)
    hits = (found_at < 10).astype(float)
    resampled = np.random.default_rng(0).choice(hits, (_RESAMPLES, len(hits))).mean(1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    zero_shot = None
    if untaught is not None:
        right, guesses = untaught
        base_found_at = ranks(guesses, targets[places], torch.searchsorted(places, right))
        zero_shot = 100 * float((base_found_at < 10).mean())
    return LanguageResult(
        pairs=len(rows),
        tested=len(hits),
        r1=100 * float((found_at < 1).mean()),
        r10=100 * float(hits.mean()),
        r10_low=100 * float(low),
        r10_high=100 * float(high),
        chance=100 * min(10 / len(places), 1.0),
        zero_shot=zero_shot,
        strength=solved.strength,
        encoder_weight=solved.encoder_weight,
    )


def gloss_weight_of(
    model: RidgeModel, predicted: Tensor, glosses: Tensor, targets: Tensor, right: Tensor, among: Tensor
) -> tuple[float, Tensor]:
    """Chooses the weight of a glossary.

    Args:
        model: the model.
        predicted, glosses ([t, rank]): the directions of sentences that neither the map nor the glossary was learned
            from: as the map predicts them, and of their words.
        targets ([n, d]): native embeddings.
        right ([t]): the target of each of the sentences.
        among: the targets among which each is to be found.

    Returns:
        The weight, 0 where translations are found as well without, and the directions that are predicted with it.
    """

    def score(found: Tensor) -> float:
        """The mean reciprocal rank of the translations."""
        return float((1 / (1 + _ranks_of(model, found, targets, right, among))).mean())

    def with_glosses(weight: float) -> Tensor:
        return normalize(predicted + weight * glosses)

    least = score(predicted)
    for weight in _GLOSS_WEIGHTS if glosses.any() else ():
        found = with_glosses(weight)
        if (once := score(found)) >= least:
            more = with_glosses(2 * weight)
            return (2 * weight, more) if score(more) >= once else (weight, found)
    return 0.0, predicted
