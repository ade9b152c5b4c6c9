"""Captioned pictures and translations: loaders, the views that tasks eat, and the emoji benchmark.

Names are imported when first used: `datasets` and Arrow take a while to load, and `import babelens` should not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .corpus import as_caption_corpus, as_translation_corpus, languages_of
    from .emoji import load_emoji
    from .emoji_tasks import emoji_entailment, emoji_questions, text_only_accuracy
    from .emoji_weak import weakly_aligned_emoji
    from .errors import BadImageError, BadTextError, CorpusError, SourceUnavailableError
    from .iglue import (
        UnknownAnswerError,
        load_answers,
        load_marvl,
        load_nlvr2,
        load_xflickrco,
        load_xgqa,
        load_xvnli,
    )
    from .loading import load_captions, load_translations
    from .multi30k import load_multi30k
    from .pictures import SkippedImage
    from .views import RetrievalSet, image_text_pairs, retrieval_set, translation_pairs, triplets, weak_pairs
    from .wit import load_wit

_HOMES = {
    "corpus": ("as_caption_corpus", "as_translation_corpus", "languages_of"),
    "emoji": ("load_emoji",),
    "emoji_tasks": ("emoji_entailment", "emoji_questions", "text_only_accuracy"),
    "emoji_weak": ("weakly_aligned_emoji",),
    "errors": ("BadImageError", "BadTextError", "CorpusError", "SourceUnavailableError"),
    "iglue": (
        "UnknownAnswerError",
        "load_answers",
        "load_marvl",
        "load_nlvr2",
        "load_xflickrco",
        "load_xgqa",
        "load_xvnli",
    ),
    "loading": ("load_captions", "load_translations"),
    "multi30k": ("load_multi30k",),
    "pictures": ("SkippedImage",),
    "views": ("RetrievalSet", "image_text_pairs", "retrieval_set", "translation_pairs", "triplets", "weak_pairs"),
    "wit": ("load_wit",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BadImageError",
    "BadTextError",
    "CorpusError",
    "RetrievalSet",
    "SkippedImage",
    "SourceUnavailableError",
    "UnknownAnswerError",
    "as_caption_corpus",
    "as_translation_corpus",
    "emoji_entailment",
    "emoji_questions",
    "image_text_pairs",
    "languages_of",
    "load_answers",
    "load_captions",
    "load_emoji",
    "load_marvl",
    "load_multi30k",
    "load_nlvr2",
    "load_translations",
    "load_wit",
    "load_xflickrco",
    "load_xgqa",
    "load_xvnli",
    "retrieval_set",
    "text_only_accuracy",
    "translation_pairs",
    "triplets",
    "weak_pairs",
    "weakly_aligned_emoji",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
