"""What was forgotten: the recall in all languages before and after a training, or after each of several.

Differences are tested by the paired bootstrap of `comparison.py` where the ranks of the queries are at hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...configuration.errors import ComparisonError
from ..comparison import Difference, RunResults, Score, compare

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
