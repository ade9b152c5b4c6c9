"""Processors of MLA and its baselines: in one batch, the frozen model's tokenizer reads native texts and a
multilingual one all others (Zhang et al. 2022, section 3.2, tables 4 and 7)."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from transformers import AutoTokenizer, PreTrainedConfig, ProcessorMixin
from transformers.tokenization_utils_base import PaddingStrategy

from ..configuration.configuration_mla import text_positions, tower_pooling
from ..utils.errors import InputError, ModelFolderError
from ..utils.language_matching import is_same_language, language_id
from ..utils.languages import normalize_language, normalize_languages
from .processing_dual_encoder import MAX_TEXT_TOKENS, DualEncoderProcessor, call_tokenizer
from .processing_per_language import PerLanguageProcessor, TextLayout
from .text_normalization import NORMALIZATION, checked_normalization, same_letters


class ExtendedProcessor(PerLanguageProcessor):
    """Base class of the processors of models that extend a native one. The native tokenizer reads the native texts of
    a batch, up to `max_native_length`; another tokenizer reads all others, after `text_prompt`."""

    # The names of the native tokenizer and the other one, and of the native length and whether texts are padded to it.
    parts: ClassVar = ("tokenizer", "encoder_tokenizer")
    reading: ClassVar = ("max_native_length", "pad_native")
    has_text_encoder = True  # otherwise, the model reads only native tokens
    pad_native: bool
    text_prompt: str
    normalization: int

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

    @classmethod
    def for_native(
        cls,
        config: PreTrainedConfig,
        native_processor: ProcessorMixin,
        tokenizer: Any = None,
        native_language: str = "en",
        **options: Any,
    ) -> Self:
        """Makes the processor from a native model's processor and the other tokenizer; `options` are further arguments
        of the class."""
        native = native_processor.tokenizer
        stated = getattr(native_processor, "text_kwargs", {}).get("max_length")
        length = native.model_max_length if stated is None else stated
        length = min(length, text_positions(getattr(config, "text_config", config)) or length)
        settings = dict(zip(cls.parts, (with_mask(native), tokenizer), strict=True))
        settings |= dict(zip(cls.reading, (length, tower_pooling(config) == "last"), strict=True))
        return cls(native_processor.image_processor, **settings | {"native_language": native_language} | options)

    @property
    def tokenizers(self) -> tuple[Any, Any]:
        native, other = self.parts
        return getattr(self, native), getattr(self, other)

    @property
    def native(self) -> DualEncoderProcessor:
        length, is_padded = (getattr(self, name) for name in self.reading)
        return DualEncoderProcessor(self.image_processor, self.tokenizers[0], "", length, is_padded)

    @property
    def least_length(self) -> int:  # type: ignore[override]
        native, other = self.tokenizers
        prompt = call_tokenizer(other, self.text_prompt, add_special_tokens=False)["input_ids"]
        return 1 + max(native.num_special_tokens_to_add(), other.num_special_tokens_to_add() + len(prompt))

    def native_tokens(self, texts: list[str], layout: TextLayout) -> list[list[int]]:
        """Returns the tokens of native texts, cut at the native length unless a call gives a smaller one."""
        length = getattr(self, self.reading[0])
        if layout.max_length != self.max_text_length:
            length = min(layout.max_length, length)
        padding = "max_length" if self.pad_native else False
        return replace(layout, max_length=length).tokens(self.tokenizers[0], texts, padding=padding)

    def with_same_letters(self, texts: Iterable[str], language: str) -> list[str]:
        return [same_letters(text, language) for text in texts] if self.normalization else list(texts)

    def encode_rows(
        self, texts: list[str], languages: list[str], is_native: Sequence[bool], layout: TextLayout
    ) -> dict[str, list[Any]]:
        """Returns `input_ids` and, if wanted, `attention_mask`, of native texts and of all others."""
        native, other = self.tokenizers
        others = [(text, tag) for text, tag, each in zip(texts, languages, is_native, strict=True) if not each]
        spelled = [self.text_prompt + self.with_same_letters([text], tag)[0] for text, tag in others]
        logged = [text for text, _ in others] if self.has_text_encoder else []
        of_natives = iter(self.native_tokens([*compress(texts, is_native)], layout))
        of_others = iter(layout.tokens(other, spelled, logged))
        rows = [next(of_natives if each else of_others) for each in is_native]
        padding = [(native if each else other).pad_token_id or 0 for each in is_native]
        return {"input_ids": layout.padded(rows, padding)} | layout.mask(rows)


class MlaProcessor(ExtendedProcessor):
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
    parts = ("tokenizer", "multilingual_tokenizer")
    reading = ("max_text_length", "pad_to_max_length")
    pad_native = False  # all texts are padded together
    text_prompt = ""

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
    def for_native(  # type: ignore[override]
        cls, config: PreTrainedConfig, native_processor: Any, tokenizer: Any, *args: Any, **options: Any
    ) -> Self:
        """As in `ExtendedProcessor`; by default, texts are normalized. If the native model pools the first state, the
        multilingual tokenizer must put a token there."""
        begins = tokenizer("a")["input_ids"][0] in (tokenizer.cls_token_id, tokenizer.bos_token_id)
        if tower_pooling(config) == "cls" and not begins:
            raise InputError(
                "the native model pools the first state of a text, so the multilingual tokenizer must begin every "
                f"text with its cls_token or bos_token; 'a' becomes {tokenizer.tokenize('a', add_special_tokens=True)}"
            )
        options = {"normalization": NORMALIZATION} | options
        return super().for_native(config, native_processor, tokenizer, *args, **options)

    @property
    def text_kwargs(self) -> dict[str, Any]:
        if not self.pad_to_max_length:
            return super().text_kwargs
        return super().text_kwargs | {"padding": "max_length", "return_attention_mask": False}

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        if self.pad_to_max_length and layout.padding is not PaddingStrategy.MAX_LENGTH:
            raise InputError("this model reads the last token of texts of the full length: leave out padding")
        layout = replace(layout, side=self.tokenizer.padding_side)  # for all texts: the text tower expects it
        ids = [language_id(tag, [self.native_language, *self.languages]) for tag in languages]
        inputs = self.encode_rows(texts, languages, [index == 0 for index in ids], layout)
        return inputs | {"language_ids": ids} if self.languages else inputs


class MlaStudentProcessor(ExtendedProcessor):
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
    parts = ("native_tokenizer", "tokenizer")

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
        super().__init__(image_processor, with_mask(tokenizer), native_tokenizer)
        self.native_language, self.max_text_length = normalize_language(native_language), MAX_TEXT_TOKENS
        self.max_native_length, self.pad_native = max_native_length, pad_native
        self.text_prompt, self.native_texts = text_prompt, native_texts
        self.normalization = checked_normalization(normalization)

    @property
    def needs_language(self) -> bool:  # type: ignore[override]
        return self.native_texts == "native"

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        is_native = [self.needs_language and is_same_language(tag, self.native_language) for tag in languages]
        inputs = self.encode_rows(texts, languages, is_native, layout)
        return inputs | {"language_ids": [0 if each else 1 for each in is_native]} if self.needs_language else inputs


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
