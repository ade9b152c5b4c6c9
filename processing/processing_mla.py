"""MLA's processor: the frozen model's tokenizer reads native texts, and one multilingual vocabulary reads all others,
in one call for a batch that mixes them (Zhang et al. 2022, section 3.2)."""

import copy
from dataclasses import replace
from typing import Any, Self

from transformers import PreTrainedConfig, ProcessorMixin
from transformers.tokenization_utils_base import PaddingStrategy

from ..configuration.text_towers import text_positions, tower_pooling
from ..utils.errors import InputError
from ..utils.language_matching import language_id
from ..utils.languages import normalize_language, normalize_languages
from .processing_dual_encoder import DualEncoderProcessor
from .processing_per_language import PerLanguageProcessor, TextLayout, read_in_two
from .text_inputs import call_tokenizer, note_cut_texts, overlong
from .text_normalization import NORMALIZATION, checked_normalization, same_letters


class MlaProcessor(PerLanguageProcessor):
    """Prepares images and texts for an `MlaModel`: `pixel_values`, `input_ids`, `attention_mask`, `language_ids`.

    Texts are padded on the side that the native tokenizer pads. Without acquired languages there are no
    `language_ids`.

    Args:
        image_processor, tokenizer: those of the native model.
        multilingual_tokenizer: tokenizer of the acquired languages; it must end every text with one token, such as
            BERT's [SEP] or XLM-R's </s>.
        native_language, languages: as in `MlaConfig`.
        max_text_length: number of positions of the text tower; CLIP has 77.
        pad_to_max_length: whether to pad every text to that length and return no mask, as SigLIP was trained.
        normalization: version of `text_normalization` for texts in acquired languages; 0 leaves texts unchanged.

    Examples:
        >>> processor = MlaProcessor.for_native(clip.config, clip_processor, m_bert_tokenizer, languages=["de"])
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        multilingual_tokenizer: Any,
        native_language: str = "en",
        languages: list[str] | tuple[str, ...] = (),
        max_text_length: int = 77,
        pad_to_max_length: bool = False,
        normalization: int = 0,
    ) -> None:
        tokenizer, multilingual_tokenizer = with_mask(tokenizer), with_mask(multilingual_tokenizer)
        super().__init__(image_processor, tokenizer, multilingual_tokenizer)
        closing_token_id(multilingual_tokenizer)
        self.native_language = normalize_language(native_language)
        self.languages = normalize_languages(list(languages))
        self.max_text_length, self.pad_to_max_length = max_text_length, pad_to_max_length
        self.normalization = checked_normalization(normalization)

    @classmethod
    def for_native(
        cls,
        config: PreTrainedConfig,
        native_processor: ProcessorMixin,
        multilingual_tokenizer: Any,
        **options: Any,
    ) -> Self:
        """Makes the processor for a native model and its processor.

        Args:
            multilingual_tokenizer: tokenizer of the acquired languages. If the native model pools the first state of
                a text, it must put a token there.
            options: other arguments of the class, such as `languages`. By default, texts are normalized.
        """
        own = multilingual_tokenizer
        if tower_pooling(config) == "first" and own("a")["input_ids"][0] not in (own.cls_token_id, own.bos_token_id):
            raise InputError(
                "the native model pools the first state of a text, so the multilingual tokenizer must begin every "
                f"text with its cls_token or bos_token; 'a' becomes {own.tokenize('a', add_special_tokens=True)}"
            )
        length, is_padded = native_length(config, native_processor)
        chosen = {"max_text_length": length, "pad_to_max_length": is_padded, "normalization": NORMALIZATION}
        parts = native_processor.image_processor, native_processor.tokenizer, multilingual_tokenizer
        return cls(*parts, **chosen | options)

    @property
    def text_kwargs(self) -> dict[str, Any]:
        if not self.pad_to_max_length:
            return super().text_kwargs
        return super().text_kwargs | {"padding": "max_length", "return_attention_mask": False}

    @property
    def least_length(self) -> int:
        return 1 + max(part.num_special_tokens_to_add() for part in (self.tokenizer, self.multilingual_tokenizer))

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        if self.pad_to_max_length and layout.padding is not PaddingStrategy.MAX_LENGTH:
            raise InputError("this model reads the last token of texts of the full length: leave out padding")
        layout = replace(layout, side=self.tokenizer.padding_side)  # for all texts: the text tower expects it
        known = [self.native_language, *self.languages]
        indices = [language_id(tag, known) for tag in languages]

        def read(rows: list[int], is_native: bool) -> list[list[int]]:
            tokenizer = self.tokenizer if is_native else self.multilingual_tokenizer
            mine = [texts[row] for row in rows]
            spelled = mine
            if self.normalization and not is_native:
                spelled = [same_letters(texts[row], languages[row]) for row in rows]
            encoded = call_tokenizer(tokenizer, spelled, truncation=layout.cut, max_length=layout.end, verbose=False)
            note_cut_texts(overlong(mine, encoded), f"{layout.max_length} tokens")
            return encoded["input_ids"]

        tokens = read_in_two([index == 0 for index in indices], read)
        padding = [(self.multilingual_tokenizer if index else self.tokenizer).pad_token_id for index in indices]
        inputs: dict[str, list[Any]] = {"input_ids": layout.padded(tokens, padding)}
        if self.languages:
            inputs["language_ids"] = indices
        return inputs | layout.mask(tokens)

    @property
    def native(self) -> DualEncoderProcessor:
        """Reads native texts and images for the native model."""
        return native_reader(self.image_processor, self.tokenizer, self.max_text_length, self.pad_to_max_length)


def native_reader(image_processor: Any, tokenizer: Any, length: int, is_padded: bool) -> DualEncoderProcessor:
    """Makes the processor of a native model, which reads texts of one language."""
    return DualEncoderProcessor(image_processor, tokenizer, max_text_length=length, pad_to_max_length=is_padded)


def native_length(config: PreTrainedConfig, processor: ProcessorMixin) -> tuple[int, bool]:
    """Returns the number of tokens at which a native model's processor cuts texts, but no more than the model reads,
    and whether every text is padded to it."""
    stated = getattr(processor, "text_kwargs", {}).get("max_length")
    length = processor.tokenizer.model_max_length if stated is None else stated
    length = min(length, text_positions(getattr(config, "text_config", config)) or length)
    return length, tower_pooling(config) == "last"


def with_mask(tokenizer: Any) -> Any:
    """Returns a copy of a tokenizer that returns ids and a mask."""
    names = ["input_ids", "attention_mask"]
    if tokenizer.model_input_names == tokenizer.init_kwargs.get("model_input_names") == names:
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    return tokenizer


def closing_token_id(tokenizer: Any) -> int:
    """Returns the id of the token that a tokenizer puts at the end of every text: its sep_token or its eos_token."""
    last = tokenizer("a")["input_ids"][-1:]
    for closing in (tokenizer.sep_token_id, tokenizer.eos_token_id):
        if closing is not None and last == [closing]:
            return closing
    raise InputError(
        f"the multilingual tokenizer must end every text with its [SEP], whose state MLA pools; "
        f"its sep_token is {tokenizer.sep_token!r}, its eos_token is {tokenizer.eos_token!r}, and 'a' becomes "
        f"{tokenizer.convert_ids_to_tokens(tokenizer('a')['input_ids'])}"
    )


__all__ = ["MlaProcessor", "closing_token_id"]
