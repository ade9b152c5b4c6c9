"""The processor of dual encoders with one vocabulary for all languages."""

from typing import Any, ClassVar, Self

from transformers.processing_utils import TextKwargs

from ..utils.errors import InputError
from ..utils.languages import language_for_each
from .processing_text_image import TextImageProcessor
from .text_inputs import as_texts, call_tokenizer, note_cut_texts, overlong

MAX_TEXT_TOKENS = 64  # MURAL and ETCL
# Keywords for pairs of texts, and for texts with image placeholders, which these models do not read.
_NOT_OF_ONE_TEXT = {
    *("text_pair", "text_target", "text_pair_target", "is_split_into_words", "sanitize_control_tokens"),
    *("return_mm_token_type_ids", "return_text_replacement_offsets"),
}


class DualEncoderProcessor(TextImageProcessor):
    """Turns images and texts into `pixel_values`, `input_ids` and `attention_mask`; the language has no effect.

    Args:
        tokenizer: a fast tokenizer, such as `train_wordpiece` returns.
        text_prompt: prefix of every text, such as "query: " for E5.
        max_text_length: number of tokens at which texts are cut.
        pad_to_max_length: whether to pad every text to `max_text_length`, as SigLIP's text tower needs, instead of to
            the longest of the batch.
    """

    one_tokenizer: ClassVar[bool] = True
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
        """Makes the processor of a model of two pretrained towers, with their image processor and tokenizer.

        Args:
            image: folder or Hub id of the vision backbone, or its image processor.
            text: folder or Hub id of the text encoder, or its tokenizer.
            config: the model's configuration (from its `from_towers`), which has the prompt of texts.
            loading: arguments of `from_pretrained` for both, such as `revision`.
        """
        from .tower_processors import processor_of_towers

        return processor_of_towers(cls, image, text, config, **loading)

    @property
    def text_kwargs(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"padding": True, "truncation": True, "max_length": self.max_text_length}
        if self.pad_to_max_length:  # SigLIP's text tower reads the padding too
            settings |= {"padding": "max_length", "return_attention_mask": False}
        return settings

    @property
    def least_length(self) -> int:
        plain = {"add_special_tokens": False}
        prompt = call_tokenizer(self.tokenizer, self.text_prompt, **plain)["input_ids"] if self.text_prompt else []
        return int(self.tokenizer.num_special_tokens_to_add()) + len(prompt) + 1

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        texts = as_texts(text)
        if language is not None:
            language_for_each(language, len(texts))
        # As with any tokenizer, a single text gives one row, not a list of rows, unless it becomes a tensor.
        prompted = [self.text_prompt + each for each in texts]
        given = prompted[0] if isinstance(text, str) else prompted
        try:
            encoded = call_tokenizer(self.tokenizer, given, **{"verbose": False} | settings)
        except ValueError as error:
            raise InputError(f"{type(self.tokenizer).__name__}: {error}") from error
        note_cut_texts(overlong(texts, encoded), f"{settings['max_length']} tokens")
        return encoded
