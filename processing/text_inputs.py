"""Texts given to processors and the embedder. A text that is too long for the model is never cut silently: a processor
logs it once, and callers that encode many texts count them instead (`counting_cut_texts`)."""

import inspect
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from ..utils.errors import InputError

# BCP 47's tag of a text in no stated language.
UNDETERMINED = "und"
_SHOWN = 60  # number of characters of a text in a message

logger = logging.getLogger(__name__)

_TOKENIZING = threading.RLock()
if hasattr(os, "register_at_fork"):  # another thread may hold the lock when a data loader forks
    os.register_at_fork(
        before=_TOKENIZING.acquire, after_in_parent=_TOKENIZING.release, after_in_child=_TOKENIZING.release
    )


def call_tokenizer(tokenizer: Any, texts: Any, **settings: Any) -> Any:
    """Calls a tokenizer from one thread at a time: a call changes the truncation and padding stored in a fast one."""
    with _TOKENIZING:
        return tokenizer(texts, **settings)


def takes_language(processor: Any) -> bool:
    return processor is not None and "language" in inspect.signature(type(processor).__call__).parameters


def needs_language(processor: Any) -> bool:
    return takes_language(processor) and bool(getattr(processor, "needs_language", True))


def default_language(processor: Any) -> str:
    """Returns the tag of texts without a language: `und` if the model reads such texts, its only language, or the
    native language of a model extended from it, which is logged once. Other models have no default: an error."""
    if not needs_language(processor) or getattr(processor, "reads_unstated", False):
        return UNDETERMINED
    native = getattr(processor, "native_language", None)
    if native is not None:
        _warn_once("texts without a language are read as %s, the native language; this is logged once", str(native))
        return str(native)
    others = list(getattr(processor, "languages", None) or [])
    if len(others) == 1:
        return str(others[0])
    known = f"; the model has {', '.join(others)}" if others else ""
    raise InputError(f"this model reads each language in its own way: give language='de'{known}")


def as_texts(given: Any, name: str = "text", *, none_is_fine: bool = False) -> list[str]:
    """Returns the texts of an argument, one or several; half a surrogate pair is not valid Unicode."""
    if isinstance(given, bytes | Mapping | Set) or not isinstance(given, Iterable):
        raise InputError(f"{name}= is {truncated_repr(given)}: give a text, or a list of texts")
    texts = [given] if isinstance(given, str) else list(given)
    if not texts and not none_is_fine:
        raise InputError(f"{name} is an empty list")
    for index, text in enumerate(texts):
        called = f"{name}=" if isinstance(given, str) else f"{name}[{index}]"
        if not isinstance(text, str):
            raise InputError(f"{called} is {truncated_repr(text)}, which is not a text")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = f"character {error.start} of {text[:_SHOWN]!r}"
            raise InputError(f"{called} has half a surrogate pair at {at}: decode it with another encoding") from error
    return texts


def truncated_repr(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}… ({type(value).__name__})"


class CutTexts:
    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.limit = ""

    def add(self, texts: Iterable[str], limit: str) -> None:
        self.texts.update(texts)
        self.limit = limit or self.limit

    def warn(self, texts: Sequence[str]) -> None:
        """Logs how many of these texts were cut, if any; inside another block, records them there."""
        if (outer := _counting.get()) is not None:
            outer.add(self.texts, self.limit)
        elif cut := [index for index, text in enumerate(texts) if text in self.texts]:
            logger.warning(
                "%d of %d texts are longer than the %s that the model reads, and were cut; the first is text %d, %r",
                *(len(cut), len(texts), self.limit, cut[0], f"{texts[cut[0]][:_SHOWN]}…"),
            )


_counting: ContextVar[CutTexts | None] = ContextVar("counting", default=None)


@contextmanager
def counting_cut_texts() -> Iterator[CutTexts]:
    """Inside the block, processors record the texts that they cut in the yielded object instead of logging them."""
    cut = CutTexts()
    token = _counting.set(cut)
    try:
        yield cut
    finally:
        _counting.reset(token)


def is_counting() -> bool:
    return _counting.get() is not None


def note_cut_texts(texts: Sequence[str], limit: str) -> None:
    if texts and (counting := _counting.get()) is not None:
        counting.add(texts, limit)
    elif texts:
        _warn_once("texts of more than %s are cut there, because the model reads no more; this is logged once", limit)


@cache
def _warn_once(message: str, about: str) -> None:
    logger.warning(message, about)


def overlong(texts: Sequence[str], encoded: Any) -> list[str]:
    return [text for text, encoding in zip(texts, encoded.encodings or (), strict=False) if encoding.overflowing]
