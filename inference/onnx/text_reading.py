"""States how a processor reads texts, so that `query_texts` can read them without the processor.

The reading is stated from what the processor is: a tokenizer of the package tokenizers with a prompt, a largest length
and a way of padding, or two such tokenizers that are chosen by language. It is then tried on texts in many scripts; a
reading that gives other inputs than the processor for any of them is not used.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from ...configuration.errors import BabelensError
from ...configuration.languages import normalize_languages
from ...processing.processing_dual_encoder import DualEncoderProcessor
from ...processing.processing_mla import MlaProcessor
from ...processing.processing_mla_student import MlaStudentProcessor
from ...processing.processing_ridge import RidgeProcessor
from ...processing.text_inputs import counting_cut_texts
from ..embedder import Embedder
from .graph_folder import TextReading, TokenizerSettings
from .query_texts import TextReader

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


class NotExpressible(BabelensError):
    """Why the reading of a processor cannot be stated."""


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


def text_reading(embedder: Embedder, folder: Path, names: Sequence[str]) -> TextReading:
    """States how the processor of an embedder reads texts.

    Args:
        embedder: the embedder.
        folder: a folder in which the processor was saved.
        names: the inputs of the text tower.

    Raises:
        NotExpressible: if it cannot be stated, or reads a text otherwise.
    """
    processor = embedder.processor
    if isinstance(processor, RidgeProcessor):
        raise NotExpressible(f"{type(processor).__name__} reads characters beside the pieces of tokenizers")
    if isinstance(processor, MlaStudentProcessor) and not processor.one_tokenizer:
        reading = _of_two_readers(processor, folder)
    elif isinstance(processor, MlaProcessor):
        reading = _of_mla(processor, folder)
    elif hasattr(getattr(processor, "tokenizer", None), "backend_tokenizer"):
        reading = _of_one_tokenizer(embedder, folder)
    else:
        raise NotExpressible(f"{type(processor).__name__} reads words and not the pieces of a tokenizer")
    _check(embedder, reading, folder, names)
    return reading


def _of_one_tokenizer(embedder: Embedder, folder: Path) -> TextReading:
    """Of babelens' processors with one vocabulary, and of transformers' processors."""
    processor = embedder.processor
    made = sample_inputs(embedder, [TEXTS[-1]])["input_ids"]  # it is cut, so that its length is the largest
    short = sample_inputs(embedder, ["x"])["input_ids"]
    own = _settings(
        processor, "tokenizer", folder, max_length=made.shape[1], prompt=getattr(processor, "text_prompt", "")
    )
    padded = short.shape[1] if short.shape[1] == made.shape[1] else None
    return TextReading((own,), padded_length=padded, padding_side=processor.tokenizer.padding_side)


def _of_mla(processor: MlaProcessor, folder: Path) -> TextReading:
    length = processor.max_text_length
    return TextReading(
        tuple(
            _settings(processor, name, folder, max_length=length) for name in ("tokenizer", "multilingual_tokenizer")
        ),
        languages=language_tags(processor),
        padded_length=length if processor.pad_to_max_length else None,
        padding_side=processor.tokenizer.padding_side,
    )


def _of_two_readers(processor: MlaStudentProcessor, folder: Path) -> TextReading:
    """Of a student whose native model reads the native texts itself."""
    longest = processor.max_native_length
    native = _settings(
        processor,
        "native_tokenizer",
        folder,
        max_length=longest,
        padded_length=longest if processor.pad_native else None,
    )
    own = _settings(processor, "tokenizer", folder, max_length=processor.max_text_length, prompt=processor.text_prompt)
    return TextReading((native, own), native_language=processor.native_language)


def _settings(processor: Any, name: str, folder: Path, **settings: Any) -> TokenizerSettings:
    tokenizer = getattr(processor, name)
    file = "tokenizer.json" if name == "tokenizer" else f"{name}/tokenizer.json"  # as processors save them
    if not (folder / file).is_file():
        raise NotExpressible(f"{type(tokenizer).__name__} has no tokenizer.json")
    return TokenizerSettings(file, padding_id=tokenizer.pad_token_id, cut_side=tokenizer.truncation_side, **settings)


def _check(embedder: Embedder, reading: TextReading, folder: Path, names: Sequence[str]) -> None:
    """Compares the inputs of all texts in all languages, together and one by one."""
    reader = TextReader(folder, reading, names)
    languages = sample_languages(embedder.processor, len(TEXTS))
    for shift in range(len(set(languages))):  # so that each text is read in each language
        shifted = languages[shift:] + languages[:shift]
        batches = [(list(TEXTS), shifted), *(([text], [tag]) for text, tag in zip(TEXTS, shifted, strict=True))]
        for texts, tags in batches:
            with counting_cut_texts():
                expected, found = embedder.process_texts(texts, tags), reader(texts, tags)
            for name in names:
                if not np.array_equal(np.asarray(expected[name]), found[name]):
                    shown = texts[0][:40] if len(texts) == 1 else "several texts"
                    raise NotExpressible(
                        f"{type(embedder.processor).__name__} gives other {name} than its tokenizer.json of {shown!r}"
                    )
