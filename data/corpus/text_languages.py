"""Recognizes the language of texts: by CLDR's scripts; by character n-grams of CLDR's names of emoji if the caller has
them (`LanguageProfiles`), and otherwise by the most frequent words of ten languages."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from ...utils.errors import CorpusError
from ...utils.language_matching import language_and_script

SAMPLE = 300  # number of cells that are examined

_FLAGS = {
    *("yes", "no", "true", "false", "y", "n", "x", "na", "n/a", "none", "null", "nan", "ok", "-", "?"),
    *("ja", "nein", "oui", "non", "si", "da", "так", "ні", "нет"),
}
_ADDRESS = re.compile(r"\w+://\S+|www\.\S+|\S+@\S+|\S*[/\\]\S*\.\w{2,5}|\S+\.(?:jpe?g|png|gif|webp|txt|html?|pdf)")
_LETTER = regex.compile(r"\p{L}")
_WITHOUT_SPACES = regex.compile(
    r"[\p{Script=Hani}\p{Script=Hira}\p{Script=Kana}\p{Script=Thai}\p{Script=Laoo}\p{Script=Khmr}\p{Script=Mymr}"
    r"\p{Script=Tibt}]"
)
_JOINT = {
    **dict.fromkeys(("Hans", "Hant", "Hanb"), ("Hani", "Bopo")),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}

_WITHOUT_RELATIVES, _NEAR_ENGLISH = ("en", "de", "fr"), ("pcm", "sco", "jam", "tpi")
_WORDS_OF_A_SENTENCE, _LETTERS_OF_A_SENTENCE = 2.5, 6
_FEWEST_PAIRS = 5  # minimum for equal pairs to be meaningful
_FEWEST_LETTERS = 20  # minimum for n-grams to be meaningful
# Similarity to the profile of the tag, relative to the most similar profile.
_CONTRADICTS, _CLEAR = 0.5, 0.25
_FREQUENT, _RARE = 0.12, 0.4  # share of frequent words of a language; the tag's share relative to it

# Frequent words that few other languages have. In a thousand captions they are 15 to 30 % in the language itself, less
# than 7 % in the 190 others; but 12 to 14 % in close relatives (Asturian, Afrikaans, Silesian, Bulgarian).
FREQUENT_WORDS = {
    "en": "the of and with on is are to from for at by an this that",
    "de": "der die das und mit auf ein eine einen einem ist nicht von für im den dem",
    "fr": "le les des et dans avec une est du pour qui au",
    "es": "el los las una con y que en del para por",
    "it": "il gli una con di che è della per sono nel un",
    "pt": "o os uma com e que em do da para um",
    "nl": "het een van en met op de zijn voor aan",
    "pl": "i w na z do się jest nie że przez",
    "ru": "и в на с не что по это из для",
    "uk": "і в у на з не що до та це для",
}

# ---- Profiles of languages ----

VERSION = 2  # of `counts_of`
ROWS = 2**16  # number of hash buckets of n-grams
_CHARACTERS = 512  # of a text that are counted
_SIZES, _FACTOR = (2, 3, 4), 1_000_003

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LanguageProfiles:
    """Character n-grams of languages: the weight of each [rows], and weighted counts [languages, rows] of unit length.
    For captions in 200 languages, 20 of a thousand are enough to find a language that has a profile."""

    tags: list[str]
    importance: Array
    profiles: Array

    @classmethod
    def of(cls, tags: list[str], counts: Array) -> "LanguageProfiles":
        """Makes the profiles of the languages that have texts, from `counts_of` these [languages, rows]."""
        some = np.flatnonzero(counts.any(1))
        tags, counts = [tags[row] for row in some], counts[some].astype(np.float32)
        importance = np.log(len(tags) / np.maximum((counts > 0).sum(0), 1)).astype(np.float32)
        return cls(tags, importance, _unit(counts * importance))

    def likeness(self, texts: Sequence[str]) -> dict[str, float]:
        """Returns the cosine of texts with each language: 0.5 to 0.8 with their language for 300 sentences."""
        cosines = self.profiles @ _unit(counts_of(texts[:SAMPLE]) * self.importance)
        return dict(zip(self.tags, cosines.tolist(), strict=True))


def counts_of(texts: Sequence[str]) -> Array:
    """Returns damped counts of hashed n-grams in texts [rows]; n-grams have spaces at their ends only."""
    words = (word for text in texts for word in unicodedata.normalize("NFKC", text[:_CHARACTERS]).lower().split())
    characters = np.array([ord(each) for each in " ".join(["", *words, ""])], np.uint64)
    counts = np.zeros(ROWS, np.int64)
    for size in _SIZES:
        if size <= len(characters):
            windows = np.lib.stride_tricks.sliding_window_view(characters, size)
            windows = windows[(windows[:, 1:-1] != ord(" ")).all(1)]
            hashed = np.full(len(windows), size, np.uint64)
            for offset in range(size):
                hashed = (hashed * np.uint64(_FACTOR) + windows[:, offset]) % np.uint64(2**31 - 1)
            counts += np.bincount((hashed % np.uint64(ROWS)).astype(np.int64), minlength=ROWS)
    return np.log1p(counts).astype(np.float32)


def _unit(vectors: Array) -> Array:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))


# ---- Texts ----


def letters_in(texts: Sequence[str]) -> int:
    return sum(len(_LETTER.findall(text)) for text in texts)


def is_text(cell: Any) -> bool:
    """Returns whether a cell is a word or a text, not a number, a code, a flag, a file name or an address."""
    if not isinstance(cell, str) or (text := cell.strip()).lower() in _FLAGS or _ADDRESS.fullmatch(text):
        return False
    # Indic scripts write vowels as marks.
    if 2 * letters_in([text]) < sum(not each.isspace() for each in text) and not regex.search(r"\p{L}\p{M}", text):
        return False
    return any(_LETTER.search(word) and not any(map(str.isdigit, word)) for word in text.split())


def fits_script(tag: str, texts: Sequence[str]) -> bool | None:
    """Returns whether the letters of texts are in a script of a language: most of them for Latin, a tenth for any
    other, because brand names are Latin; None if CLDR knows no script."""
    if not (scripts := scripts_of(tag)):
        return None
    found = _LETTER.findall(" ".join(texts))
    letters = regex.compile("".join(["[", *(rf"\p{{scx={script}}}" for script in scripts), "]"]))
    return sum(1 for letter in found if letters.match(letter)) >= (0.5 if "Latn" in scripts else 0.1) * len(found)


@cache
def scripts_of(tag: str) -> tuple[str, ...]:
    """Returns the scripts of a language, as Unicode names them: the one in its tag, or all that CLDR knows."""
    from langcodes import Language
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    primary = tag.partition("-")[0]
    names = {primary, MACROLANGUAGES.get(primary, primary)}
    likely = (each.split("-") for each in LIKELY_SUBTAGS.values())
    known = {Language.get(tag).script or ""} - {""} or {script for name, script, *_ in likely if name in names}
    scripts = {each for script in known for each in _JOINT.get(script, (script,))}
    return tuple(sorted(filter(_is_unicode_script, scripts)))


def _is_unicode_script(script: str) -> bool:
    try:
        return bool(regex.compile(rf"\p{{scx={script}}}"))
    except regex.error:
        return False


def share_of_frequent_words(texts: Sequence[str], language: str) -> float:
    """Returns the share of words that are among the most frequent of a language. Each word counts at most a thirtieth:
    a single one may also be a word of another language."""
    words = Counter(word for text in texts for word in regex.findall(r"\p{L}+", text.lower()))
    most = words.total() / 30
    return sum(min(words[word], most) for word in FREQUENT_WORDS[language].split()) / max(1, words.total())


def most_frequent_words(texts: Sequence[str]) -> str | None:
    share, nearest = max((share_of_frequent_words(texts, language), language) for language in FREQUENT_WORDS)
    return nearest if share >= _FREQUENT else None


def resembles_another(tag: str, texts: Sequence[str], profiles: LanguageProfiles | None = None) -> str | None:
    """Returns another language that texts clearly resemble, by `profiles`, or else by frequent words."""
    if (found := _likeness(tag, texts, profiles)) is not None:
        own, most, nearest = found
        return nearest if own < _CONTRADICTS * most and most >= _CLEAR else None
    primary, other = language_and_script(tag)[0], most_frequent_words(texts)
    if other is None or primary in (other, *_NEAR_ENGLISH):
        return None
    if primary in FREQUENT_WORDS:
        share, most = (share_of_frequent_words(texts, each) for each in (primary, other))
        return other if share < _RARE * most else None
    return other if other in _WITHOUT_RELATIVES else None


def _likeness(tag: str, texts: Sequence[str], profiles: LanguageProfiles | None) -> tuple[float, float, str] | None:
    """Returns the cosine of texts with the profiles of a language, in any script or of its macrolanguage, and the
    greatest cosine and its language; None without such a profile, or for too few letters."""
    if profiles is None or letters_in(texts) < _FEWEST_LETTERS:
        return None
    primary, cosines = language_and_script(tag)[0], profiles.likeness(texts)
    own = [cosine for each, cosine in cosines.items() if each == tag or language_and_script(each)[0] == primary]
    return (max(own), *max((cosine, each) for each, cosine in cosines.items())) if own else None


def _similarity(tag: str, texts: Sequence[str], profiles: LanguageProfiles | None) -> float:
    """Returns how similar texts are to a language; at 1, they are clearly in it."""
    if (found := _likeness(tag, texts, profiles)) is not None:
        return found[0] / _CLEAR
    return share_of_frequent_words(texts, tag) / _FREQUENT if tag in FREQUENT_WORDS else 0.0


def are_sentences(texts: Sequence[str]) -> bool:
    """Returns whether cells have several words on average, and few of them repeat."""
    if 2 * len(set(texts)) < len(texts):
        return False
    letters = letters_in(texts)
    if 2 * sum(len(_WITHOUT_SPACES.findall(text)) for text in texts) > letters:
        return letters >= _LETTERS_OF_A_SENTENCE * len(texts)
    return sum(len(text.split()) for text in texts) >= _WORDS_OF_A_SENTENCE * len(texts)


def check_pairs(
    texts: Sequence[str],
    natives: Sequence[str],
    language: str,
    native: str,
    profiles: LanguageProfiles | None = None,
) -> None:
    step = max(1, len(texts) // SAMPLE)
    some, others = texts[::step][:SAMPLE], natives[::step][:SAMPLE]
    columns = f"the columns {native!r} and {language!r}"
    same = sum(a.strip().casefold() == b.strip().casefold() for a, b in zip(texts, natives, strict=True))
    if 2 * same > len(texts) >= _FEWEST_PAIRS:
        raise CorpusError(f"{columns} hold the same texts in {same:,} of {len(texts):,} rows: name the right columns")
    crossed = _is_foreign(native, others) and not _is_foreign(native, some) and not _is_foreign(language, others)
    likeness, other = (_similarity(native, each, profiles) for each in (some, others))
    if crossed or (likeness >= 1 and likeness > other):
        raise CorpusError(
            f"{columns} seem to be swapped, or {language!r} is also in {native}: {language!r} has {_shown(some)}, and "
            f"{native!r} has {_shown(others)}. Correct the header, or name the columns"
        )
    for tag, column in ((native, others), (language, some)):
        if _is_foreign(tag, column):
            raise CorpusError(
                f"the column {tag!r} has {_shown(column)}, which is not in the script of {tag}: correct the header, "
                f"or add the script to the tag, such as {tag.partition('-')[0]}-Latn"
            )
        if nearest := resembles_another(tag, column, profiles):
            raise CorpusError(
                f"the column {tag!r} looks like {nearest} and not like {tag}, such as {_shown(column)}: correct the "
                "header, or name the columns"
            )


def _is_foreign(tag: str, texts: Sequence[str]) -> bool:
    return letters_in(texts) >= _FEWEST_LETTERS and fits_script(tag, texts) is False


def _shown(texts: Sequence[str]) -> str:
    return f"{next((text for text in texts if text.strip()), '')[:40]!r}"
