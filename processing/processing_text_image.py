"""What every processor shares: how it is called, and that it refuses what it cannot use."""

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import BatchFeature, ProcessorMixin

from ..configuration.errors import InputError, MissingLanguageError
from ..configuration.hub_code import HubCodeMixin
from ..configuration.languages import language_for_each
from .image_inputs import as_images
from .processor_settings import call_settings, check_text_settings
from .text_inputs import as_texts


class TextImageProcessor(HubCodeMixin, ProcessorMixin):
    """Images and texts with their languages, in one call.

    Subclasses say which keywords of `transformers.processing_utils.TextKwargs` they know (`text_names`) and what holds
    by default (`text_kwargs`).
    """

    text_names: ClassVar[frozenset[str]]

    @property
    def least_length(self) -> int:
        """The smallest `max_length` for which a text that is cut keeps a word."""
        return 1

    def read_settings(self, language: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """As `call_settings`, with what is said of texts checked."""
        language, text_settings, image_settings = call_settings(self, language, given)
        check_text_settings(text_settings, self.least_length)
        return language, text_settings, image_settings

    @staticmethod
    def check_given(images: Any, text: Any, language: Any) -> None:
        """
        Raises:
            InputError: for nothing at all, or languages of no texts.
        """
        if images is None and text is None:
            raise InputError("give images=, text=, or both")
        if text is None and language is not None:
            raise InputError("language= was given without text=")

    def read_images(self, images: Any, settings: dict[str, Any]) -> BatchFeature:
        """What the image processor makes of images in any form (`as_images`), told these settings.

        Raises:
            ImageError: for what is no image, or one that cannot be read.
            InputError: for no images, or settings that the image processor cannot follow.
        """
        do_rescale = settings.get("do_rescale", getattr(self.image_processor, "do_rescale", True))
        decoded = as_images(images, layout=settings.get("input_data_format"), scaled=do_rescale is False)
        try:
            return self.image_processor(decoded, **settings)
        except (TypeError, ValueError) as error:
            told = ", ".join(f"{name}={value!r}" for name, value in settings.items()) or "no settings"
            raise InputError(f"{type(self.image_processor).__name__}, told {told}: {error}") from error


def texts_and_languages(
    text: Any, language: Any, names: tuple[str, str] = ("text", "language")
) -> tuple[list[str], list[str]]:
    """Texts, and the canonical tag of each, from the two arguments of these names.

    Raises:
        InputError: for no texts, or what is no text.
        LanguageTagError: for an unknown language tag.
        MissingLanguageError: without any language.
        InputError: for not as many languages as texts.
    """
    texts = as_texts(text, names[0])
    if language is None:
        raise MissingLanguageError(
            f"{names[0]}= was given without {names[1]}=: each language has its own way of reading"
        )
    return texts, language_for_each(language, len(texts))


def as_batch(inputs: Mapping[str, Any], return_tensors: Any) -> BatchFeature:
    """A model's inputs as tensors of this kind, or as they are.

    Raises:
        InputError: for texts of several lengths, which make no tensor.
    """
    try:
        return BatchFeature(dict(inputs), tensor_type=return_tensors)
    except ValueError as error:
        raise InputError(
            f"these inputs make no tensors: texts of several lengths need padding=True to be one ({error})"
        ) from error
