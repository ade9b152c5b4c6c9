"""Recall of text-image retrieval, in both directions: `evaluate.load("./metrics/retrieval_recall")`. This folder is
self-contained: it needs only evaluate, datasets and numpy. babelens computes its recalls with it."""

import datasets
import evaluate
import numpy as np

RECALL_AT = (1, 5, 10)
PROTOCOLS = ("standard", "mla")

_DESCRIPTION = """
The percentage of queries whose best-ranked correct item is in the top 1, 5 and 10, from text to image and from image
to text, and the mean of the six. Ties count against the query: an item with the same score as the correct one ranks
first.
"""
_INPUTS = """
Args:
    predictions: the scores of each text for all images; higher means more similar.
    references: the indices of each text's correct images, at least one.
    protocol: "standard" ranks single items (Karpathy & Fei-Fei 2015). "mla" ranks images by the best of their texts,
        so several texts of one wrong image count as one (Zhang et al. 2022, released code).
Returns:
    t2i_r1, t2i_r5, t2i_r10, i2t_r1, i2t_r5, i2t_r10, mean_recall, n_images, n_texts
Examples:
    >>> recall = evaluate.load("./metrics/retrieval_recall")
    >>> recall.compute(predictions=[[0.9, 0.1], [0.2, 0.7]], references=[[0], [1]])["t2i_r1"]
    100.0
"""


class RetrievalRecall(evaluate.Metric):
    """Retrieval recall as an `evaluate.Metric`, from rows of scores, which `add_batch` may add in batches.

    >>> RetrievalRecall().compute(predictions=[[0.9, 0.1], [0.2, 0.7]], references=[[0], [1]])["t2i_r1"]
    100.0
    """

    def _info(self) -> evaluate.MetricInfo:
        scores, indices = (datasets.Sequence(datasets.Value(kind)) for kind in ("float64", "int64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(predictions=scores, references=indices),
        )

    def _compute(
        self, predictions: list[list[float]], references: list[list[int]], protocol: str = "standard"
    ) -> dict[str, float]:
        return recalls_of_ranks(*ranks_of_scores(np.array(predictions), references, protocol))


def ranks_of_scores(
    scores: np.ndarray, references: list[list[int]], protocol: str = "standard"
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ranks with texts and with images as queries, counted from 1; 0 for an image without a text."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol={protocol!r} is none of {', '.join(PROTOCOLS)}")
    if scores.ndim != 2 or len(scores) != len(references) or not np.isfinite(scores).all():
        raise ValueError(f"scores must be finite, a row for each of {len(references)} texts; got {scores.shape}")
    right = np.zeros(scores.shape, dtype=bool)
    for text, images in enumerate(references):
        if not len(images) or not all(0 <= image < scores.shape[1] for image in images):
            raise ValueError(f"text {text} has the right images {list(images)} of {scores.shape[1]}")
        right[text, images] = True
    best = np.where(right, scores, -np.inf)
    text_ranks = 1 + (~right & (scores >= best.max(1, keepdims=True))).sum(1)
    is_before = ~right & (scores >= best.max(0))  # texts that rank above an image's own
    before = is_before.sum(0)
    if protocol == "mla":
        before = np.array([right[texts].any(0).sum() for texts in is_before.T])
    return text_ranks, np.where(right.any(0), 1 + before, 0)


def recalls_of_ranks(text_to_image: np.ndarray, image_to_text: np.ndarray) -> dict[str, float]:
    """Returns the recalls in percent from the ranks of the best correct items; images of rank 0 are not queries."""
    found = {"t2i": text_to_image, "i2t": image_to_text[image_to_text > 0]}
    recalls = {
        f"{direction}_r{k}": 100.0 * float((ranks <= k).mean()) if len(ranks) else float("nan")
        for direction, ranks in found.items()
        for k in RECALL_AT
    }
    counts = {"n_images": len(image_to_text), "n_texts": len(text_to_image)}
    return recalls | {"mean_recall": sum(recalls.values()) / len(recalls)} | counts
