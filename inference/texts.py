"""How texts become the inputs of a model; the languages that a model states, by its processor or on its card, with
warnings of texts in others; and sample texts for exports.

A model of one vocabulary computes an embedding of a text in any language, also in one that it never saw; only its card
says which it learned.
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import cycle, islice
from typing import Any

import regex
from huggingface_hub import ModelCard
from transformers import BatchFeature
from transformers.utils import cached_file

from ..configuration.text_towers import text_positions
from ..processing.processing_dual_encoder import LARGEST_LENGTH, DualEncoderProcessor
from ..processing.processing_mla import MlaProcessor
from ..processing.processing_ridge import RidgeProcessor
from ..processing.text_inputs import UNDETERMINED, call_tokenizer, takes_language
from ..utils.errors import BabelensError, LanguageTagError
from ..utils.language_matching import language_and_script
from ..utils.languages import normalize_languages

logger = logging.getLogger(__name__)

_ANY = "multilingual"  # what cards say instead of a list


def languages_of(processor: Any, model: str) -> tuple[list[str], bool]:
    """The languages of a model, and whether it takes texts in others: those of its processor, if it refuses others, or
    else those that its card names."""
    known = getattr(processor, "languages", None)
    if known is not None:
        native = getattr(processor, "native_language", None)
        return normalize_languages([*([native] if native else []), *known]), False
    named = [tag for tag in _card_languages(model) if tag != _ANY]
    try:
        return normalize_languages(named), True
    except LanguageTagError as error:
        logger.warning("the card of %s names an unknown language: %s", model, error)
        return [], True


def says_multilingual(model: str) -> bool:
    """Returns whether the card of a model says so, instead of languages or with them."""
    return _ANY in _card_languages(model)


def _card_languages(model: str) -> list[str]:
    """The languages that the card of a model names, where the card is on this machine."""
    try:
        file = cached_file(
            model,
            "README.md",
            local_files_only=True,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        named = None if file is None else ModelCard.load(file).data.get("language")
    except (BabelensError, OSError, ValueError) as error:
        logger.warning("the card of %s cannot be read: %s", model, error)
        return []
    return [named] if isinstance(named, str) else [str(tag) for tag in named or []]


def warn_of_language(language: str, stated: list[str], takes_any: bool, model: str) -> None:
    """Logs once for each model and language that a model does not state that it reads it; `stated` and `takes_any` are
    what `languages_of` returns."""
    primary = [tag.partition("-")[0] for tag in stated]
    if takes_any and language != UNDETERMINED and language.partition("-")[0] not in primary:
        _told_languages.add((model, language))
        _warn(language, ", ".join(stated), model)


def warn_of_scripts(texts: Iterable[str], stated: Sequence[str], model: str) -> None:
    """Logs once for each model and script that most letters of a text belong to no language that the model states.

    A model that states no language is taken for one of the Latin script. Languages that `warn_of_language` has named
    count as stated.
    """
    told = [language for name, language in _told_languages if name == model]
    foreign = _foreign_letters(frozenset([*(stated or ["en"]), *told]))
    if foreign is None:
        return
    for text in texts:
        if text.isascii() and foreign.search("a") is None:
            continue
        found = foreign.findall(text)
        if 2 * len(found) <= len(_LETTER.findall(text)) or not found:
            continue
        script = Counter(unicodedata.name(letter, "UNKNOWN").split()[0] for letter in found).most_common(1)[0][0]
        if (model, script) not in _told_scripts:
            _told_scripts.add((model, script))
            _warn(_IN_WORDS.get(script, f"{script.title()} letters"), ", ".join(stated), model)


# A warning was logged of a model with a language, and of a model with a script.
_told_languages: set[tuple[str, str]] = set()
_told_scripts: set[tuple[str, str]] = set()
_LETTER = regex.compile(r"\p{L}")
_IN_WORDS = {"CJK": "Chinese characters"}
# Scripts of languages that are several of Unicode's.
_JOINT = {"Hans": ["Hani"], "Hant": ["Hani"], "Jpan": ["Hani", "Hira", "Kana"], "Kore": ["Hang", "Hani"]}


@cache
def _foreign_letters(languages: frozenset[str]) -> "regex.Pattern[str] | None":
    """Returns a pattern of letters that none of these languages uses; None if the script of one is unknown."""
    scripts = {script for tag in languages for script in _scripts_of(tag)} | {"Zyyy", "Zinh"}  # which several share
    known = "".join(rf"\p{{Script={name}}}" for name in sorted(scripts))
    try:
        return regex.compile(rf"[\p{{L}}--[{known}]]", regex.V1)
    except regex.error:
        return None


def _scripts_of(tag: str) -> list[str]:
    script = language_and_script(tag)[1]
    return _JOINT.get(script, [script])


@cache
def _warn(language: str, stated: str, model: str) -> None:
    if stated:
        logger.warning("%s states that it reads %s, and not %s: results may mean nothing", model, stated, language)
    elif not says_multilingual(model):
        logger.warning(
            "%s states no languages: whether it reads %s is not known, and results may mean nothing", model, language
        )


# ---- Preparing texts ----

_TOKENIZED_AT_ONCE = 4096  # texts


class TextPreparation:
    """How texts become the inputs of a model, by a processor of babelens, which takes the language, or of
    transformers."""

    def __init__(self, processor: Any, config: Any) -> None:
        self.processor, self.config = processor, config
        self.takes_language = takes_language(processor)
        # As SigLIP was trained.
        self._is_padded_to_full_length = "siglip" in config.model_type or getattr(
            processor, "pad_to_max_length", False
        )
        self._has_one_tokenizer = getattr(processor, "one_tokenizer", not self.takes_language)

    def inputs(self, texts: list[str], languages: list[str]) -> BatchFeature:
        """The inputs of texts in languages, padded and cut as the model reads them, as tensors."""
        if self.takes_language:
            return self.processor(text=texts, language=languages, return_tensors="pt")
        # transformers' processors leave padding to the caller.
        padding = "max_length" if self._is_padded_to_full_length else True
        return self.processor(text=texts, padding=padding, **self._cut, return_tensors="pt")

    @cached_property
    def longest(self) -> int:
        """The number of tokens at which the texts of a processor of transformers are cut: those for which the text
        tower has positions, and no more than its tokenizer and its processor state."""
        positions = text_positions(getattr(self.config, "text_config", self.config))
        longest = min(positions or LARGEST_LENGTH, self.processor.tokenizer.model_max_length, LARGEST_LENGTH)
        return int(min(longest, getattr(self.processor, "text_kwargs", {}).get("max_length") or longest))

    @cached_property
    def _cut(self) -> dict[str, Any]:
        """How texts are cut. A processor of babelens knows the length."""
        if self.takes_language or self.longest >= LARGEST_LENGTH:  # no length is stated
            return {"truncation": True}
        return {"truncation": True, "max_length": self.longest}

    def tokenized(self, texts: list[str], languages: list[str]) -> dict[str, list[list[int]]] | None:
        """The inputs of all texts, cut but not padded; None where the processor must make whole batches of inputs."""
        if not texts or not self._has_one_tokenizer or self._is_padded_to_full_length:
            return None
        # A tokenizer returns more than the tokens, in several times their memory: some texts at a time.
        tokenized: dict[str, list[list[int]]] = {}
        for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
            part = slice(start, start + _TOKENIZED_AT_ONCE)
            language = {"language": languages[part]} if self.takes_language else {}
            for name, rows in self.processor(text=texts[part], **language, padding=False, **self._cut).items():
                tokenized.setdefault(name, []).extend(rows)
        return tokenized

    def counts(self, texts: list[str], tokenized: dict[str, list[list[int]]] | None) -> list[int]:
        """The number of tokens of each text before it is cut."""
        if not texts:
            return []
        tokenizer = self.processor.tokenizer
        if tokenized is not None:
            counts = [len(tokens) for tokens in tokenized["input_ids"]]
            longest = max(counts)  # only texts with as many tokens can have been cut
            full = [index for index, count in enumerate(counts) if count == longest]
            whole = call_tokenizer(tokenizer, [texts[index] for index in full], verbose=False)["input_ids"]
            for index, tokens in zip(full, whole, strict=True):
                counts[index] = len(tokens)
            return counts
        if not callable(tokenizer):  # of a method with words as tokens, which are counted when texts are encoded
            return [len(text) for text in texts]
        return [len(tokens) for tokens in call_tokenizer(tokenizer, texts, verbose=False)["input_ids"]]


# ---- Sample texts, on which an exported model is compared with the model that it was made of ----

# Scripts with and without case, spaces and combining signs, written in both directions; texts that tokenizers treat in
# some special way; an empty one; and one that is longer than any model reads.
SAMPLE_TEXTS = (
    "a red car",
    "Zwei Hunde spielen im Schnee – ÄÖÜ, größer!",
    "Ένα κόκκινο αυτοκίνητο",
    "красная машина на улице",
    "سيارة حمراء في الشارعِ",
    "מכונית אדומה",
    "एक लाल गाड़ी",
    "รถสีแดงบนถนน",
    "赤い車が道を走っている",
    "一辆红色的汽车",
    "빨간 자동차",
    "ένα áé e\u0301 ﬁ Ａ\u00a0\u200b\u200d½",
    "👩‍👩‍👧 🇸🇯 ❤️",
    "[CLS] [SEP] [MASK] <s> </s> <|endoftext|> <pad>",
    "  two  spaces\tand\na line ",
    "",
    "x",
    "a very long description of a street in the rain " * 400,
)


def language_tags(processor: Any) -> tuple[str, ...]:
    """The languages that a processor has `language_ids` for, in their order; none if it reads all languages alike."""
    if isinstance(processor, RidgeProcessor):
        return tuple(processor.known_languages)
    if isinstance(processor, MlaProcessor):
        return (processor.native_language, *processor.languages)
    if isinstance(processor, DualEncoderProcessor):
        return ()
    return tuple(normalize_languages(list(getattr(processor, "languages", ()))))


def sample_languages(processor: Any, count: int) -> list[str]:
    """Languages that a processor reads, for this many texts, all of them in turn."""
    tags = language_tags(processor) or (getattr(processor, "native_language", None) or "en", "de")
    return list(islice(cycle(tags), count))
