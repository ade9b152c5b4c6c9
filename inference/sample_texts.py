"""Texts in many scripts on which an exported model is compared with the model that it was made of, and the languages
in which a processor reads them."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from ..processing.processing_dual_encoder import DualEncoderProcessor
from ..processing.processing_mla import MlaProcessor
from ..processing.processing_ridge import RidgeProcessor
from ..processing.text_inputs import counting_cut_texts
from ..utils.languages import normalize_languages
from .embedder import Embedder

# Scripts with and without case, spaces and combining signs, written in both directions; texts that tokenizers treat in
# some special way; an empty one; and one that is longer than any model reads.
TEXTS = (
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
    """Returns the languages that a processor has `language_ids` for, in their order; none if texts in all languages
    are read alike."""
    if isinstance(processor, RidgeProcessor):
        return tuple(processor.known_languages)
    if isinstance(processor, MlaProcessor):
        return (processor.native_language, *processor.languages)
    if isinstance(processor, DualEncoderProcessor):
        return ()
    return tuple(normalize_languages(list(getattr(processor, "languages", ()))))


def sample_languages(processor: Any, count: int) -> list[str]:
    """Returns languages that a processor reads, for this many texts, all of them in turn."""
    tags = language_tags(processor) or (getattr(processor, "native_language", None) or "en", "de")
    return list(islice(cycle(tags), count))


def sample_inputs(embedder: Embedder, texts: Sequence[str]) -> dict[str, Any]:
    """Returns the inputs of texts, in all languages in turn, as the processor makes them."""
    with counting_cut_texts():
        return dict(embedder.process_texts(list(texts), sample_languages(embedder.processor, len(texts))))
