"""What all processors share: how they are called, and which inputs they refuse."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from huggingface_hub.dataclasses import validate_typed_dict
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoTokenizer, BatchFeature, PreTrainedConfig, ProcessorMixin
from transformers.processing_utils import AudioKwargs, ImagesKwargs, TextKwargs, VideosKwargs
from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy

from ..utils.errors import (
    ArgumentError,
    InputError,
    MissingLanguageError,
    ModelFolderError,
    did_you_mean,
    first_line,
)
from ..utils.hub_code import HubCodeMixin
from ..utils.languages import language_for_each
from .images import as_images
from .text_inputs import as_texts


class TextImageProcessor(HubCodeMixin, ProcessorMixin):
    """Base class of the processors: images and texts with their languages, in one call.

    Subclasses define which keywords of `transformers.processing_utils.TextKwargs` they know (`text_names`), and their
    default values (`text_kwargs`).
    """

    text_names: ClassVar[frozenset[str]]
    # Whether the inputs of a text are those of `tokenizer` in any language, so that texts can be padded afterwards.
    one_tokenizer: ClassVar[bool] = False

    @classmethod
    def _load_tokenizer_from_pretrained(
        cls, sub_processor_type: str, source: Any, subfolder: str = "", **loading: Any
    ) -> Any:
        """Loads a tokenizer; transformers would take the first one for another that is damaged or missing."""
        if sub_processor_type != "tokenizer":
            subfolder = f"{subfolder}/{sub_processor_type}".lstrip("/")
            if Path(source).is_dir() and not Path(source, subfolder).is_dir():
                raise ModelFolderError(f"{Path(source, subfolder)}, which has one of the tokenizers, is missing")
            # There is no configuration in such a folder; AutoTokenizer would give up where the Hub cannot be asked.
            loading.setdefault("config", PreTrainedConfig())
        return AutoTokenizer.from_pretrained(source, subfolder=subfolder, **loading)

    @property
    def needs_language(self) -> bool:
        """Whether the inputs of a text depend on its language; where they do not, texts may come without one."""
        return not self.one_tokenizer

    @property
    def least_length(self) -> int:
        """Smallest `max_length` for which a text that is cut keeps a word."""
        return 1

    def read_settings(self, language: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Returns language, text settings and image settings as `call_settings` does, after checking those of
        texts."""
        language, text_settings, image_settings = call_settings(self, language, given)
        check_text_settings(text_settings, self.least_length)
        return language, text_settings, image_settings

    @staticmethod
    def check_given(images: Any, text: Any, language: Any) -> None:
        """Checks that there is something to prepare.

        Raises:
            InputError: if there is neither an image nor a text, or a language without a text.
        """
        if images is None and text is None:
            raise InputError("give images=, text=, or both")
        if text is None and language is not None:
            raise InputError("language= was given without text=")

    def read_images(self, images: Any, settings: dict[str, Any]) -> BatchFeature:
        """Runs the image processor on images in any form (`as_images`).

        Args:
            images: the images.
            settings: keyword arguments of the image processor.

        Raises:
            ImageError: if an item is not an image, or cannot be read.
            InputError: if there are no images, or the image processor refuses the settings.
        """
        do_rescale = settings.get("do_rescale", getattr(self.image_processor, "do_rescale", True))
        decoded = as_images(images, layout=settings.get("input_data_format"), scaled=do_rescale is False)
        try:
            return self.image_processor(decoded, **settings)
        except (TypeError, ValueError) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in settings.items()) or "no settings"
            raise InputError(f"{type(self.image_processor).__name__} with {given}: {error}") from error


def texts_and_languages(
    text: Any, language: Any, names: tuple[str, str] = ("text", "language")
) -> tuple[list[str], list[str]]:
    """Returns texts and the canonical tag of each, from two arguments with the given names.

    Raises:
        InputError: if there is no text, an item is not a text, or there are not as many languages as texts.
        LanguageTagError: if a tag names no language.
        MissingLanguageError: if there is no language.
    """
    texts = as_texts(text, names[0])
    if language is None:
        raise MissingLanguageError(
            f"{names[0]}= was given without {names[1]}=: the model needs the language of every text"
        )
    return texts, language_for_each(language, len(texts))


def as_batch(inputs: Mapping[str, Any], return_tensors: Any) -> BatchFeature:
    """Returns a model's inputs as tensors of a kind, or unchanged.

    Raises:
        InputError: if texts have several lengths, so that they cannot be one tensor.
    """
    try:
        return BatchFeature(dict(inputs), tensor_type=return_tensors)
    except ValueError as error:
        raise InputError(
            f"these inputs cannot become tensors: texts of different lengths need padding=True ({first_line(error)})"
        ) from error


# ---- Processor settings ----
# The keyword arguments of a processor's call: those that transformers defines for texts and for images are
# applied; an unknown one is refused with an error that names it.
#
# transformers' own processors only log an unknown keyword, do not check the settings of texts, and pass
# `common_kwargs` also to parts that do not have them.

# Longer than any text; tokenizers accept numbers up to 2 to the power of 64.
LARGEST_LENGTH = 1 << 20
_OTHER_INPUTS = ("videos", "audio")  # transformers passes these as None


def call_settings(
    processor: Any, language: Any, given: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Returns the language, the text settings and the image settings of a call.

    Keywords may be given directly, in `text_kwargs` and `images_kwargs`, or in `common_kwargs` for all parts that have
    them; `language` also in `text_kwargs`. `audio_kwargs` and `videos_kwargs` are accepted without effect, because
    some callers pass them to every processor. None counts as not given.

    Args:
        processor: states the keywords of texts that it knows (`text_names`) and their defaults (`text_kwargs`).
        language: the argument of that name.
        given: the other keyword arguments of the call.

    Raises:
        ArgumentError: for an unknown keyword, in any of these places.
        InputError: if a keyword has a wrong value, or is given twice.
    """
    of_images = getattr(processor.image_processor, "valid_kwargs", ImagesKwargs)
    known: dict[str, set[str]] = {
        "text_kwargs": {*processor.text_names, "return_tensors"},
        "images_kwargs": set(of_images.__annotations__),
        "audio_kwargs": set(AudioKwargs.__annotations__),
        "videos_kwargs": set(VideosKwargs.__annotations__),
    }
    called = type(processor).__name__
    parts = known["text_kwargs"] | known["images_kwargs"]
    groups = {name: _group(name, given.get(name)) for name in (*known, "common_kwargs")}
    flat = {name: value for name, value in given.items() if name not in groups}
    language = _once("language", language, groups["text_kwargs"].pop("language", None))
    common = groups.pop("common_kwargs")
    _refuse_unknown(flat, {*parts, "language", "images", "text"}, called)
    _refuse_unknown(common, parts, f"{called}'s common_kwargs")
    for name, group in groups.items():
        _refuse_unknown(group, known[name], f"{called}'s {name}")
    flat = _without_none(flat)
    merged = []
    for name, kind in (("text_kwargs", TextKwargs), ("images_kwargs", of_images)):
        own = _without_none(groups[name])
        if twice := [key for key in own if key in flat]:
            raise InputError(f"{called}: {twice[0]} was given twice: as {twice[0]}= and in {name}")
        given_here = {key: value for key, value in (_without_none(common) | own | flat).items() if key in known[name]}
        settings = {**getattr(processor, name, {}), **copy.deepcopy(given_here)}
        try:
            validate_typed_dict(kind, settings)
        except (StrictDataclassError, ValueError) as error:
            raise InputError(f"{called}: {error}") from error
        merged.append(settings)
    return language, merged[0], merged[1]


def _group(name: str, given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{name}={given!r} must be a dictionary of keyword arguments")
    return dict(given or {})


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _once(name: str, one: Any, other: Any) -> Any:
    if one is not None and other is not None:
        raise InputError(f"{name} was given twice: as {name}= and in text_kwargs")
    return one if other is None else other


def _refuse_unknown(given: Mapping[Any, Any], known: set[str], called: str) -> None:
    for name, value in given.items():
        if name not in known and not (value is None and name in _OTHER_INPUTS):
            raise ArgumentError(f"{called} takes no {name!r}{did_you_mean(name, known)}")


def check_text_settings(settings: Mapping[str, Any], least: int) -> None:
    """Checks the settings of texts.

    Args:
        settings: the settings.
        least: smallest `max_length` for which a text that is cut keeps a word.

    Raises:
        InputError: for a length that no text can have, or an unknown way of padding or cutting.
    """
    for name, smallest in (("max_length", least), ("pad_to_multiple_of", 1), ("stride", 0)):
        value = settings.get(name)
        if value is not None and (isinstance(value, bool) or not smallest <= value <= LARGEST_LENGTH):
            raise InputError(f"{name}={value} is not from {smallest} to {LARGEST_LENGTH}")
    for name, strategies in (("padding", PaddingStrategy), ("truncation", TruncationStrategy)):
        value = settings[name]
        names = [strategy.value for strategy in strategies if strategy is not TruncationStrategy.ONLY_SECOND]
        if not isinstance(value, bool) and value not in names:
            raise InputError(f"{name}={value!r} is none of True, False, {', '.join(map(repr, names))}")


@dataclass(frozen=True)
class TextLayout:
    """How texts become rows of one length, for processors that pad texts themselves.

    Args:
        padding: the padding strategy.
        max_length: length at which texts are cut, and to which they are padded if `padding` says so.
        cut: whether longer texts are cut.
        multiple: a number of which the padded length is a multiple.
        with_mask: whether to make a mask that distinguishes text from padding.
        side: where padding stands, `right` of the text or `left` of it.
    """

    padding: PaddingStrategy
    max_length: int
    cut: bool = True
    multiple: int = 1
    with_mask: bool = True
    side: str = "right"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Makes a layout from the text settings that `call_settings` returns."""
        padding, truncation = settings["padding"], settings["truncation"]
        if isinstance(padding, bool):
            padding = "longest" if padding else "do_not_pad"
        if isinstance(truncation, bool):
            truncation = "longest_first" if truncation else "do_not_truncate"
        return cls(
            PaddingStrategy(padding),
            settings["max_length"],
            TruncationStrategy(truncation) is not TruncationStrategy.DO_NOT_TRUNCATE,
            settings.get("pad_to_multiple_of") or 1,
            settings.get("return_attention_mask", True),
        )

    @property
    def end(self) -> int | None:
        """Position at which texts are cut, `ids[: layout.end]`."""
        return self.max_length if self.cut else None

    def padded(self, rows: Sequence[list[Any]], padding: Sequence[Any]) -> list[list[Any]]:
        """Pads N rows of several lengths to [N, T], each with its own padding."""
        if self.padding is PaddingStrategy.DO_NOT_PAD:
            return list(rows)
        length = self.max_length if self.padding is PaddingStrategy.MAX_LENGTH else max(map(len, rows))
        length += -length % self.multiple
        fillers = [[pad] * (length - len(row)) for row, pad in zip(rows, padding, strict=True)]
        pairs = zip(rows, fillers, strict=True)
        return [filler + row if self.side == "left" else row + filler for row, filler in pairs]

    def mask(self, rows: Sequence[list[Any]], name: str = "attention_mask") -> dict[str, list[list[int]]]:
        """Returns a mask under this name, 1 for text and 0 for padding, [N, T]; nothing if no mask is wanted."""
        return {name: self.padded([[1] * len(row) for row in rows], [0] * len(rows))} if self.with_mask else {}
