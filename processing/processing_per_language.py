"""The base class of the processors that read each language in its own way, and the count of cut texts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy
from transformers.utils import cached_file, logging

from ..utils.errors import InputError
from ..utils.languages import UNDETERMINED, language_for_each
from .processing_dual_encoder import TextImageProcessor, as_texts, call_tokenizer, cut_texts, note_cut_texts, overlong

logger = logging.get_logger(__name__)


@contextmanager
def counting_cut_texts() -> Iterator[dict[str, str]]:
    """Inside the block, processors record in the yielded dictionary each text that they cut, with the limit, instead
    of logging them."""
    cut: dict[str, str] = {}
    token = cut_texts.set(cut)
    try:
        yield cut
    finally:
        cut_texts.reset(token)


@dataclass(frozen=True)
class TextLayout:
    """How texts become rows of one length: cut at `max_length`, padded as `padding` says to a multiple of
    `multiple`."""

    padding: PaddingStrategy
    max_length: int
    cut: bool = True
    multiple: int = 1
    with_mask: bool = True
    side: str = "right"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        padding, truncation = settings["padding"], settings["truncation"]
        truncation = {True: "longest_first", False: "do_not_truncate"}.get(truncation, truncation)
        return cls(
            PaddingStrategy({True: "longest", False: "do_not_pad"}.get(padding, padding)),
            settings["max_length"],
            TruncationStrategy(truncation) is not TruncationStrategy.DO_NOT_TRUNCATE,
            settings.get("pad_to_multiple_of") or 1,
            settings.get("return_attention_mask", True),
        )

    def tokens(
        self, tokenizer: Any, texts: list[str], given: list[str] | None = None, room: int = 0, **settings: Any
    ) -> list[list[int]]:
        """Returns the tokens of texts, cut so that `room` remains; logs those that are cut, as they were `given`."""
        if not texts:
            return []
        cut = {"truncation": self.cut, "max_length": self.max_length - room, "verbose": False}
        encoded = call_tokenizer(tokenizer, texts, **cut | settings)
        note_cut_texts(overlong(texts if given is None else given, encoded), f"{self.max_length} tokens")
        return encoded["input_ids"]

    def padded(self, rows: Sequence[list[Any]], padding: Sequence[Any]) -> list[list[Any]]:
        """Pads N rows of different lengths to [N, T], each with its own padding."""
        if self.padding is PaddingStrategy.DO_NOT_PAD:
            return list(rows)
        least = self.max_length if self.padding is PaddingStrategy.MAX_LENGTH else 0
        length = max(least, *map(len, rows))
        length += -length % self.multiple
        pairs = [(row, [pad] * (length - len(row))) for row, pad in zip(rows, padding, strict=True)]
        return [filler + row if self.side == "left" else row + filler for row, filler in pairs]

    def mask(self, rows: Sequence[list[Any]], name: str = "attention_mask") -> dict[str, list[list[int]]]:
        """Returns a mask [N, T], 1 for text and 0 for padding, under this name, or an empty dict if none is wanted."""
        return {name: self.padded([[1] * len(row) for row in rows], [0] * len(rows))} if self.with_mask else {}


class PerLanguageProcessor(TextImageProcessor):
    """Base class of processors that read each language in its own way, and refuse a text without a language.
    Subclasses define `encode_texts` and `max_text_length`."""

    max_text_length: int
    reads_unstated: ClassVar[bool] = False  # whether a text may come without its language, although it matters
    text_names: ClassVar[frozenset[str]] = frozenset(
        ("padding", "truncation", "max_length", "pad_to_multiple_of", "return_attention_mask")
    )

    @property
    def text_kwargs(self) -> dict[str, Any]:
        return {"padding": True, "truncation": True, "max_length": self.max_text_length}

    @property
    def model_input_names(self) -> list[str]:
        names = ["pixel_values", "input_ids", "attention_mask"]
        return [*names, "language_ids"] if self.needs_language else names

    @property
    def default_language(self) -> str:  # type: ignore[override]
        """`und` if the model reads texts without a language, the native language of a model that was extended, which
        is logged once, or the only language. Other models have no default: an error."""
        if self.reads_unstated or not self.needs_language:
            return UNDETERMINED
        languages = [str(tag) for tag in getattr(self, "languages", ())]
        if native := getattr(self, "native_language", None):
            message = "texts without a language are read as %s, the native language; this is logged once"
            logger.warning_once(message, str(native))
            return str(native)
        if len(languages) == 1:
            return languages[0]
        raise InputError(
            f"this model reads each language in its own way: give language='de'; the model has {', '.join(languages)}"
        )

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        if language is None and (self.reads_unstated or not self.needs_language):
            language = UNDETERMINED
        return self.encode_texts(*texts_and_languages(text, language), TextLayout.of(settings))

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        raise NotImplementedError


def texts_and_languages(
    text: Any, language: Any, names: tuple[str, str] = ("text", "language")
) -> tuple[list[str], list[str]]:
    texts = as_texts(text, names[0])
    if language is None:
        raise InputError(f"{names[0]}= was given without {names[1]}=: the model needs the language of every text")
    return texts, language_for_each(language, len(texts))


def file_beside(source: Any, name: str, loading: Mapping[str, Any], *, is_needed: bool = True) -> Any:
    """Returns the path of a file next to a processor's settings, in a folder or on the Hub; None if it is optional and
    missing."""
    place = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
    options = {key: loading[key] for key in place if key in loading}
    found = cached_file(source, name, **options, _raise_exceptions_for_missing_entries=is_needed)
    return None if found is None else Path(found)
