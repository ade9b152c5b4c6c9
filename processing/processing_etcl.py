"""ETCL's processor: MURAL's image transforms and any multilingual vocabulary (the paper uses LaBSE's), with texts
of at most 64 tokens (Lee et al. 2022, section 3.3)."""

from typing import Any

from ..utils.errors import InputError, LanguageTagError
from ..utils.languages import did_you_mean_language, language_and_script, language_for_each
from .processing_dual_encoder import MAX_TEXT_TOKENS, DualEncoderProcessor
from .text_inputs import as_texts, call_tokenizer, default_language, note_cut_texts, overlong


class EtclProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `EtclModel`.

    Args:
        image_processor, tokenizer, text_prompt, max_text_length, pad_to_max_length: as in `MuralProcessor`.
        language_codes: for a tokenizer that puts the language before a text, as NLLB's does: the tokenizer's codes by
            BCP-47 tag (`{"de": "deu_Latn"}`). Texts without a language are then read in the tokenizer's default one.

    Examples:
        >>> processor = EtclProcessor(MuralImageProcessor(), train_wordpiece(captions, 8000))
        >>> inputs = processor(images=images, text=["ein rotes Auto"], language="de", return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        text_prompt: str = "",
        max_text_length: int = MAX_TEXT_TOKENS,
        pad_to_max_length: bool = False,
        language_codes: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(image_processor, tokenizer, text_prompt, max_text_length, pad_to_max_length, **more)
        self.language_codes = language_codes

    @property
    def one_tokenizer(self) -> bool:  # type: ignore[override]
        """Whether the inputs of a text do not depend on its language."""
        return not self.language_codes

    @property
    def native_language(self) -> str | None:
        """The language assumed for texts without one, where it matters."""
        own = getattr(self.tokenizer, "src_lang", None)
        return next((tag for tag, code in sorted((self.language_codes or {}).items()) if code == own), None)

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        if not self.language_codes:
            return super()._encoded(text, language, settings)
        texts = as_texts(text)
        languages = language_for_each(language or default_language(self), len(texts))
        ids = {tag: self._id(self._code(tag)) for tag in dict.fromkeys(languages)}
        try:
            prompted = [self.text_prompt + each for each in texts]
            encoded = call_tokenizer(
                self.tokenizer, prompted, **{"verbose": False} | settings | {"padding": False, "return_tensors": None}
            )
            place = call_tokenizer(self.tokenizer, "")["input_ids"].index(self._id(self.tokenizer.src_lang))
        except ValueError as error:
            raise InputError(f"{type(self.tokenizer).__name__}: {error}") from error
        note_cut_texts(overlong(texts, encoded), f"{settings['max_length']} tokens")
        if settings.get("add_special_tokens", True):
            # Replaces the tokenizer's language token at the beginning or the end of a text. Setting `src_lang` would
            # change what other threads read.
            for row, tag in zip(encoded["input_ids"], languages, strict=True):
                row[0 if place == 0 else -1] = ids[tag]
        named = ("padding", "max_length", "pad_to_multiple_of", "return_attention_mask")
        padding = {name: settings[name] for name in named if name in settings}
        return self.tokenizer.pad({"input_ids": encoded["input_ids"]}, verbose=False, **padding)

    def _id(self, code: str) -> int:
        """Returns the id of a language token."""
        named = getattr(self.tokenizer, "get_lang_id", self.tokenizer.convert_tokens_to_ids)
        return int(named(code))

    def _code(self, language: str) -> str:
        codes = self.language_codes or {}
        tags = [language, "-".join(filter(None, language_and_script(language)))]
        found = next((codes[tag] for tag in tags if tag in codes), None)
        if found is None:
            near = did_you_mean_language(language, codes)
            raise LanguageTagError(f"this model's tokenizer has no code for {language!r}{near}")
        return found


__all__ = ["EtclProcessor"]
