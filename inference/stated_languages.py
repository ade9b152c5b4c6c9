"""The languages that a model states: by its processor, or on its card.

A model of one vocabulary computes an embedding of a text in any language, also in one that it never saw; only its card
says which these are.
"""

import logging
from functools import cache
from typing import Any

from huggingface_hub import ModelCard
from transformers.utils import cached_file

from ..configuration.errors import BabelensError, LanguageTagError
from ..configuration.languages import normalize_languages
from ..processing.text_inputs import UNDETERMINED

logger = logging.getLogger(__name__)

_ANY = "multilingual"  # what cards say in the place of a list


def languages_of(processor: Any, model: str) -> tuple[list[str], bool]:
    """The languages of a model, and whether it takes texts in any other language.

    A model that refuses other languages has them in its processor. The languages of another model are those that its
    card names; none when there is no card.
    """
    known = getattr(processor, "languages", None)
    if known is not None:
        native = getattr(processor, "native_language", None)
        return normalize_languages([*([native] if native else []), *known]), False
    named = [tag for tag in _card_languages(model) if tag != _ANY]
    try:
        return normalize_languages(named), True
    except LanguageTagError as error:
        logger.warning("the card of %s names a language that is none: %s", model, error)
        return [], True


def _card_languages(model: str) -> list[str]:
    """The languages that the card of a model names, where the card is on this machine."""
    try:
        file = cached_file(
            model,
            "README.md",
            local_files_only=True,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        named = None if file is None else ModelCard.load(file).data.get("language")
    except (BabelensError, OSError, ValueError) as error:
        logger.warning("the card of %s cannot be read: %s", model, error)
        return []
    return [named] if isinstance(named, str) else [str(tag) for tag in named or []]


def warn_of_language(language: str, stated: list[str], takes_any: bool, model: str) -> None:
    """Logs once for each model and language that a model does not state that it reads it.

    Args:
        language: the canonical tag of texts.
        stated, takes_any: what `languages_of` returns.
        model: the folder or the name of the model.
    """
    primary = [tag.partition("-")[0] for tag in stated]
    if takes_any and language != UNDETERMINED and language.partition("-")[0] not in primary:
        _warn(language, ", ".join(stated), model)


@cache
def _warn(language: str, stated: str, model: str) -> None:
    if stated:
        logger.warning(
            "%s states that it reads %s, and not %s: results for it may mean nothing", model, stated, language
        )
    elif _ANY not in _card_languages(model):
        logger.warning(
            "%s states no languages: whether it reads %s is not known, and results may mean nothing", model, language
        )
