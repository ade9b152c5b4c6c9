"""Retrieval recall as an `evaluate.Metric`, from `metrics/retrieval_recall`, which `evaluate.load` also reads."""

from ..metrics.retrieval_recall.retrieval_recall import RetrievalRecall

__all__ = ["RetrievalRecall"]
