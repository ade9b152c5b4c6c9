"""Processors of MLA and its baselines: in one batch, the frozen model's tokenizer reads native texts and a
multilingual one all others (Zhang et al. 2022, section 3.2, tables 4 and 7)."""

import copy
from dataclasses import replace
from typing import Any, Literal, Self

from transformers import PreTrainedConfig, ProcessorMixin
from transformers.tokenization_utils_base import PaddingStrategy

from ..configuration.configuration_mla import text_positions, tower_pooling
from ..utils.errors import InputError
from ..utils.language_matching import is_same_language, language_id
from ..utils.languages import language_for_each, normalize_language, normalize_languages
from .processing_dual_encoder import DualEncoderProcessor
from .processing_per_language import PerLanguageProcessor, TextLayout, read_in_two, texts_and_languages
from .text_inputs import UNDETERMINED, as_texts, call_tokenizer, counting_cut_texts, note_cut_texts, overlong
from .text_normalization import NORMALIZATION, checked_normalization, same_letters


class MlaProcessor(PerLanguageProcessor):
    """Prepares images and texts for an `MlaModel`: `pixel_values`, `input_ids`, `attention_mask`, and `language_ids`
    if languages were acquired. Texts are padded on the side that the native tokenizer pads.

    Args:
        multilingual_tokenizer: reads the acquired languages; must end every text with one token, such as BERT's [SEP].
        max_text_length: number of positions of the text tower; CLIP has 77.
        pad_to_max_length: pad every text to that length and return no mask, as SigLIP was trained.
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
        cls, config: PreTrainedConfig, native_processor: ProcessorMixin, multilingual_tokenizer: Any, **options: Any
    ) -> Self:
        """Makes the processor from a native model's; `options` are other arguments of the class. By default, texts are
        normalized. If the native model pools the first state, the multilingual tokenizer must put a token there."""
        own = multilingual_tokenizer
        if tower_pooling(config) == "first" and own("a")["input_ids"][0] not in (own.cls_token_id, own.bos_token_id):
            raise InputError(
                "the native model pools the first state of a text, so the multilingual tokenizer must begin every "
                f"text with its cls_token or bos_token; 'a' becomes {own.tokenize('a', add_special_tokens=True)}"
            )
        length, is_padded = native_length(config, native_processor)
        chosen = {"max_text_length": length, "pad_to_max_length": is_padded, "normalization": NORMALIZATION}
        return cls(native_processor.image_processor, native_processor.tokenizer, own, **chosen | options)

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
        return native_reader(self.image_processor, self.tokenizer, self.max_text_length, self.pad_to_max_length)


class MlaStudentProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `MlaStudentModel`; its `native` prepares them for the native model.

    Args:
        native_language, max_native_length, pad_native: how the native model reads texts, as in `MlaProcessor`.
        text_prompt, native_texts: as in `MlaStudentConfig`. With `native_texts="native"`, texts need their language,
            and `language_ids` is 0 in rows that the native model reads and 1 elsewhere.

    Examples:
        >>> processor = MlaStudentProcessor.for_native(clip.config, clip_processor, m_bert_tokenizer)
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        native_tokenizer: Any,
        native_language: str = "en",
        max_native_length: int = 77,
        pad_native: bool = False,
        text_prompt: str = "",
        native_texts: Literal["student", "native"] = "student",
        normalization: int = 0,
    ) -> None:
        super().__init__(image_processor, tokenizer, text_prompt, native_tokenizer=native_tokenizer)
        self.native_language = normalize_language(native_language)
        self.max_native_length, self.pad_native = max_native_length, pad_native
        self.native_texts = native_texts
        self.normalization = checked_normalization(normalization)

    @classmethod
    def for_native(
        cls,
        config: PreTrainedConfig,
        native_processor: ProcessorMixin,
        tokenizer: Any,
        native_language: str = "en",
        **options: Any,
    ) -> Self:
        """Makes the processor of a student with this tokenizer from a native model's; `options` are arguments of the
        class."""
        own = native_processor.image_processor, tokenizer, with_mask(native_processor.tokenizer)
        return cls(*own, native_language, *native_length(config, native_processor), **options)

    @property
    def one_tokenizer(self) -> bool:  # type: ignore[override]
        return self.native_texts == "student"

    @property
    def text_names(self) -> frozenset[str]:  # type: ignore[override]
        """Keywords for texts; for rows that two tokenizers read, the keywords that both share."""
        return super().text_names if self.one_tokenizer else PerLanguageProcessor.text_names

    @property
    def native(self) -> DualEncoderProcessor:
        return native_reader(self.image_processor, self.native_tokenizer, self.max_native_length, self.pad_native)

    @property
    def model_input_names(self) -> list[str]:
        names = ["pixel_values", "input_ids", "attention_mask"]
        return names if self.one_tokenizer else [*names, "language_ids"]

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        if self.one_tokenizer:
            texts = as_texts(text)
            languages = [UNDETERMINED] * len(texts) if language is None else language_for_each(language, len(texts))
            return self._read(texts, languages, settings, is_one=isinstance(text, str))
        texts, languages = texts_and_languages(text, language)
        native = [is_same_language(tag, self.native_language) for tag in languages]

        def read(rows: list[int], is_native: bool) -> list[list[int]]:
            some = [texts[row] for row in rows]
            chosen = {"truncation": settings["truncation"]}
            if not is_native:
                chosen |= {"max_length": settings["max_length"], "padding": False}
                return self._read(some, [languages[row] for row in rows], chosen)["input_ids"]
            # Native texts are cut at the native model's own length, unless the call gives another.
            if settings["max_length"] != self.text_kwargs["max_length"]:
                chosen["max_length"] = min(settings["max_length"], self.max_native_length)
            return self.native(text=some, padding="max_length" if self.pad_native else False, **chosen)["input_ids"]

        rows = read_in_two(native, read)
        padding = [(self.native_tokenizer if each else self.tokenizer).pad_token_id for each in native]
        layout = TextLayout.of(settings)
        layout = replace(layout, max_length=max(layout.max_length, *map(len, rows)))
        inputs = {"input_ids": layout.padded(rows, padding), "language_ids": [0 if each else 1 for each in native]}
        return inputs | layout.mask(rows)

    def _read(self, texts: list[str], languages: list[str], settings: dict[str, Any], *, is_one: bool = False) -> Any:
        """Returns the student's tokens, and reports texts that are cut as they were given, not as they are spelled."""
        spelled = texts
        if self.normalization:
            spelled = [same_letters(text, tag) for text, tag in zip(texts, languages, strict=True)]
        with counting_cut_texts() as cut:
            encoded = super()._encoded(spelled[0] if is_one else spelled, None, settings)
        note_cut_texts([text for text, read in zip(texts, spelled, strict=True) if read in cut.texts], cut.limit)
        return encoded


def native_reader(image_processor: Any, tokenizer: Any, length: int, is_padded: bool) -> DualEncoderProcessor:
    return DualEncoderProcessor(image_processor, tokenizer, max_text_length=length, pad_to_max_length=is_padded)


def native_length(config: PreTrainedConfig, processor: ProcessorMixin) -> tuple[int, bool]:
    """Returns the number of tokens at which a native processor cuts texts, and whether every text is padded to it."""
    stated = getattr(processor, "text_kwargs", {}).get("max_length")
    length = processor.tokenizer.model_max_length if stated is None else stated
    length = min(length, text_positions(getattr(config, "text_config", config)) or length)
    return length, tower_pooling(config) == "last"


def with_mask(tokenizer: Any) -> Any:
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
        "the multilingual tokenizer must end every text with its sep_token or eos_token, whose state MLA pools; 'a' "
        f"becomes {tokenizer.convert_ids_to_tokens(tokenizer('a')['input_ids'])}"
    )


__all__ = ["MlaProcessor", "MlaStudentProcessor", "closing_token_id"]
