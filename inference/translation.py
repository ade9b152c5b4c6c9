"""Machine translation of queries, with any sequence-to-sequence model of transformers.

A translator has one method, `translate(texts, source, target)`, whose languages are BCP-47 tags. A model of many
languages (NLLB, M2M100, mBART-50) has a token for each language in a spelling of its own (`deu_Latn`, `__de__`,
`de_DE`), which is found from the tag. A model of two languages (Marian) is loaded with the pair that it translates.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..configuration.errors import InputError, LanguageTagError, UnknownLanguageError
from ..configuration.languages import language_and_script, normalize_language
from ..configuration.pretrained import load_model, load_processor

LanguagePair = tuple[str, str]


class Translator(Protocol):
    """The interface of a translator."""

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts from the language `source` to the language `target`, in their order."""


class Seq2SeqTranslator:
    """A translation model of transformers.

    The model's own `generation_config` sets how it generates: beams, length and so on.

    Args:
        model: a sequence-to-sequence model.
        tokenizer: its tokenizer.
        pair: source and target language of a model that has no tokens for languages.
        batch_size: number of texts that are translated at a time.

    Raises:
        ValueError: without `pair`, when the tokenizer has no tokens for languages.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        pair: LanguagePair | None = None,
        batch_size: int = 32,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.pair = None if pair is None else (normalize_language(pair[0]), normalize_language(pair[1]))
        self._tokens = _language_tokens(tokenizer) if hasattr(tokenizer, "src_lang") else {}
        if pair is None and not self._tokens:
            raise ValueError(
                f"{type(tokenizer).__name__} has no tokens for languages: say which the model translates, as in "
                "pair=('en', 'de')"
            )

    @classmethod
    def from_pretrained(
        cls,
        folder_or_repo: str | Path,
        *,
        pair: LanguagePair | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        **loading: Any,
    ) -> Self:
        """Loads model and tokenizer from a folder or from the Hub.

        Args:
            folder_or_repo: what `AutoModelForSeq2SeqLM.from_pretrained` takes.
            pair, batch_size: as in `Seq2SeqTranslator`.
            device: where to run; by default the accelerator when there is one, else the CPU.
            loading: passed to the Auto classes: `revision`, `token`, `dtype`, ….
        """
        model = load_model(AutoModelForSeq2SeqLM, folder_or_repo, **loading)
        tokenizer = load_processor(AutoTokenizer, folder_or_repo, **loading)
        if device is None and torch.accelerator.is_available():
            device = torch.accelerator.current_accelerator()
        return cls(model if device is None else model.to(device), tokenizer, pair=pair, batch_size=batch_size)

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order.

        Raises:
            LanguageTagError: for a string that names no language.
            UnknownLanguageError: for a language that the model does not translate.
            InputError: for a text that is longer than the model reads.
        """
        source, target = normalize_language(source), normalize_language(target)
        options = self._towards(source, target)
        translations: list[str] = []
        for start in range(0, len(texts), self.batch_size):
            batch = list(texts[start : start + self.batch_size])
            inputs = self.tokenizer(batch, padding=True, return_tensors="pt", verbose=False)  # checked below
            self._check_lengths(batch, inputs["attention_mask"].sum(1).tolist())
            generated = self.model.generate(**inputs.to(self.model.device), **options)
            translations += self.tokenizer.batch_decode(generated, skip_special_tokens=True)
        return translations

    def _towards(self, source: str, target: str) -> dict[str, int]:
        """Sets the tokenizer to `source`, and returns the options by which `generate` writes in `target`."""
        if self.pair is not None:
            if (source, target) != self.pair:
                raise UnknownLanguageError(
                    f"this model translates {self.pair[0]} to {self.pair[1]}, not {source} to {target}"
                )
            return {}
        for language in (source, target):
            if language_and_script(language) not in self._tokens:
                raise UnknownLanguageError(f"this translation model has no token for {language!r}")
        # M2M100's token of a language is its code between underscores.
        self.tokenizer.src_lang = self._tokens[language_and_script(source)].strip("_")
        return {"forced_bos_token_id": self.tokenizer.convert_tokens_to_ids(self._tokens[language_and_script(target)])}

    def _check_lengths(self, texts: list[str], lengths: list[int]) -> None:
        longest = self.tokenizer.model_max_length
        for text, length in zip(texts, lengths, strict=True):
            if length > longest:
                raise InputError(
                    f"a text of {length} tokens ({text[:60]!r}…), where the translation model reads {longest}"
                )


class TranslatorsByPair:
    """Combines translators of one pair of languages each, such as Marian's models, into one translator.

    Args:
        translators: the translators, by source and target language.

    Examples:
        >>> german = Seq2SeqTranslator.from_pretrained("Helsinki-NLP/opus-mt-en-de", pair=("en", "de"))
        >>> french = Seq2SeqTranslator.from_pretrained("Helsinki-NLP/opus-mt-en-fr", pair=("en", "fr"))
        >>> translator = TranslatorsByPair({("en", "de"): german, ("en", "fr"): french})
        >>> translator.translate(["a red car"], "en", "fr")
    """

    def __init__(self, translators: Mapping[LanguagePair, Translator]) -> None:
        self._translators = {
            (normalize_language(source), normalize_language(target)): translator
            for (source, target), translator in translators.items()
        }

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts by the translator of the pair.

        Raises:
            UnknownLanguageError: when there is no translator of the pair.
        """
        pair = normalize_language(source), normalize_language(target)
        if pair not in self._translators:
            known = ", ".join(f"{a} to {b}" for a, b in self._translators)
            raise UnknownLanguageError(f"no translator from {pair[0]} to {pair[1]}; there are {known}")
        return self._translators[pair].translate(texts, *pair)


def _language_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[tuple[str, str], str]:
    """The tokenizer's tokens of languages, by language and script."""
    tokens: dict[tuple[str, str], str] = {}
    for token in tokenizer.all_special_tokens:
        try:
            tokens.setdefault(language_and_script(normalize_language(token.strip("_"))), token)
        except LanguageTagError:  # <s>, [PAD] and the like
            continue
    return tokens


__all__ = ["Seq2SeqTranslator", "Translator", "TranslatorsByPair"]
