"""What all processors share: how they are called, and which inputs they refuse."""

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
    """Base class of the processors: images and texts with their languages, in one call.

    Subclasses define which keywords of `transformers.processing_utils.TextKwargs` they know (`text_names`), and their
    default values (`text_kwargs`).
    """

    text_names: ClassVar[frozenset[str]]
    # Whether the inputs of a text are those of `tokenizer` in any language, so that texts can be padded afterwards.
    one_tokenizer: ClassVar[bool] = False

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
            f"these inputs cannot become tensors: texts of different lengths need padding=True ({error})"
        ) from error


# The modules that run a model in sentence-transformers read texts and images by its processor. The line never runs: it
# tells the exporter of `hub_code` and transformers that the file belongs into every model's folder.
SHIPS_WITH = """
from .sentence_modules import SentenceModule
"""
