"""Retrieval recall as an `evaluate.Metric`: the class of the folder `metrics/retrieval_recall`, which `evaluate.load`
reads too."""

from ..metrics.retrieval_recall.retrieval_recall import RetrievalRecall

__all__ = ["RetrievalRecall"]
