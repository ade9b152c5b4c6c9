"""MLA's processor: native texts are read by the frozen model's own tokenizer, others by one multilingual
vocabulary, in one call for a batch that mixes them (Zhang et al. 2022, section 3.2)."""

from typing import Any, ClassVar, Self

from transformers import PreTrainedConfig, ProcessorMixin
from transformers.tokenization_utils_base import PaddingStrategy

from ..configuration.errors import InputError, VocabularyError
from ..configuration.languages import language_id, normalize_language, normalize_languages
from .processing_per_language import PerLanguageProcessor
from .processor_settings import TextLayout
from .text_inputs import note_cut_texts, overlong


class MlaProcessor(PerLanguageProcessor):
    """Prepares images and texts for an `MlaModel`: `pixel_values`, `input_ids`, `attention_mask`, `language_ids`.

    Texts are padded to the longest of the batch, and cut at the length of the text tower. Without acquired languages
    there are no `language_ids`.

    Args:
        image_processor, tokenizer: those of the native model.
        multilingual_tokenizer: tokenizer of the acquired languages; it ends every text with [SEP].
        native_language, languages: as in `MlaConfig`.
        max_text_length: number of positions of the text tower; CLIP has 77.
        pad_to_max_length: whether to pad every text to that length and to give no mask, as SigLIP was trained.

    Raises:
        LanguageTagError: if a tag names no language.
        VocabularyError: if the multilingual tokenizer does not end texts with [SEP], or has no padding token.

    Examples:
        >>> processor = MlaProcessor.for_native(clip.config, clip_processor, m_bert_tokenizer, languages=["de"])
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)
    checks_separator: ClassVar[bool] = True

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        multilingual_tokenizer: Any,
        native_language: str = "en",
        languages: list[str] | tuple[str, ...] = (),
        max_text_length: int = 77,
        pad_to_max_length: bool = False,
    ) -> None:
        super().__init__(image_processor, tokenizer, multilingual_tokenizer)
        for part in (tokenizer, multilingual_tokenizer):
            part.model_input_names = ["input_ids", "attention_mask"]
            part.init_kwargs["model_input_names"] = part.model_input_names
        if self.checks_separator:
            _check_separator(multilingual_tokenizer)
        self.native_language = normalize_language(native_language)
        self.languages = normalize_languages(list(languages))
        self.max_text_length = max_text_length
        self.pad_to_max_length = pad_to_max_length

    @classmethod
    def for_native(
        cls, config: PreTrainedConfig, native_processor: ProcessorMixin, multilingual_tokenizer: Any, **options: Any
    ) -> Self:
        """Makes the processor for a native model.

        Args:
            config: configuration of the native model.
            native_processor: its processor.
            multilingual_tokenizer: tokenizer of the acquired languages.
            options: further arguments of the class, such as `languages`.
        """
        return cls(
            native_processor.image_processor,
            native_processor.tokenizer,
            multilingual_tokenizer,
            max_text_length=config.text_config.max_position_embeddings,
            pad_to_max_length="siglip" in config.model_type,
            **options,
        )

    @property
    def text_kwargs(self) -> dict[str, Any]:
        if not self.pad_to_max_length:
            return super().text_kwargs
        return super().text_kwargs | {"padding": "max_length", "return_attention_mask": False}

    @property
    def least_length(self) -> int:
        """Smallest `max_length` for which a text that is cut keeps a token of its own."""
        return 1 + max(part.num_special_tokens_to_add() for part in (self.tokenizer, self.multilingual_tokenizer))

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        """As in `PerLanguageProcessor`.

        Raises:
            InputError: if texts are not padded to the full length where the model needs it.
            UnknownLanguageError: if the model has not learned a language.
        """
        if self.pad_to_max_length and layout.padding is not PaddingStrategy.MAX_LENGTH:
            raise InputError(
                "this model was trained with every text padded to the full length, and reads the last token: "
                "padding='max_length', or leave it out"
            )
        known = [self.native_language, *self.languages]
        indices = [language_id(tag, known) for tag in languages]
        tokens: list[list[int]] = [[]] * len(texts)
        for tokenizer, is_native in ((self.tokenizer, True), (self.multilingual_tokenizer, False)):
            rows = [row for row, index in enumerate(indices) if (index == 0) == is_native]
            if rows:
                mine = [texts[row] for row in rows]
                encoded = tokenizer(mine, truncation=layout.cut, max_length=layout.end, verbose=False)
                note_cut_texts(overlong(mine, encoded), f"{layout.max_length} tokens")
                for row, ids in zip(rows, encoded["input_ids"], strict=True):
                    tokens[row] = ids
        padding = [(self.multilingual_tokenizer if index else self.tokenizer).pad_token_id for index in indices]
        inputs: dict[str, list[Any]] = {"input_ids": layout.padded(tokens, padding)}
        if self.languages:
            inputs["language_ids"] = indices
        return inputs | layout.mask(tokens)

    @property
    def native(self) -> "MlaProcessor":
        """A processor that reads native texts, and images, for the native model alone."""
        return MlaProcessor(
            self.image_processor,
            self.tokenizer,
            self.multilingual_tokenizer,
            native_language=self.native_language,
            max_text_length=self.max_text_length,
            pad_to_max_length=self.pad_to_max_length,
        )


def _check_separator(tokenizer: Any) -> None:
    separator = tokenizer.sep_token_id
    if separator is None or tokenizer("a")["input_ids"][-1:] != [separator]:
        raise VocabularyError(
            f"the multilingual tokenizer must end every text with its [SEP], whose state MLA pools; "
            f"its sep_token is {tokenizer.sep_token!r}, and 'a' becomes {tokenizer('a').tokens()}"
        )
    if tokenizer.pad_token_id is None:
        raise VocabularyError("the multilingual tokenizer has no padding token")


__all__ = ["MlaProcessor"]
