"""Texts into words, language by language, for word-level methods (SMALR: Burns et al. 2020, section 3).

Words are folded as Unicode folds identifiers (NFKC_Casefold: compatibility forms, case, invisible characters), found,
and kept where they have a letter or a digit:

    most languages       the default word boundaries of Unicode (UAX #29), as `regex` implements them. Words with an
                         apostrophe are cut as Moses' tokenizer cuts them: man 's, l' homme.
    zh yue ja            ICU's word boundaries, by `icu4py`: scripts that do not separate words, cut by
    th lo km my          its dictionaries.
    ko                   MeCab with mecab-ko-dic, by `fugashi`: particles and endings, which Korean writes at the end
                         of a word, become words of their own (자동차가 -> 자동차 가), spelled as they stand there.
    ar                   UAX #29 after light10's normalisation (Larkey, Ballesteros and Connell 2007: no vowel signs
                         or tatweel, one alef, yeh and heh). Conjunctions and prepositions are cut off together with
                         an article, and the article from its noun (وبالسيارة -> و ب ال سياره); a lone و is not,
                         because it begins as many nouns as it joins. There is no morphological analysis beyond that.

Of the segmenters that pip installs, these have wheels for every current Python and start in milliseconds: `icu4py`
(MIT, 16 MB with all of ICU's data), `fugashi` (MIT, 1 MB) and `python-mecab-ko-dic` (Apache-2.0, 35 MB, mapped into
memory; the dictionary is of 2018). Passed over: PyICU has no wheels; jieba's last release is
of 2020; `python-mecab-ko` has none for Python 3.13 and later, and cuts 1877 of 1882 Korean captions as `fugashi` does
with its dictionary; `kiwipiepy` needs four seconds and 500 MB to start, and takes endings apart into letters that no
word vectors know; MeCab's dictionaries for Japanese (50 to 250 MB) leave as many words unknown as ICU does;
`camel-tools`, for Arabic, needs models that are fetched from elsewhere. FastText's published vectors are of words cut
by Moses' rules, MeCab (Japanese), Stanford's segmenter (Chinese) and ICU (Grave et al. 2018).

The two segmenters are imported when a text of one of their languages is first read. Which words they find may change
with their version, and with it what a saved vocabulary knows.
"""

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

import regex

from ..configuration.errors import MissingExtraError
from ..configuration.languages import normalize_language

_ICU_LANGUAGES = {"zh", "yue", "ja", "th", "lo", "km", "my"}

_BOUNDARY = regex.compile(r"\b", regex.WORD | regex.V1)
_WORD = regex.compile(r"[\p{L}\p{N}]")
_INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
_CONTROL = regex.compile(r"\p{Cc}")
_ARABIC_SIGNS = regex.compile(r"[\u064B-\u0652\u0670\u0640]")
_ARABIC_LETTERS = str.maketrans("آأإٱىة", "اااايه")

_ELISION = regex.compile(r"(?<=\p{L}')(?=\p{L})", regex.V1)  # l' homme
# Where a word of a language is cut once more.
_CUTS = {
    "en": regex.compile(r"(?<=\p{L})(?='\p{L})", regex.V1),  # man 's
    **dict.fromkeys(("fr", "it", "ca", "ga"), _ELISION),
    # The article from two letters or more; with something before it from three: بالون is a balloon.
    "ar": regex.compile(
        r"(?<=^ال)(?=\w\w)"
        r"|(?<=^[وف])(?=(?:[بك]?ال|لل)\w{3})|(?<=^[وف]?[بك])(?=ال\w{3})|(?<=^(?:[وف]?[بك]|[وف])ال|^[وف]?لل)(?=\w{3})",
        regex.V1,
    ),
}


def split_words(text: str, language: str) -> list[str]:
    """The words of a text, folded; an empty list for a text without any.

    Raises:
        LanguageTagError: for an unknown language tag.
        MissingExtraError: for Chinese, Japanese, Korean, Thai, Lao, Khmer or Burmese without `babelens[segmenters]`.
    """
    primary = _primary(language)
    cut = _CUTS.get(primary)
    words = [word for word in _segmenter(primary)(_folded(text, primary)) if _WORD.search(word)]
    return [part for word in words for part in cut.split(word)] if cut else words


def fold(text: str, language: str) -> str:
    """A text as `split_words` spells it, uncut: so are words from elsewhere compared with a vocabulary's.

    Raises:
        LanguageTagError: for an unknown language tag.
    """
    return _folded(text, _primary(language))


@cache
def _primary(language: str) -> str:
    """`zh` of `zh-Hant`: scripts and regions are segmented alike."""
    return normalize_language(language).partition("-")[0]


def _folded(text: str, primary: str) -> str:
    if primary in ("tr", "az"):
        text = text.replace("İ", "i").replace("I", "ı")
    text = unicodedata.normalize("NFKC", text).casefold()
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    # NFKC takes the vowel "am" of Thai and Lao apart, and their dictionaries do not know it so.
    text = text.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3").replace("’", "'")
    if primary == "ar":
        text = _ARABIC_SIGNS.sub("", text).translate(_ARABIC_LETTERS)
    return _CONTROL.sub(" ", text)


def _segmenter(primary: str) -> Callable[[str], list[str]]:
    if primary in _ICU_LANGUAGES:
        return _icu_segmenter(primary)
    return _korean_segmenter() if primary == "ko" else _BOUNDARY.split


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
        raise _missing("ko", "fugashi and python-mecab-ko-dic") from error
    tagger: Any = GenericTagger(f'-r /dev/null -d "{mecab_ko_dic.dictionary_path}"')
    return lambda text: [word.surface for word in tagger(text)]


def _missing(primary: str, packages: str) -> MissingExtraError:
    return MissingExtraError(
        f"finding words in texts in {primary!r} needs {packages}: pip install babelens[segmenters]"
    )
