"""Ridge regression from the n-grams of texts, and from the features of a text encoder, to embeddings. Up to `DUAL`
texts, it is solved by the similarities of the texts; the strength of the regression and the weight of the encoder
minimize the leave-one-out error, which has a closed form. With more texts, a part is held out for this choice, and
normal equations are summed over chunks, so the n-grams of all texts are never in memory at once. Predictions of
held-out texts show how well a language was learned."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeModel

DUAL = 5000
CHUNK = 1024  # texts
_COLUMNS = 256  # texts at a time, whose products fit in the processor's cache
_STRENGTHS = (0.3, 1.0, 3.0, 10.0), (0.1, 0.03)  # from the usual one upwards, and from it downwards
_ENCODER_WEIGHTS = (0.25, 0.5, 1.0)
_HELD_OUT = 1000
_COALESCED: dict[str, Any] = {"is_coalesced": True, "check_invariants": False}
_SHRINKAGE = 0.4  # of the covariance of errors towards a multiple of the identity

SENTENCES, CAPTIONS, WORDS = "sentences", "captions", "words"
_RESAMPLES = 1000

Features = Callable[[Tensor], Tensor]  # positions -> features of the texts, [n, W]; sparse for n-grams


class Further(NamedTuple):
    """Additional texts, which take part only by their n-grams and are neither tested nor used for the choice. All
    values are multiplied by the square root of the weight of each text relative to the other texts."""

    ngrams: Tensor  # [m, rows], sparse
    targets: Tensor  # [m, rank]


@dataclass(frozen=True)
class Solution:
    """A map, `ngrams` [rows, rank] and `encoder` [W, rank], and its predictions for held-out texts: `predicted` [t,
    rank] at the positions `tested` [t], by a map solved without them. `encoder_weight` is relative to the n-grams; 0
    without an encoder."""

    ngrams: Tensor
    encoder: Tensor | None
    strength: float
    encoder_weight: float
    tested: Tensor
    predicted: Tensor


def discriminating(solution: Solution, targets: Tensor) -> Tensor:
    """Returns the weights [rank, rank] with which predictions find their own target [n, rank] among others: the
    inverse covariance of the errors for held-out texts, as in linear discriminant analysis. Without them, directions
    in which images vary decide which one is found, although texts say little about them."""
    errors = solution.predicted - targets[solution.tested]
    covariance = errors.T @ errors / len(errors)
    scale = covariance.diagonal().mean().clamp(min=1e-12)
    shrunk = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * scale * torch.eye(len(covariance))
    return scale * torch.linalg.inv(shrunk)


def solve_by_similarities(
    ngrams: Features, encoded: Features | None, targets: Tensor, further: Further | None = None, fixed: float = 0
) -> Solution:
    """Solves for the map from weighted n-grams of texts and a text encoder's features to the targets [n, rank], for
    texts whose similarities fit in memory. `fixed` is the strength; 0 chooses it."""
    whole = torch.arange(len(targets))
    words, features = ngrams(whole), None if encoded is None else encoded(whole)
    if further is not None:
        words = torch.cat([further.ngrams, words])
    similar, own = _similar(words), slice(len(words) - len(targets), None)
    also = None if features is None else features @ features.T

    def tried(weight: float, strength: float) -> tuple[float, Any]:
        matrix = similar[own, own].clone() if also is None else similar[own, own] + weight * also
        coefficients, left_out = _solved(matrix, targets, strength, slice(None))
        return float((left_out - targets).square().mean()), (weight, coefficients, left_out)

    weights = (0.0,) if also is None else _ENCODER_WEIGHTS
    found = [_least_error(partial(tried, weight), ((fixed,), ()) if fixed else _STRENGTHS) for weight in weights]
    _, strength, (weight, coefficients, left_out) = min(found, key=lambda each: each[0])
    if further is not None:
        if also is not None:
            similar[own, own] += weight * also
        coefficients, left_out = _solved(similar, torch.cat([further.targets, targets]), strength, own)
    encoder = None if features is None else weight * (features.T @ coefficients[-len(features) :])
    learned = torch.sparse.mm(words.T, coefficients)
    return Solution(learned, encoder, strength, weight, whole, left_out)


def _least_error(
    tried: Callable[[float], tuple[float, Any]], strengths: Sequence[Sequence[float]]
) -> tuple[float, float, Any]:
    """Returns the least error, its strength, and what else `tried` returns for it. The error has one minimum: weaker
    regressions are only tried if no stronger one is better than the usual one."""
    best: tuple[float, float, Any] = (math.inf, 0.0, None)
    for direction in strengths:
        for strength in direction:
            error, found = tried(strength)
            if error >= best[0]:
                break
            best = error, strength, found
        if best[1] != strengths[0][0]:
            break
    return best


def _solved(matrix: Tensor, targets: Tensor, strength: float, last: slice) -> tuple[Tensor, Tensor]:
    """Solves a ridge regression from the lower half of a column-major Gram matrix, and overwrites it: a copy would
    take most of the memory. Returns the coefficients [n, rank], and predicts each of the last texts from the rest."""
    matrix.diagonal().add_(strength)
    factor = torch.linalg.cholesky(matrix, out=matrix)
    halfway = torch.linalg.solve_triangular(factor, targets, upper=False)
    coefficients = torch.linalg.solve_triangular(factor.mT, halfway, upper=True)
    inverse = torch.cholesky_inverse(factor[last, last]).diagonal()  # the last texts need only the last block
    return coefficients, targets[last] - coefficients[last] / inverse[:, None]


def _similar(words: Tensor) -> Tensor:
    """Returns the products of sparse n-grams [n, rows] with each other [n, n], column-major. Only the lower half is
    computed, because no solver reads the upper half, and some columns at a time, which fit in the processor's
    cache."""
    words = words.coalesce()
    (texts, places), weights = words.indices(), words.values()
    count, rows = words.shape
    similar = torch.zeros(count, count).mT
    for start in range(0, count, _COLUMNS):
        some = slice(start, min(start + _COLUMNS, count))
        first, last = torch.searchsorted(texts, torch.tensor([some.start, some.stop])).tolist()
        column = torch.zeros(rows, some.stop - start)
        column[places[first:last], texts[first:last] - start] = weights[first:last]
        beside = torch.stack([texts[first:] - start, places[first:]])
        below = torch.sparse_coo_tensor(beside, weights[first:], (count - start, rows), **_COALESCED)
        similar[start:, some] = torch.sparse.mm(below, column)
    return similar


def solve_by_held_out(
    ngrams: Features, encoded: Features | None, targets: Tensor, further: Further | None = None, fixed: float = 0
) -> Solution:
    """Like `solve_by_similarities`, for any number of texts."""
    weight = 0.0 if encoded is None else 0.5

    def features(rows: Tensor) -> tuple[Tensor, Tensor]:
        words = ngrams(rows)
        return words, torch.zeros(len(rows), 0) if encoded is None else weight**0.5 * encoded(rows)

    order = torch.from_numpy(in_random_order(len(targets)))
    tested = order[: min(_HELD_OUT, len(order) // 5)].sort().values
    unseen = features(tested)
    rows, width = unseen[0].shape[1], sum(each.shape[1] for each in unseen)
    equations = _NormalEquations(width, targets.shape[1])
    for part in order[len(tested) :].split(CHUNK):
        equations.add(*features(part), targets[part])
    if further is not None:
        equations.add(further.ngrams, torch.zeros(len(further.targets), width - rows), further.targets)

    def tried(strength: float) -> tuple[float, Tensor]:
        map_ = equations.solved(strength)
        predicted = torch.sparse.mm(unseen[0], map_[:rows]) + unseen[1] @ map_[rows:]
        return float((predicted - targets[tested]).square().mean()), predicted

    _, strength, predicted = _least_error(tried, ((fixed,), ()) if fixed else (_STRENGTHS[0], _STRENGTHS[1][:1]))
    equations.add(*unseen, targets[tested])
    map_ = equations.solved(strength)
    encoder = None if encoded is None else weight**0.5 * map_[rows:]
    return Solution(map_[:rows], encoder, strength, weight, tested, predicted)


class _NormalEquations:
    """The map [F, rank] of the added features [n, F] and targets [n, rank], from sums over any number of texts. The
    Gram matrix is kept in blocks of columns, each without the rows below the diagonal."""

    def __init__(self, width: int, rank: int) -> None:
        ends = [*range(CHUNK, width, CHUNK), width]
        self.blocks = [torch.zeros(end, end - start) for start, end in zip([0, *ends], ends, strict=False)]
        self.cross = torch.zeros(width, rank)

    def add(self, words: Tensor, beside: Tensor, targets: Tensor) -> None:
        """Adds sparse n-grams [n, rows] and other features [n, W]. Sorting by n-gram keeps both factors of a product
        in the processor's cache."""
        rows, features = words.shape[1], torch.cat([words.to_dense(), beside], 1)
        words = words.T.coalesce()
        places, weights = words.indices(), words.values()
        for block in self.blocks:
            end = len(block)
            columns, above = features[:, end - block.shape[1] : end].contiguous(), min(end, rows)
            last = int(torch.searchsorted(places[0], above))
            some = torch.sparse_coo_tensor(places[:, :last], weights[:last], (above, len(features)), **_COALESCED)
            block[:above].addmm_(some, columns)
            block[above:].addmm_(features[:, above:end].T, columns)
        self.cross[:rows].addmm_(words, targets)
        self.cross[rows:].addmm_(beside.T, targets)

    def solved(self, strength: float) -> Tensor:
        gram = torch.zeros(len(self.cross), len(self.cross))
        for block in self.blocks:
            gram[: len(block), len(block) - block.shape[1] : len(block)] = block
        return _solved(gram.mT, self.cross, strength, slice(0))[0]


def in_random_order(count: int) -> np.ndarray:
    """The same order at every call, so the texts on which the base model is evaluated are among the held-out texts."""
    return np.random.default_rng(0).permutation(count)


# ---- How well a language was learned: held-out predictions retrieve the native sentences ----


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


def ranks_of(model: RidgeModel, targets: Tensor, right: Tensor, among: Tensor, directions: Tensor) -> np.ndarray:
    """Returns the rank of each `right` target [t] for predicted directions [t, rank]. The candidates are the rows
    `among`, ascending, of the targets [n, d]."""
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
    found_at = ranks_of(model, targets, rows[tested], among, predicted)
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
    ranks: Callable[[Tensor], np.ndarray], predicted: Tensor, glosses: Tensor, weights: Sequence[float]
) -> tuple[float, Tensor]:
    """Chooses the weight of a glossary among `weights` and twice the first that is good, by the mean reciprocal rank
    of the translations. Returns it, or 0 if retrieval is better without the glossary, and the predictions with it.
    `predicted` and `glosses` [t, rank] are the map's predictions for sentences that were held out of map and glossary,
    and the directions of their glosses; `ranks` returns the rank of each translation for such predictions."""

    def scored(found: Tensor) -> float:
        return float((1 / (1 + ranks(found))).mean())

    least = scored(predicted)
    for weight in weights if glosses.any() else ():
        found = normalize(predicted + weight * glosses)
        if (once := scored(found)) >= least:
            more = normalize(predicted + 2 * weight * glosses)
            return (2 * weight, more) if scored(more) >= once else (weight, found)
    return 0.0, predicted
