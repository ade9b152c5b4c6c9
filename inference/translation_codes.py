"""How translation models are told the languages, which differs from family to family:

NLLB, M2M100, mBART-50  a token for each language (`deu_Latn`, `__de__`, `de_DE`): the tokenizer is set to that of
                        the source, and the translation begins with that of the target
mBART                   the same tokens; the decoder starts with that of the target
MADLAD-400              a token of the target before the text (`<2de>`); the model finds the source out
Marian, many targets    the same, as `>>deu<<`
Marian, one pair        nothing; its tokenizer says which pair, or the user does
T5                      a sentence before the text, `translate English to German: `, which its configuration has
                        for each pair
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..configuration.errors import InputError, LanguageTagError, UnknownLanguageError
from ..configuration.languages import language_and_script, normalize_language

LanguagePair = tuple[str, str]
Written = tuple[str, str]  # language and script

_TARGET_TOKEN = re.compile(r"<2(\w+)>|>>([\w-]+)<<")
_TASK = re.compile(r"translation_(\w+)_to_(\w+)")
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
        model: the model.
        tokenizer: its tokenizer.
        pair: source and target language of a model that translates one pair and does not say which.
        prefix: what is put before every text, beside what the family puts there.

    Raises:
        InputError: when neither the model nor the caller says which languages the model translates.
        LanguageTagError: for an unknown language in `pair`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        pair: LanguagePair | None = None,
        prefix: str = "",
    ) -> None:
        self.tokenizer, self.prefix = tokenizer, prefix
        # M2M100's tokens of languages are not among its special tokens.
        special = [*tokenizer.all_special_tokens, *getattr(tokenizer, "lang_code_to_token", {}).values()]
        self._tokens = _by_language(special) if hasattr(tokenizer, "src_lang") else {}
        self._targets = {} if self._tokens else _target_tokens(tokenizer)
        self._prefixes = {} if self._tokens or self._targets else _task_prefixes(model)
        # mBART of 2020 has no token that the translation begins with: the decoder starts with the language.
        is_first = type(tokenizer).__name__.startswith("MBartTokenizer")
        self._option = "decoder_start_token_id" if is_first else "forced_bos_token_id"
        self.pair = (normalize_language(pair[0]), normalize_language(pair[1])) if pair else None
        self._source: str | None = None
        if self.pair is None and not self._tokens and not self._prefixes:
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
        """What asks for a translation from `source` to `target`, two canonical tags.

        Raises:
            UnknownLanguageError: for languages that the model does not translate.
        """
        pair = language_and_script(source), language_and_script(target)
        only = self.pair or ((self._source, target) if self._source else None)
        if only and pair != (language_and_script(only[0]), language_and_script(only[1])):
            to = self.pair[1] if self.pair else "other languages"
            raise UnknownLanguageError(f"this model translates {only[0]} to {to}, not {source} to {target}")
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
        if self._prefixes:
            if pair not in self._prefixes:
                raise UnknownLanguageError(f"this translation model has no task from {source} to {target}")
            return Request(self._prefixes[pair] + self.prefix)
        return Request(self.prefix)


def _known(written: Written, tokens: Mapping[Written, str], language: str) -> None:
    if written not in tokens:
        raise UnknownLanguageError(f"this translation model has no token for {language!r}")


def _tag(code: Any) -> str | None:
    """The tag of a code in a tokenizer's settings; None for a family of languages, such as `ROMANCE`."""
    try:
        return normalize_language(code)
    except LanguageTagError:
        return None


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


def _task_prefixes(model: PreTrainedModel) -> dict[tuple[Written, Written], str]:
    """What T5's configuration says is put before texts, by source and target."""
    prefixes: dict[tuple[Written, Written], str] = {}
    for name, settings in (getattr(model.config, "task_specific_params", None) or {}).items():
        match = _TASK.fullmatch(name)
        source, target = (_tag(code) for code in match.groups()) if match else (None, None)
        if source and target and settings.get("prefix"):
            prefixes[language_and_script(source), language_and_script(target)] = settings["prefix"]
    return prefixes
