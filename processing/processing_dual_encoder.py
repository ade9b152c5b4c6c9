"""What the processors of the dual encoders share: texts with their languages and images, in one call."""

from typing import Any, ClassVar

from transformers import BatchFeature
from transformers.processing_utils import TextKwargs

from ..configuration.errors import InputError
from ..configuration.languages import language_for_each
from .processing_text_image import TextImageProcessor, as_batch
from .text_inputs import as_texts, note_cut_texts, overlong

MAX_TEXT_TOKENS = 64  # MURAL and ETCL
# A text is one segment, and stands for itself: there are no second texts, and no places in it for images.
_NOT_OF_ONE_TEXT = {
    *("text_pair", "text_target", "text_pair_target", "is_split_into_words", "sanitize_control_tokens"),
    *("return_mm_token_type_ids", "return_text_replacement_offsets"),
}


class DualEncoderProcessor(TextImageProcessor):
    """Images and texts -> `pixel_values`, `input_ids`, `attention_mask`.

    Texts are padded to the longest of the batch and cut at 64 tokens.
    """

    # Whether the inputs of a text are those of `tokenizer` in any language, so that texts can be padded afterwards.
    one_tokenizer: ClassVar[bool] = True
    text_kwargs: ClassVar[dict[str, Any]] = {"padding": True, "truncation": True, "max_length": MAX_TEXT_TOKENS}
    text_names: ClassVar[frozenset[str]] = frozenset(TextKwargs.__annotations__) - _NOT_OF_ONE_TEXT

    def __init__(self, image_processor: Any, tokenizer: Any, **more: Any) -> None:
        super().__init__(image_processor, tokenizer, **more)
        # A text is one segment: BERT's tokenizers would number segments, for which not every text tower has an input.
        # What is in `init_kwargs` is saved, so that pipelines, which load the tokenizer alone, agree.
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names

    @property
    def least_length(self) -> int:
        return int(self.tokenizer.num_special_tokens_to_add()) + 1

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """
        Args:
            images: an image or a list of them (Pillow, arrays and tensors of uint8, paths); see `as_images`.
            text: a text or a list of them.
            language: BCP-47 tag of all texts, or one for each; also in `text_kwargs`. A shared vocabulary reads every
                language alike, so that the tag is checked and otherwise without effect here; methods with one
                tokenizer for each language need it.
            kwargs: as transformers' processors take them, by themselves or in `text_kwargs`, `images_kwargs` and
                `common_kwargs`: `return_tensors="pt"`, `padding`, `truncation`, `max_length` and what else the
                tokenizer and the image processor take.

        Raises:
            LanguageTagError: for an unknown language tag.
            InputError: for not as many languages as texts.
            InputError: for no texts, what is no text, or a text that is no Unicode.
            ImageError: for what is no image, or one that cannot be read.
            InputError: for nothing at all, no images, a language without texts, or a keyword's wrong value.
            ArgumentError: for a keyword that is not known.
        """
        language, text_settings, image_settings = self.read_settings(language, kwargs)
        self.check_given(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None:
            inputs |= self._encoded(text, language, text_settings)
        if images is not None:
            inputs |= self.read_images(images, image_settings)
        return as_batch(inputs, text_settings.get("return_tensors"))

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        texts = as_texts(text)
        if language is not None:
            language_for_each(language, len(texts))
        try:
            # One text alone is one row, and no list of rows, unless it becomes a tensor: as every tokenizer has it.
            encoded = self.tokenizer(text if isinstance(text, str) else texts, **{"verbose": False} | settings)
        except ValueError as error:
            raise InputError(f"{type(self.tokenizer).__name__}: {error}") from error
        note_cut_texts(overlong(texts, encoded), f"{settings['max_length']} tokens")
        return encoded
