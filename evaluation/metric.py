"""Retrieval recall as an `evaluate.Metric`, apart from what evaluates models: evaluate imports scipy, which would take
half a second of every command."""

import datasets
import evaluate
import numpy as np

from .ranking import score_ranks


class RetrievalRecall(evaluate.Metric):
    """Retrieval recall as an `evaluate.Metric`: from rows of scores to the numbers of `evaluate_retrieval`.

    `predictions` has one row for each text, with its scores for all images; `references` lists the right images of
    each text. Rows may be added batch by batch (`add_batch`). For collections whose score matrix is too large, use
    `ranking.embedding_ranks`.

        >>> RetrievalRecall().compute(predictions=[[0.9, 0.1], [0.2, 0.7]], references=[[0], [1]])["t2i_r1"]
        100.0
        >>> RetrievalRecall().compute(predictions=scores, references=right_images, protocol="mla")
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=(__doc__ or "").partition("\n\n")[0],
            citation="",
            inputs_description=type(self).__doc__,
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("float64")),
                    "references": datasets.Sequence(datasets.Value("int64")),
                }
            ),
        )

    def _compute(
        self, predictions: list[list[float]], references: list[list[int]], protocol: str = "standard"
    ) -> dict[str, float]:
        return score_ranks(np.array(predictions), references, protocol=protocol).recalls()
