"""Measuring what models find: the embedder, the cross-encoder, retrieval recall, the emoji benchmark's four questions.

Names are imported when first used, as in `babelens.data`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .consistency import consistency_scores, evaluate_consistent_retrieval
    from .cross_encoder import CrossEncoder
    from .embedder import Embedder
    from .emoji import EmojiBenchmark
    from .reranking import Reranker
    from .retrieval import RetrievalRecall, evaluate_retrieval
    from .translation import Seq2SeqTranslator, Translator, TranslatorsByPair

_MODULE_OF = {
    "CrossEncoder": "cross_encoder",
    "Embedder": "embedder",
    "EmojiBenchmark": "emoji",
    "Reranker": "reranking",
    "RetrievalRecall": "retrieval",
    "Seq2SeqTranslator": "translation",
    "Translator": "translation",
    "TranslatorsByPair": "translation",
    "consistency_scores": "consistency",
    "evaluate_consistent_retrieval": "consistency",
    "evaluate_retrieval": "retrieval",
}

__all__ = [
    "CrossEncoder",
    "Embedder",
    "EmojiBenchmark",
    "Reranker",
    "RetrievalRecall",
    "Seq2SeqTranslator",
    "Translator",
    "TranslatorsByPair",
    "consistency_scores",
    "evaluate_consistent_retrieval",
    "evaluate_retrieval",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
