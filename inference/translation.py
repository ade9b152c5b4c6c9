"""Machine translation of queries and captions, with any sequence-to-sequence model of transformers.

A translator has one method, `translate(texts, source, target)`, whose languages are BCP-47 tags. How a family of
models is told the languages stands in `translation_codes`; `translation_cache` keeps translations on disk.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..configuration.errors import InputError, MissingExtraError, ModelFolderError, UnknownLanguageError
from ..configuration.identity import model_identity
from ..configuration.languages import normalize_language
from ..configuration.pretrained import load_model, load_processor
from .translation_codes import LanguageCodes, LanguagePair

logger = logging.getLogger(__name__)


class Translator(Protocol):
    """The interface of a translator."""

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts from the language `source` to the language `target`, in their order."""


class Seq2SeqTranslator:
    """A translation model of transformers: Marian, M2M100, NLLB, mBART, MADLAD-400, T5 and their like.

    The model's own `generation_config` sets how it generates: beams, length and so on. Without a length there, a
    translation may have twice as many tokens as the longest text of its batch, and 20 more.

    Args:
        model: a sequence-to-sequence model.
        tokenizer: its tokenizer.
        pair: source and target language of a model that translates one pair and does not say which.
        prefix: what is put before every text, for a model that was fine-tuned with it, such as a T5 with
            `"translate English to Swahili: "`; what models of a known family read is put there without it.
        batch_size: number of texts that are translated at a time.

    Raises:
        InputError: when neither the tokenizer nor `pair` says which languages the model translates.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        pair: LanguagePair | None = None,
        prefix: str = "",
        batch_size: int = 32,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.codes = LanguageCodes(model, tokenizer, pair=pair, prefix=prefix)

    @classmethod
    def from_pretrained(
        cls,
        folder_or_repo: str | Path,
        *,
        pair: LanguagePair | None = None,
        prefix: str = "",
        batch_size: int = 32,
        device: str | torch.device | None = None,
        **loading: Any,
    ) -> Self:
        """Loads model and tokenizer from a folder or from the Hub.

        Args:
            folder_or_repo: what `AutoModelForSeq2SeqLM.from_pretrained` takes.
            pair, prefix, batch_size: as in `Seq2SeqTranslator`.
            device: where to run; by default the accelerator when there is one, else the CPU.
            loading: passed to the Auto classes: `revision`, `token`, `dtype`, ….

        Raises:
            ModelFolderError: when there is no such model, or it cannot be loaded.
            MissingExtraError: without a library that its tokenizer needs.
            InputError: as the class.
        """
        model = load_model(AutoModelForSeq2SeqLM, folder_or_repo, **loading)
        try:
            tokenizer = load_processor(AutoTokenizer, folder_or_repo, **loading)
        except ModelFolderError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            raise MissingExtraError(
                f"the tokenizer of {folder_or_repo} needs a library that is not installed: pip install "
                f"babelens[translation] ({str(error.__cause__).strip().partition('. ')[0]})"
            ) from error
        if device is None and torch.accelerator.is_available():
            device = torch.accelerator.current_accelerator()
        moved = model if device is None else model.to(device)
        return cls(moved, tokenizer, pair=pair, prefix=prefix, batch_size=batch_size)

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order. A warning counts translations that ended at the greatest length.

        Raises:
            LanguageTagError: for a string that names no language.
            UnknownLanguageError: for a language that the model does not translate.
            InputError: for a text that is longer than the model reads.
        """
        request = self.codes.request(normalize_language(source), normalize_language(target))
        if request.source_code is not None:
            self.tokenizer.src_lang = request.source_code
        translations = [""] * len(texts)
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))  # little of a batch is padding
        cut = 0
        for start in range(0, len(texts), self.batch_size):
            indices = order[start : start + self.batch_size]
            batch = [request.prefix + texts[index] for index in indices]
            inputs = self.tokenizer(batch, padding=True, return_tensors="pt", verbose=False)  # checked below
            self._check_lengths(batch, inputs["attention_mask"].sum(1).tolist())
            # Not what some tokenizers make beside them, such as the segments of BERT's.
            read = {name: inputs[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
            options = self._length(read["input_ids"]) | dict(request.options)
            generated = self.model.generate(**read, **options)
            cut += self._unfinished(generated)
            for index, text in zip(
                indices, self.tokenizer.batch_decode(generated, skip_special_tokens=True), strict=True
            ):
                translations[index] = text
        if cut:
            logger.warning(
                "%d of %d translations from %s to %s were cut at the greatest length", cut, len(texts), source, target
            )
        return translations

    def fingerprint(self) -> str:
        """A digest of everything that a translation depends on, beside the text and its languages."""
        settings = self.model.generation_config.to_json_string(), self.codes.prefix
        return model_identity(self.model, self.tokenizer, *settings)

    def _length(self, input_ids: Tensor) -> dict[str, int]:
        """The greatest length of translations, where the model states none: transformers would take 20 tokens."""
        stated = self.model.generation_config
        has_length = stated.max_length is not None or stated.max_new_tokens is not None
        return {} if has_length else {"max_new_tokens": 2 * input_ids.shape[1] + 20}

    def _unfinished(self, generated: Tensor) -> int:
        """The number of translations that do not end."""
        ends = self.model.generation_config.eos_token_id
        ends = [*(ends if isinstance(ends, list) else [ends]), self.tokenizer.pad_token_id]
        last = torch.tensor([each for each in ends if each is not None], device=generated.device)
        return int((~torch.isin(generated[:, -1], last)).sum())

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
        return self.of(*pair).translate(texts, *pair)

    def of(self, source: str, target: str) -> Translator:
        """The translator of a pair.

        Raises:
            UnknownLanguageError: when there is no translator of the pair.
        """
        pair = normalize_language(source), normalize_language(target)
        if pair not in self._translators:
            known = ", ".join(f"{a} to {b}" for a, b in self._translators)
            raise UnknownLanguageError(f"no translator from {pair[0]} to {pair[1]}; there are {known}")
        return self._translators[pair]


__all__ = ["Seq2SeqTranslator", "Translator", "TranslatorsByPair"]
