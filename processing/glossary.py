"""Translates texts word by word into the native language: encoders of captions read "man with skis on slope mountain
behind" almost as well as the full sentence."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise

import numpy as np

_APOSTROPHES = "'’ʻʼ`ꞌ-"
# Scripts that put no space between words: Thai and Lao, Burmese, Khmer, those of the Tai languages, Javanese and
# Balinese, Japanese and Chinese.
_JOINED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF), (0x1B00, 0x1B7F)),
    *((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xA980, 0xA9FF), (0xAA60, 0xAADF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)
_FIRST_JOINED, _A_JOINED = "\u0e00", "一"
_ALIKE = 0.5  # Dice coefficient of the n-grams of two words
_SAME_PART = 0.3  # weight of the letters that two words share at the end that the language rarely inflects
_UNKNOWN = 8  # cost of a character outside all pieces in a segmentation; a piece costs 1
LONGEST_PIECE = 12  # characters
_REMEMBERED = 10_000  # words
MOST_WORDS = 40  # which most encoders of captions read in full
_MOST_READ = 4096  # characters: more than forty words have, and more than the models read


@lru_cache(1 << 14)
def is_joined(character: str) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in _JOINED)


def words_of(text: str) -> list[str]:
    """Splits a text into words: runs of letters, marks, digits and inner apostrophes or hyphens, in lower case and
    NFKC. A run in a script without spaces is one word."""
    words: list[str] = []
    for run in unicodedata.normalize("NFKC", text).lower().split():
        if run.isalpha() and max(run) < _FIRST_JOINED:  # fast path for most words
            words.append(run)
            continue
        word = ""
        for character in run + " ":
            is_letter = unicodedata.category(character)[0] in "LMN"
            if is_letter or (character in _APOSTROPHES and word):
                if is_letter and word and is_joined(character) != is_joined(word[0]):
                    words.append(word)
                    word = ""
                word += character
            elif word:
                words.append(word)
                word = ""
    return [found for word in words if (found := word.rstrip(_APOSTROPHES))]


def first_words(text: str) -> list[str]:
    """Returns the words of a text, reading only the start of a long one."""
    return words_of(text[:_MOST_READ])


def is_word(word: str) -> bool:
    """Returns whether `words_of` can find a word, or a piece of one in a script without spaces: `motokā`, not `fire
    engine`."""
    if word.isascii() and word.isalpha() and word.islower():  # fast path for most words
        return True
    if words_of(word) == [word]:
        return not is_joined(word[0]) or len(word) <= LONGEST_PIECE
    joined = f"{_A_JOINED}{word}{_A_JOINED}"
    return 0 < len(word) <= LONGEST_PIECE and words_of(joined) == [joined]


def segmented(word: str, pieces: Mapping[str, object] | set[str]) -> list[str]:
    """Splits a word into as few known pieces as possible, leaving out as few other characters as possible."""
    # best[end]: the lowest cost of the first `end` characters, and where their last piece begins
    best: list[tuple[float, int, bool]] = [(0.0, 0, False)]
    for end in range(1, len(word) + 1):
        options = [(best[end - 1][0] + _UNKNOWN, end - 1, False)]
        for start in range(max(0, end - LONGEST_PIECE), end):
            if word[start:end] in pieces:
                options.append((best[start][0] + 1, start, True))
        best.append(min(options))
    found, end = [], len(word)
    while end:
        _, start, is_piece = best[end]
        if is_piece:
            found.append(word[start:end])
        end = start
    return found[::-1]


class Glossary:
    """The words of one language with their native translations; "" for a word without a meaning of its own. Words in
    scripts without spaces are pieces of at most `LONGEST_PIECE` characters.

    Args:
        by_inflection: whether to prefer, among known words that are spelled like an unknown one, those with the same
            beginning or ending: in each language the one that more words with the same translation share.

    Examples:
        >>> Glossary({"motokā": "car", "whero": "red", "he": "a"}).gloss("he motokā whero")
        'a car red'
    """

    def __init__(self, entries: Mapping[str, str], by_inflection: bool = True) -> None:
        self.entries, self._by_inflection = dict(entries), by_inflection
        self._nearest: dict[str, str] = {}

    def units_of(self, words: Iterable[str]) -> list[str]:
        """Returns words unchanged and, in scripts without spaces, their known pieces."""
        return list(chain(*(segmented(word, self.entries) if is_joined(word[0]) else [word] for word in words)))

    def gloss(self, text: str) -> str:
        """Translates a text word by word into at most forty words. A word that is neither in the glossary nor native
        is read as the known word with the most similar spelling, which finds most inflected forms, or left out."""
        return " ".join(self.glosses(text)[:MOST_WORDS])

    def glosses(self, text: str) -> list[str]:
        found: list[str] = []
        for word in self.units_of(first_words(text)):
            native = self.entries.get(word)
            if native is None:
                native = word if word in self.native_words else self.entries.get(self.nearest(word), "")
            if native and found[-1:] != [native]:
                found.append(native)
        return found

    def known(self, words: Sequence[str]) -> float:
        """Returns the share of characters, from 0 to 1, in words that belong to the language."""
        return _share(words, (unit for unit in self.units_of(words) if unit in self.entries))

    def native(self, words: Sequence[str]) -> float:
        """Returns the share of characters, from 0 to 1, in native words."""
        return _share(words, (word for word in words if word in self.native_words))

    @cached_property
    def native_words(self) -> set[str]:
        return {word for native in self.entries.values() for word in native.lower().split()}

    def nearest(self, word: str) -> str:
        if word in self._nearest:
            return self._nearest[word]
        known, sizes, places = self._index
        ngrams = _ngrams(word)
        found = [places[ngram] for ngram in ngrams if ngram in places]
        shared = np.bincount(np.concatenate(found), minlength=len(known)) if found else np.zeros(len(known))
        dice = 2 * shared / (len(ngrams) + sizes)
        best, nearest = _ALIKE, ""
        for place in np.flatnonzero(dice >= _ALIKE).tolist():
            alike = float(dice[place])
            if self._by_inflection:
                order = slice(None, None, 1 if self._inflects_endings else -1)
                same = _same_letters(word[order], known[place][order])
                alike += _SAME_PART * same / max(len(word), len(known[place]))
            if alike > best or (alike == best and nearest and known[place] < nearest):
                best, nearest = alike, known[place]
        if len(self._nearest) >= _REMEMBERED:
            self._nearest.clear()
        self._nearest[word] = nearest
        return nearest

    @cached_property
    def _inflects_endings(self) -> bool:
        """Whether words with the same translation differ more often at their ends, as in Polish, than at their
        beginnings, as in Shona."""
        words = defaultdict(list)
        for word, native in self.entries.items():
            if native:
                words[native].append(word)
        toward_endings = 0
        for forms in words.values():
            if len(forms) < 2:
                continue
            for neighbors in pairwise(sorted(forms)), pairwise(sorted(forms, key=lambda word: word[::-1])):
                for word, other in neighbors:
                    first, last = _same_letters(word, other), _same_letters(word[::-1], other[::-1])
                    if 2 * max(first, last) >= max(len(word), len(other)):
                        toward_endings += (first > last) - (first < last)
        return toward_endings >= 0

    @cached_property
    def _index(self) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
        """Words with spaces around them, the numbers of their n-grams, and the places of the words with an n-gram."""
        words = [word for word in self.entries if not is_joined(word[0])]
        ngrams, places = [_ngrams(word) for word in words], defaultdict(list)
        for place, own in enumerate(ngrams):
            for ngram in own:
                places[ngram].append(place)
        return words, np.array([*map(len, ngrams)]), {ngram: np.array(found) for ngram, found in places.items()}


def _share(words: Iterable[str], known: Iterable[str]) -> float:
    length = sum(map(len, words))
    return sum(map(len, known)) / length if length else 0.0


def _same_letters(word: str, other: str) -> int:
    """Returns the number of letters before the first that differs."""
    return next(
        (place for place, (a, b) in enumerate(zip(word, other, strict=False)) if a != b),
        len(min(word, other, key=len)),
    )


def _ngrams(word: str) -> set[str]:
    word = f"<{word}>"
    return {word[start : start + size] for size in (2, 3, 4) for start in range(len(word) - size + 1)}
