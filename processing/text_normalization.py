"""Unifies the spelling of texts that mean the same. `same_letters` gives each letter its standard code point in the
language, for tokenizers trained on ordinary texts. `folded` also removes case, and marks and letters that writers
leave out or confuse, for n-grams and look-ups. A rule that would lose meaning in other languages applies only to some.
A text without a language (`und`) is folded by the rules that its letters identify.

Sources: Unicode's normalization forms, SpecialCasing, "Do not emit" and CLDR's letters of each language; for Arabic
script the letters that Lucene's analyzers fold; for Khmer and Myanmar the orders of Unicode's core specification.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from ..utils.errors import ModelFolderError

# The version that new folders state. A folder without one has version 0: texts are not normalized.
NORMALIZATION = 1

_LIKE_APOSTROPHES = "’‘‚‛ʼʻʽʾʿ`´′‵ʹꞌꞋ՚׳"
_SAME = {
    **dict.fromkeys(_LIKE_APOSTROPHES, "'"),
    **dict.fromkeys("“”„‟«»‹›〝〞״「」『』", '"'),
    **dict.fromkeys("‐‒–—―−־֊᠆⁃", "-"),
    **dict.fromkeys("。।۔։።٫", "."),
    **dict.fromkeys("、،፣٬", ","),
    **dict.fromkeys("؛፤", ";"),
    **dict.fromkeys("՛՜՞", ""),  # inside of Armenian words
    **dict.fromkeys("•∙⋅‧ᆞ", "·"),
    **dict.fromkeys("⁄∕", "/"),
    "؟": "?",
    "٪": "%",
    "፡": " ",
    "〜": "~",
    "\u0329": "\u0323",
    "\u0332": "\u0331",
    **dict(zip("ǝƎșțȘȚ", "əƏşţŞŢ", strict=True)),
    "װ": "וו",
    "ױ": "וי",
    "ײ": "יי",
    "ـ": "",
    "ൌ": "ൗ",
    # Persian's letters, which most languages in Arabic script have.
    **dict.fromkeys("كڪ", "ک"),
    **dict.fromkeys("يى", "ی"),
    **dict.fromkeys("ہھە", "ه"),
}
_AS_ARABIC = {"ک": "ك", "ڪ": "ك", "ی": "ي", "ى": "ى"}
_AS_URDU = {"ه": "ہ", "ە": "ہ", "ھ": "ھ"}
_AS_UYGHUR = {"ک": "ك", "ی": "ى", "ي": "ي", "ه": "ە", "ہ": "ھ"}
# Letters of African languages, typed as the Greek ones that look like them, with the accents of tones.
_AS_AFRICAN = {
    **dict(zip("εγιυΕΓΙΥ", "ɛɣɩʋƐƔƖƲ", strict=True)),
    **dict(zip("έίύΈ", ("ɛ\u0301", "ɩ\u0301", "ʋ\u0301", "Ɛ\u0301"), strict=True)),
    **dict(zip("ὲὶὺῈ", ("ɛ\u0300", "ɩ\u0300", "ʋ\u0300", "Ɛ\u0300"), strict=True)),
}
_OKINA = dict.fromkeys("'" + _LIKE_APOSTROPHES, "ʻ")  # a letter, also at the beginning of a word
# By language: letters that differ from `_SAME`; letters that others are mapped to stay.
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "ar arb acm acq acw acx aeb afb ajp apc apd arq ars ary arz ayh ayl ayn ayp": _AS_ARABIC,
    "ur pnb pa skr ks hno": _AS_URDU,
    "ps pbt pbu pst": {"ي": "ي", "گ": "ګ"},
    "sd": {"ك": "ڪ", "ک": "ک", "ی": "ي", "ى": "ي", "ھ": "ھ"},
    "ckb ku kmr sdh": {"ة": "ە"},
    "ug kk kaz ky": _AS_UYGHUR,
    "ms zsm min ace bjn": {"ی": "ي", "ى": "ى", **dict.fromkeys("ڬګگ", "ݢ")},
    "ro mo": {"ş": "ș", "ţ": "ț", "Ş": "Ș", "Ţ": "Ț"},
    "haw to sm ty rap": _OKINA,
    "vi hr bs sr": {"ð": "đ", "Ð": "Đ"},
    "kab ak tw fat bm dyu ln dik din nus mos": _AS_AFRICAN,
    "ee fon kbp": {**_AS_AFRICAN, "đ": "ɖ", "ð": "ɖ", "Đ": "Ɖ", "Ð": "Ɖ"},
    "ha": {"ƴ": "'y", "Ƴ": "'Y"},
    "cv": {"ă": "ӑ", "ĕ": "ӗ", "ç": "ҫ", "ÿ": "ӳ", "Ă": "Ӑ", "Ĕ": "Ӗ", "Ç": "Ҫ", "Ÿ": "Ӳ"},
    "os": {"æ": "ӕ", "Æ": "Ӕ"},
    "ce inh av ady kbd lez lbe dar tab": {"ӏ": "Ӏ"},
    "hy": {":": "."},
    "ab": {"ҕ": "ӷ", "Ҕ": "Ӷ", "ҧ": "ԥ", "Ҧ": "Ԥ"},
}
# By language: sequences that decomposed texts write differently.
_PLACES: Mapping[str, tuple[str, str]] = {
    "vi": ("(o(?=.[ae])|u(?=.y))([\u0300\u0301\u0303\u0309\u0323])([aey])", r"\1\3\2"),  # hòa, hoà
    "ca": ("(?<=l)[-.·](?=l)", "·"),
    "ce inh av ady kbd lez lbe dar tab": ("(?<=[а-яё])[1il|і]|[1il|і](?=[а-яё])", "Ӏ"),
    "ckb ku kmr sdh": ("ه\u200c", "ە"),
}


def _ethiopic(*series: tuple[str, str]) -> dict[str, str]:
    return {chr(ord(other) + n): chr(ord(kept) + n) for other, kept in series for n in range(7)}


_TIGRINYA = _ethiopic(("ሠ", "ሰ"), ("ፀ", "ጸ"))
_AMHARIC = {
    **_TIGRINYA,
    **_ethiopic(("ሐ", "ሀ"), ("ኀ", "ሀ"), ("ዐ", "አ")),
    **dict.fromkeys("ሃሓኃ", "ሀ"),
    **dict.fromkeys("ኣዓ", "አ"),
}
_LOOSE_IN_ALL = {"ٱ": "ا", "ة": "ه", "ۃ": "ه", "ء": "", "œ": "oe", "ँ": "ं", "ә": "ə"}
# By language: letters that writers confuse, in lower case.
_LOOSE: Mapping[str, Mapping[str, str]] = {
    "ar arb acm acq acw acx aeb afb ajp apc apd arq ars ary arz ayh ayl ayn ayp": {"ى": "ي"},
    "ur pnb pa skr ks hno": dict.fromkeys("ةۃ", "ہ"),
    "am": _AMHARIC,
    "ti": _TIGRINYA,
    "fr la": {"æ": "ae"},
    "ru tt ba cv udm ce": {"ё": "е"},
    "und": {**_AMHARIC, "ё": "е", "ı": "i", "ð": "đ", "æ": "ae"},
}
_WITH_HAMZA = "ckb ku kmr sdh ug kk kaz ky ps pbt pbu pst ks"  # where hamza distinguishes letters
_DOTLESS = "tr az azj crh gag"  # where I is the capital of ı

SPACING_ACCENT = re.compile("[´΄᾽᾿]")  # as an apostrophe, which NFKC reads as an accent after a space
UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_DIGIT = re.compile(r"(?![0-9])\d")
LATIN_I = re.compile(r"(?<=[а-яґ])i|(?<![a-z])i(?=\s*[а-яґ])", re.IGNORECASE)  # in Cyrillic words
BEFORE_REPETITION = re.compile(r"\s+(?=[ๆໆៗ])")  # where some write a space
# Marks of one letter, in the order of Unicode: Thai, Lao, Myanmar, Khmer with letters below.
_MARKS = re.compile(
    "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]{2,}|[\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece]{2,}"
    "|[\u102b-\u1038\u103a-\u103e]{2,}|(?:[\u17b6-\u17d1]|\u17d2[\u1780-\u17a2]){2,}"
)
_FIRST_MARKS = "\u103b\u103c\u103d\u103e\u1031\u102d\u102e\u1032\u102f\u1030\u102b\u102c\u1036\u1037\u103a\u17c9\u17ca"


def _in_two_parts(block: int) -> dict[str, str]:
    """Vowels of Devanagari or Gujarati, written as A, AA, or the sign of AA, with another sign."""
    a, aa, sign_of_aa = (chr(block + place) for place in (0x05, 0x06, 0x3E))
    found = {a + chr(block + sign): chr(block + sign - 0x38) for sign in range(0x45, 0x4D)}
    for sign in range(0x45, 0x49):
        other, letter = chr(block + sign), chr(block + sign + 4 - 0x38)
        found |= {sign_of_aa + other: chr(block + sign + 4), aa + other: letter, a + sign_of_aa + other: letter}
    return found


SEQUENCES = {
    **{f"{letter}\u0d4d\u200d": chillu for letter, chillu in zip("ണനരലളക", "ൺൻർൽൾൿ", strict=True)},
    "ൻ\u0d4dറ": "ന\u0d4dറ",
    "ൻറ": "ന\u0d4dറ",
    "ত\u09cd\u200d": "ৎ",
    "เเ": "แ",
    "ເເ": "ແ",
    "ی\u0654": "ئ",
    "ه\u0654": "ۀ",
    "\u0e4d\u0e32": "ำ",
    "\u0ecd\u0eb2": "ຳ",
    "\u17d2ដ": "\u17d2ត",
    "\u17b8\u17c1": "ើ",
    "\u17b6\u17c1": "ោ",
    # Digits for the letters that look like them, and one letter for another.
    **{
        f"{digit}{chr(mark)}": f"{letter}{chr(mark)}"
        for digit, letter in ("0ဝ", "7ရ")
        for mark in range(0x102B, 0x103F)
    },
    **{f"ဥ{mark}": f"ဉ{mark}" for mark in "\u102c\u103a"},
    "अ\u200dॅ": "ॲ",
    "ଯ\u0b3c": "ୟ",
    "ஶ்ரீ": "ஸ்ரீ",
    "ෙෙ": "ෛ",
    **dict(zip(("ੲਿ", "ੲੀ", "ੳੁ", "ੳੂ", "ੲੇ", "ਅੈ"), "ਇਈਉਊਏਐ", strict=True)),
    **dict(zip(("අා", "අැ", "අෑ", "එ්", "එෙ", "ඔ්", "ඔෟ", "උෟ"), "ආඇඈඒඓඕඖඌ", strict=True)),
    **_in_two_parts(0x0900),
    **_in_two_parts(0x0A80),
    "अॅ": "ॲ",
    "एे": "ऐ",
    # A vowel written as the letter A with a vowel sign, at the same places in all Indic blocks.
    **{
        chr(block + 0x05) + chr(block + sign): chr(block + vowel)
        for block in range(0x0900, 0x0D80, 0x80)
        for sign, vowel in ((0x3E, 0x06), (0x4B, 0x13), (0x4C, 0x14))
    },
}
_SEQUENCE = re.compile("|".join(sorted(SEQUENCES, key=len, reverse=True)))
# Removed from decomposed texts: vowel signs of Arabic and Hebrew, joiners, accents of Greek, stress in Cyrillic, the
# dot of a small i under an accent, and nuktas that few writers of Hindi set. U+0345 and ι are one letter in two cases,
# so the accents of Greek are compared with their case.
OPTIONAL = (
    "[\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u200c\u200d]|(?<=[α-ω])(?-i:[\u0300\u0301\u0304\u0306\u0308\u0313\u0314\u0342\u0345]+)|(?<=[аеиоуыэюяіє])\u0301"
    "|(?<=[еі]\u0308)\u0301|(?<=[ij])\u0307|(?<=[ij]\u0328)\u0307|(?<=[कखगजफर])\u093c"
)
_HAMZA = "|[\u0653-\u065f]"
NASAL = re.compile("[ङञणनम]\u094d(?=[क-घच-झट-ढत-धप-भ])")  # हिन्दी, हिंदी


class _Rules(NamedTuple):
    letters: dict[int, str]
    place: tuple[re.Pattern[str], str] | None
    optional: re.Pattern[str]
    loose: dict[int, str]
    dotless: bool


def checked_normalization(version: int) -> int:
    if version not in (0, NORMALIZATION):
        raise ModelFolderError(f"texts are normalized by version {version}, which only a later babelens supports")
    return version


def spelling_of(language: str) -> str:
    """Returns a key that languages with the same spelling rules share: a language with its own rules, or ""."""
    primary = language.partition("-")[0]
    named = (_WITH_HAMZA, _DOTLESS, *_LETTERS, *_PLACES, *_LOOSE)
    return primary if any(primary in several.split() for several in named) else ""


@cache
def _rules(language: str) -> _Rules:
    own = spelling_of(language)

    def of(tables: Mapping[str, Any]) -> Any:
        return next((table for several, table in tables.items() if own in several.split()), None)

    given, place = of(_LETTERS) or {}, of(_PLACES)
    letters = {**_SAME, **given, **{letter: letter for letter in given.values() if len(letter) == 1}}
    loose = str.maketrans({**letters, **_LOOSE_IN_ALL, **(of(_LOOSE) or {})})
    place = place and (re.compile(place[0], re.IGNORECASE), place[1])
    optional = re.compile(OPTIONAL if own in _WITH_HAMZA.split() else OPTIONAL + _HAMZA, re.IGNORECASE)
    return _Rules(str.maketrans(letters), place, optional, loose, own in _DOTLESS.split())


# Many languages are learned from the same translations, and a glossary reads the texts that a map has read.
@lru_cache(1 << 14)
def same_letters(text: str, language: str) -> str:
    """Returns a text with the standard code points of its letters in a language (or `und`), in NFKC.

    Examples:
        >>> same_letters("М\u02bcяч", "uk"), same_letters("كتاب", "fa") == "کتاب"
        ("М'яч", True)
    """
    rules = _rules(language)
    if text.isascii() and text.isprintable() and rules.place is None:
        return text.translate(rules.letters)
    text = UNSEEN.sub("", SPACING_ACCENT.sub("'", text.replace("፡፡", "።")))
    text = unicodedata.normalize("NFKC", text)
    text = _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text.translate(rules.letters))
    text = _MARKS.sub(_sorted_marks, unicodedata.normalize("NFC", text))
    text = _SEQUENCE.sub(lambda found: SEQUENCES[found[0]], BEFORE_REPETITION.sub("", text))
    text = LATIN_I.sub("і", text)
    if rules.place is not None:
        pattern, replacement = rules.place
        text = unicodedata.normalize("NFC", pattern.sub(replacement, unicodedata.normalize("NFD", text)))
    return text


@lru_cache(1 << 14)
def folded(text: str, language: str) -> str:
    """Returns the common spelling of all texts that mean the same in a language (or `und`); idempotent.

    Examples:
        >>> folded("IŞIK", "tr"), folded("ΑΥΤΟΚΊΝΗΤΟ", "el"), folded("آلأرض", "ar")
        ('ışık', 'αυτοκινητο', 'الارض')
    """
    rules = _rules(language)
    text = same_letters(text, language)
    if rules.dotless:
        text = text.replace("İ", "i").replace("I", "ı")
    if text.isascii():
        return text.lower()
    text = rules.optional.sub("", unicodedata.normalize("NFD", text)).casefold()
    text = unicodedata.normalize("NFC", text).translate(rules.loose)
    return unicodedata.normalize("NFC", NASAL.sub("ं", text).replace("եւ", "եվ"))


def _sorted_marks(found: re.Match[str]) -> str:
    return "".join(sorted(re.findall("\u17d2?.", found[0]), key=_order_of_mark))


def _order_of_mark(mark: str) -> tuple[int, int]:
    if len(mark) > 1:  # letters below come first, and the last of them is ro
        return -1, mark[1] == "រ"
    return (_FIRST_MARKS + mark).index(mark), ord(mark)
