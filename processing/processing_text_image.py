"""The base class of all processors, which defines how they are called."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from transformers import AutoTokenizer, BatchFeature, PreTrainedConfig, ProcessorMixin
from transformers.processing_utils import ImagesKwargs

from ..utils.errors import InputError, ModelFolderError
from ..utils.hub_mixin import HubCodeMixin
from .images import as_images

# Longer than any text; tokenizers accept numbers up to 2 to the power of 64.
LARGEST_LENGTH = 1 << 20

logger = logging.getLogger(__name__)


class TextImageProcessor(HubCodeMixin, ProcessorMixin):
    """Base class of the processors: images and texts with their languages, in one call.

    Subclasses define which keywords of `transformers.processing_utils.TextKwargs` they accept (`text_names`), their
    default values (`text_kwargs`), and `_encoded`.
    """

    text_names: ClassVar[frozenset[str]]
    # Whether the inputs of a text are those of `tokenizer` in any language, so texts can be padded afterwards.
    one_tokenizer: ClassVar[bool] = False

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """Prepares images, texts or both for a model.

        Args:
            images: an image or a list of them (Pillow, arrays and tensors of uint8, paths); see `as_images`.
            text: a text or a list of texts.
            language: BCP-47 tag of all texts, or a list with one for each text; also in `text_kwargs`.
            kwargs: keyword arguments of transformers' processors, directly or in `text_kwargs`, `images_kwargs` and
                `common_kwargs`: `return_tensors="pt"`, `padding`, `truncation`, `max_length`, and others of the
                tokenizer and the image processor.

        Returns:
            The model's inputs: `input_ids` and `attention_mask` of texts, and `language_ids` where the model reads
            them; `pixel_values` of images.
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
            inputs |= self.read_images(images, image_settings)
        return as_batch(inputs, text_settings.get("return_tensors"))

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        """Returns the inputs of texts in one language, or with a language for each."""
        raise NotImplementedError

    @classmethod
    def _load_tokenizer_from_pretrained(
        cls, sub_processor_type: str, source: Any, subfolder: str = "", **loading: Any
    ) -> Any:
        """Loads a tokenizer; transformers would replace a damaged or missing one with the first."""
        if sub_processor_type != "tokenizer":
            subfolder = f"{subfolder}/{sub_processor_type}".lstrip("/")
            if Path(source).is_dir() and not Path(source, subfolder).is_dir():
                raise ModelFolderError(f"{Path(source, subfolder)}, which has one of the tokenizers, is missing")
            # Such a folder has no configuration; AutoTokenizer would fail if it could not reach the Hub.
            loading.setdefault("config", PreTrainedConfig())
        return AutoTokenizer.from_pretrained(source, subfolder=subfolder, **loading)

    @property
    def needs_language(self) -> bool:
        """Whether the inputs of a text depend on its language; if not, texts may come without one."""
        return not self.one_tokenizer

    @property
    def least_length(self) -> int:
        """Smallest `max_length` at which a truncated text keeps a word."""
        return 1

    def read_settings(self, language: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Returns the language, the text settings and the image settings of a call.

        As in transformers, None counts as not given, and an unknown keyword is logged and ignored.
        """
        of_images = set(getattr(self.image_processor, "valid_kwargs", ImagesKwargs).__annotations__)
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
            given_here = groups["common_kwargs"] | groups[name] | other
            chosen = {key: value for key, value in given_here.items() if key in known and value is not None}
            merged.append({**getattr(self, name, {}), **chosen})
        longest = merged[0].get("max_length")
        if longest is not None and not self.least_length <= longest <= LARGEST_LENGTH:
            raise InputError(f"max_length={longest} is not from {self.least_length} to {LARGEST_LENGTH}")
        return language, merged[0], merged[1]

    def read_images(self, images: Any, settings: dict[str, Any]) -> BatchFeature:
        """Runs the image processor on images in any form (`as_images`)."""
        do_rescale = settings.get("do_rescale", getattr(self.image_processor, "do_rescale", True))
        decoded = as_images(images, layout=settings.get("input_data_format"), scaled=do_rescale is False)
        return self.image_processor(decoded, **settings)


def as_batch(inputs: Mapping[str, Any], return_tensors: Any) -> BatchFeature:
    """Returns a model's inputs as tensors of the requested type, or unchanged."""
    try:
        return BatchFeature(dict(inputs), tensor_type=return_tensors)
    except ValueError as error:
        raise InputError(
            f"these inputs cannot become tensors: texts of different lengths need padding=True ({error})"
        ) from error
