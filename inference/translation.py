"""Machine translation of queries and captions, with any sequence-to-sequence model of transformers.

A translator has one method, `translate(texts, source, target)`, whose languages are BCP-47 tags. How a family of
models is told the languages is written below; `translation_cache` keeps translations on disk.
"""

import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..utils.errors import InputError, LanguageTagError, MissingExtraError, ModelFolderError
from ..utils.identity import model_identity
from ..utils.languages import language_and_script, normalize_language
from ..utils.pretrained import load_model, load_processor

logger = logging.getLogger(__name__)


# ---- How translation models are told the languages ----
# It differs from family to family:
#
# NLLB, M2M100, mBART-50  a token for each language (`deu_Latn`, `__de__`, `de_DE`): the tokenizer is set to that of
#                         the source, and the translation begins with that of the target
# mBART                   the same tokens; the decoder starts with that of the target
# MADLAD-400              a token of the target before the text (`<2de>`); the model finds the source out
# Marian, many targets    the same, as `>>deu<<`
# Marian, one pair        nothing; its tokenizer says which pair, or the user does


LanguagePair = tuple[str, str]
Written = tuple[str, str]  # language and script

_TARGET_TOKEN = re.compile(r"<2(\w+)>|>>([\w-]+)<<")
_MANY = "mul"  # the tag of several languages, by which Marian's models call them


@dataclass(frozen=True)
class Request:
    """What asks a model for a translation.

    Attributes:
        prefix: what is put before every text.
        source_code: what the tokenizer's `src_lang` is set to; None for a tokenizer without it.
        options: further arguments of `generate`.
    """

    prefix: str = ""
    source_code: str | None = None
    options: Mapping[str, int] = field(default_factory=dict)


class LanguageCodes:
    """Asks a model for translations between languages, in the way of its family.

    Args:
        tokenizer: its tokenizer.
        pair, prefix: as in `Seq2SeqTranslator`.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, pair: LanguagePair | None = None, prefix: str = ""
    ) -> None:
        self.tokenizer, self.prefix = tokenizer, prefix
        self._tokens = source_tokens(tokenizer)
        self._targets = {} if self._tokens else _target_tokens(tokenizer)
        # mBART of 2020 has no token that the translation begins with: the decoder starts with the language.
        is_first = type(tokenizer).__name__.startswith("MBartTokenizer")
        self._option = "decoder_start_token_id" if is_first else "forced_bos_token_id"
        self.pair = (normalize_language(pair[0]), normalize_language(pair[1])) if pair else None
        self._source: str | None = None
        if self.pair is None and not self._tokens:
            self._take_from_tokenizer()

    def _take_from_tokenizer(self) -> None:
        """Takes the languages of a Marian model from its tokenizer; MADLAD's needs none."""
        stated = [getattr(self.tokenizer, name, None) for name in ("source_lang", "target_lang")]
        source, target = (_tag(code) for code in stated)
        if self._targets and (source or not stated[0]):
            self._source = None if source == _MANY else source
        elif source and target:
            if source == _MANY:
                self._targets = {language_and_script(target): ""}
            else:
                self.pair = source, target
        else:
            raise InputError(
                f"{type(self.tokenizer).__name__} has no tokens for languages: say which the model translates, as in "
                "pair=('en', 'de')"
            )

    def request(self, source: str, target: str) -> Request:
        """What asks for a translation from `source` to `target`, two canonical tags."""
        pair = language_and_script(source), language_and_script(target)
        only = self.pair or ((self._source, target) if self._source else None)
        if only and pair != (language_and_script(only[0]), language_and_script(only[1])):
            to = self.pair[1] if self.pair else "other languages"
            raise LanguageTagError(f"this model translates {only[0]} to {to}, not {source} to {target}")
        if self._tokens:
            for language, written in zip((source, target), pair, strict=True):
                _known(written, self._tokens, language)
            code = self._tokens[pair[0]].strip("_")  # M2M100's token of a language is its code between underscores
            number = self.tokenizer.convert_tokens_to_ids(self._tokens[pair[1]])
            return Request(self.prefix, code, {self._option: number})
        if self._targets:
            _known(pair[1], self._targets, target)
            token = self._targets[pair[1]]
            return Request(f"{token} {self.prefix}" if token else self.prefix)
        return Request(self.prefix)


def _known(written: Written, tokens: Mapping[Written, str], language: str) -> None:
    if written not in tokens:
        raise LanguageTagError(f"this translation model has no token for {language!r}")


def _tag(code: Any) -> str | None:
    """The tag of a code in a tokenizer's settings; None for a family of languages, such as `ROMANCE`."""
    try:
        return normalize_language(code)
    except LanguageTagError:
        return None


def source_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[Written, str]:
    """Returns the tokens by which a tokenizer states the language of a text (`src_lang`); empty if it does not."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    # M2M100's tokens of languages are not among its special tokens.
    return _by_language([*tokenizer.all_special_tokens, *getattr(tokenizer, "lang_code_to_token", {}).values()])


def _by_language(tokens: Iterable[str]) -> dict[Written, str]:
    """Tokens of languages by language and script; other tokens, such as `<s>`, are left out."""
    found: dict[Written, str] = {}
    for token in tokens:
        match = _TARGET_TOKEN.fullmatch(token)
        tag = _tag((match[1] or match[2]) if match else token.strip("_"))
        if tag is not None:
            found.setdefault(language_and_script(tag), token)
    return found


def _target_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[Written, str]:
    """The tokens of a vocabulary that stand before a text and say its target."""
    return _by_language(sorted(token for token in tokenizer.get_vocab() if _TARGET_TOKEN.fullmatch(token)))


# ---- The translators ----


class Translator(Protocol):
    """The interface of a translator."""

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts from the language `source` to the language `target`, in their order."""


class Seq2SeqTranslator:
    """A translation model of transformers: Marian, M2M100, NLLB, mBART, MADLAD-400 and their like.

    The model's own `generation_config` sets how it generates: beams, length and so on. Without a length there, a
    translation may have twice as many tokens as the longest text of its batch, and 20 more.

    Args:
        model: a sequence-to-sequence model.
        tokenizer: its tokenizer.
        pair: source and target language of a model that translates one pair and does not say which.
        prefix: what is put before every text, for a model that was fine-tuned with it, such as a T5 with
            `"translate English to Swahili: "`; what models of a known family read is put there without it.
        batch_size: number of texts that are translated at a time.
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
        self._tokenizing = threading.Lock()
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.codes = LanguageCodes(tokenizer, pair=pair, prefix=prefix)

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
        """
        model = load_model(AutoModelForSeq2SeqLM, folder_or_repo, **loading)
        try:
            tokenizer = load_processor(AutoTokenizer, folder_or_repo, **loading)
        except ModelFolderError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            raise MissingExtraError(
                f"the tokenizer of {folder_or_repo} needs a library that is not installed: pip install "
                f"sacremoses sentencepiece ({str(error.__cause__).strip().partition('. ')[0]})"
            ) from error
        if device is None and torch.accelerator.is_available():
            device = torch.accelerator.current_accelerator()
        moved = model if device is None else model.to(device)
        return cls(moved, tokenizer, pair=pair, prefix=prefix, batch_size=batch_size)

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order. A warning counts translations that ended at the greatest length."""
        request = self.codes.request(normalize_language(source), normalize_language(target))
        translations = [""] * len(texts)
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))  # little of a batch is padding
        cut = 0
        for start in range(0, len(texts), self.batch_size):
            indices = order[start : start + self.batch_size]
            batch = [request.prefix + texts[index] for index in indices]
            with self._tokenizing:  # another thread may translate from another language
                if request.source_code is not None:
                    self.tokenizer.src_lang = request.source_code
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
        """Translates texts by the translator of the pair."""
        pair = normalize_language(source), normalize_language(target)
        return self.of(*pair).translate(texts, *pair)

    def of(self, source: str, target: str) -> Translator:
        """The translator of a pair."""
        pair = normalize_language(source), normalize_language(target)
        if pair not in self._translators:
            known = ", ".join(f"{a} to {b}" for a, b in self._translators)
            raise LanguageTagError(f"no translator from {pair[0]} to {pair[1]}; there are {known}")
        return self._translators[pair]


__all__ = ["Seq2SeqTranslator", "Translator", "TranslatorsByPair"]
