"""What the processors of dual encoders with one vocabulary share: texts with their languages and images, in one
call."""

from typing import Any, ClassVar

from transformers import BatchFeature
from transformers.processing_utils import TextKwargs

from ..configuration.errors import InputError
from ..configuration.languages import language_for_each
from .processing_text_image import TextImageProcessor, as_batch
from .text_inputs import as_texts, note_cut_texts, overlong

MAX_TEXT_TOKENS = 64  # MURAL and ETCL
# Keywords for pairs of texts, and for texts with placeholders of images, which these models do not have.
_NOT_OF_ONE_TEXT = {
    *("text_pair", "text_target", "text_pair_target", "is_split_into_words", "sanitize_control_tokens"),
    *("return_mm_token_type_ids", "return_text_replacement_offsets"),
}


class DualEncoderProcessor(TextImageProcessor):
    """Turns images and texts into `pixel_values`, `input_ids` and `attention_mask`.

    Texts are padded to the longest of the batch and cut at 64 tokens.

    Args:
        image_processor: such as a `MuralImageProcessor`.
        tokenizer: a fast tokenizer, such as `train_wordpiece` returns.
        text_prompt: what is put before every text, such as E5's `"query: "`.
    """

    # Whether the inputs of a text are those of `tokenizer` in any language, so that texts can be padded afterwards.
    one_tokenizer: ClassVar[bool] = True
    text_kwargs: ClassVar[dict[str, Any]] = {"padding": True, "truncation": True, "max_length": MAX_TEXT_TOKENS}
    text_names: ClassVar[frozenset[str]] = frozenset(TextKwargs.__annotations__) - _NOT_OF_ONE_TEXT

    def __init__(self, image_processor: Any, tokenizer: Any, text_prompt: str = "", **more: Any) -> None:
        super().__init__(image_processor, tokenizer, **more)
        self.text_prompt = text_prompt
        # BERT's tokenizers would return segment ids too, for which not every text tower has an input. `init_kwargs` is
        # saved, so that pipelines, which load the tokenizer alone, do the same.
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names

    @property
    def least_length(self) -> int:
        """Smallest `max_length` for which a text that is cut keeps a token of its own."""
        return int(self.tokenizer.num_special_tokens_to_add()) + 1

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
            language: BCP-47 tag of all texts, or a list with one for each text; also in `text_kwargs`. The vocabulary
                is the same for all languages, so that the tag is checked and has no other effect; methods with a
                tokenizer for each language need it.
            kwargs: keyword arguments of transformers' processors, directly or in `text_kwargs`, `images_kwargs` and
                `common_kwargs`: `return_tensors="pt"`, `padding`, `truncation`, `max_length`, and others of the
                tokenizer and the image processor.

        Returns:
            The model's inputs: `input_ids` and `attention_mask` of texts, `pixel_values` of images.

        Raises:
            ArgumentError: for an unknown keyword.
            ImageError: if an item is not an image, or cannot be read.
            InputError: if there is nothing to prepare, a list is empty, an item is not a Unicode text, there are not
                as many languages as texts, there are languages without texts, or a keyword has a wrong value.
            LanguageTagError: if a tag names no language.
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
            # As with any tokenizer, a single text gives one row and not a list of rows, unless it becomes a tensor.
            prompted = [f"{self.text_prompt}{each}" for each in texts]
            encoded = self.tokenizer(
                prompted[0] if isinstance(text, str) else prompted, **{"verbose": False} | settings
            )
        except ValueError as error:
            raise InputError(f"{type(self.tokenizer).__name__}: {error}") from error
        note_cut_texts(overlong(texts, encoded), f"{settings['max_length']} tokens")
        return encoded
