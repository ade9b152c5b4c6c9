"""The base class of all processors, and the processor of dual encoders with one vocabulary for all languages. A text
that is too long for the model is never cut silently: a processor logs it once, and callers that encode many texts
count them instead (`counting_cut_texts`)."""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from contextvars import ContextVar
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

from transformers import BatchFeature, ProcessorMixin
from transformers.processing_utils import ImagesKwargs, TextKwargs
from transformers.utils import logging

from ..utils.errors import InputError
from ..utils.hub_mixin import HubCodeMixin
from ..utils.languages import UNDETERMINED, language_for_each
from .images import SHOWN, as_images, truncated_repr

# Longer than any text; tokenizers accept numbers up to 2 to the power of 64.
LARGEST_LENGTH = 1 << 20
MAX_TEXT_TOKENS = 64  # MURAL and ETCL
# Keywords for pairs of texts, and for texts with image placeholders, which dual encoders do not read.
_NOT_OF_ONE_TEXT = {
    *("text_pair", "text_target", "text_pair_target", "is_split_into_words", "sanitize_control_tokens"),
    *("return_mm_token_type_ids", "return_text_replacement_offsets"),
}

logger = logging.get_logger(__name__)


class TextImageProcessor(HubCodeMixin, ProcessorMixin):
    """Base class of the processors. Subclasses define which keywords of `transformers.processing_utils.TextKwargs`
    they accept (`text_names`), their default values (`text_kwargs`), and `_encoded`."""

    text_names: ClassVar[frozenset[str]]
    # Whether the inputs of a text depend on its language; if not, texts may come without one.
    needs_language: bool = True
    default_language: str = UNDETERMINED  # the language of texts without one
    least_length: int = 1  # the smallest `max_length` at which a truncated text keeps a word

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """Prepares images, texts or both: `pixel_values`; `input_ids` and `attention_mask`; and `language_ids` where
        the model reads them. `kwargs` are those of transformers' processors, directly or in `text_kwargs`,
        `images_kwargs` and `common_kwargs`: `return_tensors="pt"`, `padding`, `truncation`, `max_length`, …

        Args:
            images: an image or a list of them (Pillow, arrays and tensors of uint8, paths); see `as_images`.
            language: BCP-47 tag of all texts, or a list with one for each text; also in `text_kwargs`.
        """
        language, text_settings, image_settings = self.read_settings(language, kwargs)
        if images is None and text is None:
            raise InputError("give images=, text=, or both")
        if text is None and language is not None:
            raise InputError("language= was given without text=")
        inputs: dict[str, Any] = {}
        if text is not None:
            inputs |= self._encoded(text, language, text_settings)
        if images is not None:
            inputs |= self.image_processor(as_images(images), **image_settings)
        return BatchFeature(inputs, tensor_type=text_settings.get("return_tensors"))

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        raise NotImplementedError

    def read_settings(self, language: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Returns the language, the text settings and the image settings of a call. As in transformers, None counts as
        not given, an unknown keyword is logged and ignored, and one given twice is an error."""
        of_images = {*getattr(self.image_processor, "valid_kwargs", ImagesKwargs).__annotations__}
        of_images -= {"input_data_format"}  # `as_images` makes Pillow images of arrays
        of_texts = {*self.text_names, "return_tensors"}
        groups = {name: dict(given.get(name) or {}) for name in ("text_kwargs", "images_kwargs", "common_kwargs")}
        other = {name: value for name, value in given.items() if not name.endswith("_kwargs")}
        if language is None:
            language = groups["text_kwargs"].pop("language", None)
        unknown = {*other, *groups["text_kwargs"], *groups["images_kwargs"]} - of_images - of_texts
        for name in sorted(unknown - {"audio", "videos"}):
            logger.warning("%s does not accept %r: it is ignored", type(self).__name__, name)
        merged = []
        for name, known in (("text_kwargs", of_texts), ("images_kwargs", of_images)):
            if twice := sorted(groups[name].keys() & other.keys()):
                raise InputError(f"{twice[0]} was given twice: as {twice[0]}= and in {name}")
            chosen = groups["common_kwargs"] | groups[name] | other
            own = {key: value for key, value in chosen.items() if key in known and value is not None}
            merged.append({**getattr(self, name, {}), **own})
        longest = merged[0].get("max_length")
        if longest is not None and not self.least_length <= longest <= LARGEST_LENGTH:
            raise InputError(f"max_length={longest} is not from {self.least_length} to {LARGEST_LENGTH}")
        return language, merged[0], merged[1]


class DualEncoderProcessor(TextImageProcessor):
    """Turns images and texts into `pixel_values`, `input_ids` and `attention_mask`; the language has no effect.

    Args:
        text_prompt: prefix of every text, such as "query: " for E5.
        pad_to_max_length: pad every text to `max_text_length`, as SigLIP's text tower needs, not to the longest one.
    """

    needs_language = False
    text_names: ClassVar[frozenset[str]] = frozenset(TextKwargs.__annotations__) - _NOT_OF_ONE_TEXT

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        text_prompt: str = "",
        max_text_length: int = MAX_TEXT_TOKENS,
        pad_to_max_length: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(image_processor, tokenizer, **more)
        self.text_prompt, self.max_text_length = text_prompt, max_text_length
        self.pad_to_max_length = pad_to_max_length
        # BERT's tokenizers would also return segment ids, which some text towers do not accept. `init_kwargs` is
        # saved, so pipelines, which load only the tokenizer, do the same.
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names

    @classmethod
    def from_towers(cls, image: Any, text: Any, config: Any, **loading: Any) -> Self:
        """Makes the processor of a model of two pretrained towers, from their folders or Hub ids, or from an image
        processor and a tokenizer. `config` (from the model's `from_towers`) has the prompt of texts."""
        from transformers import AutoImageProcessor, AutoTokenizer

        from ..configuration.configuration_mla import text_positions
        from ..utils.pretrained import load_processor

        if isinstance(image, str | Path):
            # Pillow on every machine: transformers would use torchvision where it is installed, with other pixels.
            image = load_processor(AutoImageProcessor, image, **{"backend": "pil"} | loading)
        text = load_processor(AutoTokenizer, text, **loading) if isinstance(text, str | Path) else text
        is_padded, positions = "siglip" in config.text_config.model_type, text_positions(config.text_config)
        length = int(min(positions or LARGEST_LENGTH, text.model_max_length, LARGEST_LENGTH))
        return cls(image, text, config.text_prompt, length if is_padded else min(length, MAX_TEXT_TOKENS), is_padded)

    @property
    def text_kwargs(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"padding": True, "truncation": True, "max_length": self.max_text_length}
        if self.pad_to_max_length:  # SigLIP's text tower reads the padding too
            settings |= {"padding": "max_length", "return_attention_mask": False}
        return settings

    @property
    def least_length(self) -> int:  # type: ignore[override]
        prompt = call_tokenizer(self.tokenizer, self.text_prompt, add_special_tokens=False)["input_ids"]
        return int(self.tokenizer.num_special_tokens_to_add()) + len(prompt) + 1

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        texts = as_texts(text)
        if language is not None:
            language_for_each(language, len(texts))
        # As with any tokenizer, a single text gives one row, not a list of rows, unless it becomes a tensor.
        prompted = [self.text_prompt + each for each in texts]
        given = prompted[0] if isinstance(text, str) else prompted
        encoded = call_tokenizer(self.tokenizer, given, **{"verbose": False} | settings)
        note_cut_texts(overlong(texts, encoded), f"{settings['max_length']} tokens")
        return encoded


# ---- Texts ----

_TOKENIZING = threading.RLock()
if hasattr(os, "register_at_fork"):  # another thread may hold the lock when a data loader forks
    os.register_at_fork(
        before=_TOKENIZING.acquire, after_in_parent=_TOKENIZING.release, after_in_child=_TOKENIZING.release
    )


def call_tokenizer(tokenizer: Any, *texts: Any, **settings: Any) -> Any:
    """Calls a tokenizer from one thread at a time: a call changes the truncation and padding stored in a fast one."""
    with _TOKENIZING:
        return tokenizer(*texts, **settings)


def takes_language(processor: Any) -> bool:
    return processor is not None and "language" in signature(type(processor).__call__).parameters


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
            at = f"character {error.start} of {text[:SHOWN]!r}"
            raise InputError(f"{called} has half a surrogate pair at {at}: decode it with another encoding") from error
    return texts


# Set by callers that count texts with the limit at which they are cut (`counting_cut_texts`).
cut_texts: ContextVar[dict[str, str] | None] = ContextVar("counting", default=None)


def note_cut_texts(texts: Sequence[str], limit: str) -> None:
    if texts and (counting := cut_texts.get()) is not None:
        counting.update(dict.fromkeys(texts, limit))
    elif texts:
        logger.warning_once(
            "texts of more than %s are cut there, because the model reads no more; this is logged once", limit
        )


def overlong(texts: Sequence[str], encoded: Any) -> list[str]:
    return [text for text, encoding in zip(texts, encoded.encodings or (), strict=False) if encoding.overflowing]
