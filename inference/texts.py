"""Texts that a model reads: warnings of texts that it cuts, or whose language it does not state (a model of one
vocabulary embeds any text, and only its card says which languages it learned); and sample texts for exports."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle, islice
from typing import Any

from huggingface_hub import ModelCard

from ..processing.images import SHOWN
from ..processing.processing_dual_encoder import call_tokenizer, cut_texts
from ..processing.processing_mla import MlaProcessor
from ..processing.processing_per_language import counting_cut_texts
from ..processing.processing_ridge import RidgeProcessor
from ..utils.errors import BabelensError
from ..utils.files import optional_file
from ..utils.languages import UNDETERMINED, normalize_language, normalize_languages

logger = logging.getLogger(__name__)

_ANY = "multilingual"  # on cards, instead of a list
_TOKENIZED_AT_ONCE = 4096  # texts; a tokenizer returns more than the tokens, in several times their memory


@contextmanager
def reporting_cut_texts(texts: Sequence[str]) -> Iterator[None]:
    """Logs how many of these texts are cut inside the block, unless a caller counts cut texts itself."""
    if cut_texts.get() is not None:
        yield
        return
    with counting_cut_texts() as cut:
        yield
    if found := [index for index, text in enumerate(texts) if text in cut]:
        first = texts[found[0]]
        logger.warning(
            "%d of %d texts are longer than the %s that the model reads, and were cut; the first is text %d, %r",
            *(len(found), len(texts), cut[first], found[0], f"{first[:SHOWN]}…"),
        )


def default_language(processor: Any) -> str:
    """The tag of texts without a language, also for processors of other packages, which read none."""
    return getattr(processor, "default_language", UNDETERMINED)


def token_counts(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text."""
    counts: list[int] = []
    for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
        part = list(texts[start : start + _TOKENIZED_AT_ONCE])
        counts += map(len, call_tokenizer(tokenizer, part, verbose=False)["input_ids"])
    return counts


def known_languages(processor: Any) -> list[str] | None:
    """The languages of a processor that refuses others, the native one first; None for one that takes any."""
    languages, native = getattr(processor, "languages", None), getattr(processor, "native_language", None)
    return None if languages is None else normalize_languages([*([native] if native else []), *languages])


def languages_of(processor: Any, model: str) -> tuple[list[str], bool]:
    """The languages of a processor that refuses others, or else of the model's card, and whether it takes others."""
    if (known := known_languages(processor)) is not None:
        return known, False
    return [tag for tag in _card_languages(model) if tag != _ANY], True


def _card_languages(model: str) -> list[str]:
    """The languages that the card of a model names, or `_ANY`, where the card is on this machine."""
    try:
        file = optional_file(model, "README.md", {"local_files_only": True})
        named = None if file is None else ModelCard.load(file).data.get("language")
        tags = [named] if isinstance(named, str) else [str(tag) for tag in named or []]
        return list(dict.fromkeys(tag if tag == _ANY else normalize_language(tag) for tag in tags))
    except (BabelensError, OSError, ValueError) as error:
        logger.warning("the card of %s cannot be read: %s", model, error)
        return []


def warn_of_language(language: str, stated: list[str], takes_any: bool, model: str) -> None:
    """Warns once for each model and language that the model does not state; the arguments are from `languages_of`."""
    primary = [tag.partition("-")[0] for tag in stated]
    if takes_any and language != UNDETERMINED and language.partition("-")[0] not in primary:
        _warn(language, ", ".join(stated), model)


@cache  # and so once
def _warn(language: str, stated: str, model: str) -> None:
    if stated:
        logger.warning("%s states that it reads %s, and not %s: results may mean nothing", model, stated, language)
    elif _ANY not in _card_languages(model):
        logger.warning("%s states no languages: results for %s may mean nothing", model, language)


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
    return tuple(normalize_languages(list(getattr(processor, "languages", ()))))


def sample_languages(processor: Any, count: int) -> list[str]:
    """Languages that a processor reads, for this many texts, all of them in turn."""
    tags = language_tags(processor) or (getattr(processor, "native_language", None) or "en", "de")
    return list(islice(cycle(tags), count))
