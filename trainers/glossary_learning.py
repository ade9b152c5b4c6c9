"""Learns a glossary from translations and dictionaries: the native word for each word. IBM's Model 1 (Brown et al.
1993) with a prior for words at similar positions (Dyer et al. 2013) aligns the words of both sides. A thousand
sentences are enough for most of their words: a regression has to find the many dimensions of an embedding for each
n-gram, but an alignment only has to choose among a few words."""

import logging
import re
import sys
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, product
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor

from ..data.emoji.names import Pairs
from ..processing.glossary import LONGEST_PIECE, Glossary, is_joined, is_word, segmented, words_of
from .ridge_solving import in_random_order

logger = logging.getLogger(__name__)

_STEPS = 8
_PLACE = 2.0  # how strongly a native word prefers words at the same relative position
_NOTHING = 0.15  # the prior of a native word without a counterpart
_DOUBT = 0.3  # occurrences that are counted as something else, so rare words stay uncertain
_LEAST = 0.12  # minimal share of a word's occurrences that are aligned with its native word
_LEAST_ALIGNED = 0.4  # the same where otherwise the known word that is spelled most alike is read
_MOST = 30_000  # sentences
_HELD_OUT = 300  # sentences for choosing the weight of a glossary
_PIECES = 2000  # of a script without spaces, in addition to its characters
_MOST_OF_A_DICTIONARY = 100_000  # words, which take up two megabytes
TESTED_LISTS = 100
_MORE_PIECES = 1.2  # per word: the base reads the other column, because its tokenizer has whole words of its language
_UNREAD = 1000  # pieces: more than any word has
_LEAST_OF_NAMES = 0.2  # minimal share of the names with a word that have its translation, because any has "of" or "in"
_USUAL, _FEWEST_USUAL = 0.05, 10  # share and number of the translations that begin with "to", as verbs do
_BEGINNING, _SHORTEST_BEGINNING = 0.6, 3  # share of the letters that related words have in common, and their number
_MOST_RELATED = 200  # words: more begin alike by chance
_LONGEST_SENSE = 3  # words: a longer sense explains the word instead of translating it
_BETWEEN_SENSES = re.compile(r"[,;/|]|\b\d+[.)]")
_NOTES = re.compile(r"\([^)]*\)|\[[^]]*\]|\{[^}]*\}|<[^>]*>")

Pair = tuple[str, str]  # a text and its native translation


def learn_glossary(sentences: Sequence[Pair], names: Sequence[Pair] = (), least: float = _LEAST) -> dict[str, str]:
    """Returns the native word of each word, or "" if none is clearly the most frequent, from translated sentences (a
    sample, if there are more than 30,000) and from names or lists of words, in which positions are ignored.

    Examples:
        >>> learn_glossary([("he kurī", "a dog"), ("he ngeru", "a cat"), ("te kurī", "the dog")])
        {'he': 'a', 'kurī': 'dog', 'ngeru': 'cat', 'te': 'the'}
    """
    chosen = [sentences[row] for row in np.sort(in_random_order(len(sentences))[:_MOST])]
    words = [_words_of(text) for text, _ in (*chosen, *names)]
    pieces = _pieces(word for sentence in words for word in sentence if is_joined(word[0]))
    cut = [
        [unit for word in sentence for unit in (segmented(word, pieces) if is_joined(word[0]) else [word])]
        for sentence in words
    ]
    places = [_PLACE] * len(chosen) + [0.0] * len(names)
    return align(cut, [_words_of(native) for _, native in (*chosen, *names)], places, least)


def senses(
    dictionary: Pairs, natives: Iterable[str], tokenizer: Any = None, names: Iterable[Pair] = ()
) -> dict[str, str]:
    """Chooses one translation for each word of a dictionary: the most frequent one in the native texts, judged by its
    rarest word; next, the one that most names with the word have in their translations; next, the one that the most
    related words share, as `spielen` shares "play" with `spielt`; next, the one that is common for the native
    tokenizer. Each translation comes once before any comes again, first for the word with the most
    entries: a large dictionary has dozens of words for "of". At most 100,000 words are used, those with the most
    frequent translations. A word with several translations is repeated in the dictionary, or has them in one cell, as
    in `dog, hound` or `1. dog; 2. hound`. Text in brackets, letters translated by themselves, entries that are
    not a single word, and translations of more than three words are left out, as is a first word that very many
    translations share, such as "to".

    Examples:
        >>> senses((["Hund", "Hund"], ["mine car", "dog"]), ["a dog sleeps", "a red car"])
        {'hund': 'dog'}
    """
    counts = Counter(word for text in natives for word in _words_of(text))
    rarity = _rarity(tokenizer, dictionary[1])
    named = [({*_words_of(text)}, {*_words_of(native)}) for text, native in names]
    occurrences = Counter(word for words, _ in named for word in words)
    together = Counter(pair for pairs in named for pair in product(*pairs))
    found: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {}
    entries: Counter[str] = Counter()
    read = [(text.lower(), _words_of(translation)) for text, translation in _single_senses(dictionary)]
    beginnings = Counter(native[0] for _, native in read if len(native) > 1)
    usual = {first for first, count in beginnings.items() if count > max(_USUAL * len(read), _FEWEST_USUAL)}
    read = [(word, native[1:] if len(native) > 1 and native[0] in usual else native) for word, native in read]
    read = [
        (word, native)
        for word, native in read
        if 0 < len(native) <= _LONGEST_SENSE and is_word(word) and not (native == [word] and len(word) == 1)
    ]
    relatives = _relatives(read)
    for word, native in read:
        entries[word] += 1
        shared = min(together[word, each] for each in native)
        in_names = shared if shared >= _LEAST_OF_NAMES * occurrences[word] else 0
        usage = -min(counts[each] for each in native), -in_names
        rare = len(native) if tokenizer else 0, *max(rarity[each] for each in native)
        cost = *usage, -min(relatives(word)[_beginning(each)] for each in native), *rare
        if word not in found or cost < found[word][0]:
            found[word] = cost, (*usage, *rare), " ".join(native)
    kept = sorted(found, key=lambda word: found[word][1])[:_MOST_OF_A_DICTIONARY]
    earlier: Counter[str] = Counter()
    turn = {}
    for word in sorted(kept, key=entries.__getitem__, reverse=True):
        turn[word] = earlier[found[word][2]]
        earlier[found[word][2]] += 1
    return {word: found[word][2] for word in sorted(kept, key=turn.__getitem__)}


def _beginning(word: str) -> str:
    return word[: max(round(_BEGINNING * len(word)), _SHORTEST_BEGINNING)]


def _relatives(read: Iterable[tuple[str, list[str]]]) -> Callable[[str], Counter[str]]:
    """Returns a function from a word of a dictionary to the number of words that begin like it and have a translation
    with each native beginning."""
    translations: dict[str, set[str]] = defaultdict(set)
    for word, native in read:
        translations[word].update(map(_beginning, native))
    words = sorted(translations)

    @cache
    def counts(beginning: str) -> Counter[str]:
        related = words[bisect_left(words, beginning) : bisect_left(words, beginning + chr(sys.maxunicode))]
        are_related = len(related) <= _MOST_RELATED
        return Counter(chain.from_iterable(translations[word] for word in related) if are_related else ())

    return lambda word: counts(_beginning(word))


def _rarity(tokenizer: Any, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
    """The number of pieces of each word, and its highest id: vocabularies list frequent pieces first. A word that the
    tokenizer cannot read is rarer than all others."""
    if tokenizer is None:
        return defaultdict(tuple)
    words = list(dict.fromkeys(word for text in texts for word in _words_of(_plain(text))))
    ids = tokenizer(words, add_special_tokens=False)["input_ids"] if words else []
    unread = tokenizer.unk_token_id
    return {
        word: (_UNREAD if unread in each else len(each), max(each, default=0))
        for word, each in zip(words, ids, strict=True)
    }


def known_words(
    language: str, dictionary: Pairs, natives: Sequence[str], tokenizer: Any = None, names: Iterable[Pair] = ()
) -> dict[str, str]:
    """Calls `senses`, and warns of a dictionary whose entries or columns look wrong."""
    known = senses(dictionary, natives, tokenizer, names)
    given = {_plain(word).lower() for word in dictionary[0]}
    if 2 * len(known) < min(len(given), _MOST_OF_A_DICTIONARY):
        left_out = next(pair for pair in zip(*dictionary, strict=True) if _plain(pair[0]).lower() not in known)
        logger.warning(
            "%s: %d entries in the dictionary, %d of them one word with a translation of at most %d words; the "
            "others are left out, such as %r for %r",
            *(language, len(given), len(known), _LONGEST_SENSE, *left_out),
        )
    if known and natives:
        said = {word for text in natives for word in _words_of(text)}
        are_said = sum(said.issuperset(native.split()) for native in known.values())
        if not are_said or sum(word in said for word in known) > are_said:
            logger.warning(
                "%s: of %d translations in the dictionary, only %d occur in the native texts: check its columns",
                *(language, len(known), are_said),
            )
    elif known and tokenizer is not None:
        mine, theirs = (
            np.mean([pieces for pieces, _ in _rarity(tokenizer, entries).values()])
            for entries in (known.keys(), known.values())
        )
        if theirs > _MORE_PIECES * mine:
            logger.warning(
                "%s: the base knows the words of the dictionary better than their translations, such as %r for %r: "
                "check its columns",
                *(language, *next(iter(known.items()))),
            )
    return known


def is_held_out(position: int) -> bool:
    """Returns whether the word at a position of a dictionary is in no list but the first `TESTED_LISTS`."""
    return position % 5 == 0


def word_lists(known: Mapping[str, str], count: int) -> Pairs:
    """Returns lists of random words with their translations, which a base model reads almost as sentences."""
    words, draw = list(known), np.random.default_rng(0)
    kept = [word for row, word in enumerate(words) if not is_held_out(row)]
    texts, natives = [], []
    for row in range(count):
        some = words if row < TESTED_LISTS else kept
        chosen = [some[each] for each in draw.choice(len(some), min(2 + row % 9, len(some)), replace=False)]
        texts.append("".join(word if is_joined(word[0]) else f"{word} " for word in chosen).strip())
        natives.append(" ".join(known[word] for word in chosen))
    return texts, natives


def glossary_from(sentences: Sequence[Pair], names: Sequence[Pair], known: Mapping[str, str]) -> dict[str, str]:
    """Calls `learn_glossary` on sentences, names and known words. Known words keep their known translation, unless the
    sentences show another one."""
    found = learn_glossary(sentences, [*names, *known.items()])
    if known:
        used = set(Glossary(found).units_of(word for text, _ in sentences for word in _words_of(text)))
        for word, native in known.items():
            if word not in used or found.get(word, "") in ("", *native.split()):
                found[word] = native
    return found


def glossary_of_words(names: Sequence[Pair], known: Mapping[str, str]) -> dict[str, str]:
    """Returns the known words, and those that names translate clearly. Any other word is read as the known word that
    is spelled most alike; in scripts without spaces, it would be left out, so all pieces are kept."""
    if 2 * sum(is_joined(word[0]) for word in known) > len(known):
        return glossary_from([], names, known)
    found = learn_glossary([], [*names, *known.items()], _LEAST_ALIGNED)
    return {word: native for word, native in found.items() if native} | dict(known)


def without_held_out(
    sentences: Sequence[Pair], names: Sequence[Pair], known: Mapping[str, str]
) -> tuple[Tensor, dict[str, str]]:
    """Returns positions of sentences, ascending, and a glossary learned without these and others that share a text
    with them."""
    order = in_random_order(len(sentences))[: max(min(_HELD_OUT, len(sentences) // 5), 1)]
    held_out = np.sort(order)
    out = {text for row in held_out for text in sentences[row]}
    glossary = glossary_from([pair for pair in sentences if out.isdisjoint(pair)], names, known)
    return torch.from_numpy(held_out), glossary


def _plain(entry: str) -> str:
    """One side of a dictionary entry in Unicode's compatibility form, without notes in brackets, as in `Hund {m}`."""
    plain = entry if entry.isascii() else unicodedata.normalize("NFKC", entry)
    return (_NOTES.sub("", plain) if any(each in plain for each in "([{<") else plain).strip()


def _single_senses(dictionary: Pairs) -> Iterator[tuple[str, str]]:
    """Yields the first word of a cell, such as `Haus` in `Haus, das`, with each of its translations."""
    for cells in zip(*dictionary, strict=True):
        words, translations = (filter(None, map(str.strip, _BETWEEN_SENSES.split(_plain(cell)))) for cell in cells)
        word = next(words, "")
        yield from ((word, translation) for translation in translations)


# Texts are read twice, and native texts in each language.
_words_of = lru_cache(1 << 14)(words_of)


def _pieces(words: Iterable[str]) -> set[str]:
    """Returns frequent pieces of words in scripts without spaces."""
    words = list(words)
    if not words:
        return set()
    model = Tokenizer(models.Unigram())
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    size = _PIECES + len({character for word in words for character in word})
    trainer = trainers.UnigramTrainer(vocab_size=size, max_piece_length=LONGEST_PIECE, show_progress=False)
    model.train_from_iterator(words, trainer)
    return set(model.get_vocab())


def _positions(counts: np.ndarray) -> np.ndarray:
    """Returns 0, 1, … for each of the counts [n], concatenated [sum of counts]."""
    return np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)


def align(
    sentences: Sequence[Sequence[str]], natives: Sequence[Sequence[str]], place: Sequence[float], least: float
) -> dict[str, str]:
    """Aligns the words, or pieces, of sentences with those of their native translations: returns for each the native
    one that it is aligned with most often, or "" if none is clearly the most frequent. `place` says for each sentence
    how strongly a native word prefers words at the same relative position."""
    kept = [row for row, (sentence, native) in enumerate(zip(sentences, natives, strict=True)) if sentence and native]
    if not kept:
        return {}
    places: dict[str, int] = {}  # 0 means no native word
    native_places: dict[str, int] = {}
    mine = np.array([places.setdefault(each, len(places) + 1) for row in kept for each in sentences[row]])
    theirs = np.array([native_places.setdefault(each, len(native_places)) for row in kept for each in natives[row]])
    counts = np.array([len(sentences[row]) for row in kept])
    native_counts = np.array([len(natives[row]) for row in kept])
    sentence = np.repeat(np.arange(len(kept)), native_counts)  # of each native word
    # Each native word paired with each word of its sentence, and finally with no word.
    beside = counts[sentence]
    position = np.repeat(np.arange(len(theirs)), beside)
    nth = _positions(beside)
    words = mine[np.repeat((counts.cumsum() - counts)[sentence], beside) + nth]
    distance = np.abs(
        (nth + 1) / np.repeat(beside, beside)
        - np.repeat((_positions(native_counts) + 1) / native_counts[sentence], beside)
    )
    near = np.exp(-np.repeat(np.array([place[row] for row in kept])[sentence], beside) * distance)
    near *= (1 - _NOTHING) / np.bincount(position, near)[position]
    words = np.concatenate([words, np.zeros(len(theirs), dtype=words.dtype)])
    positions = np.concatenate([position, np.arange(len(theirs))])
    weights = np.concatenate([near, np.full(len(theirs), _NOTHING)])
    pairs, pair = np.unique(words * len(native_places) + theirs[positions], return_inverse=True)
    pair_word = pairs // len(native_places)
    stands_for = np.ones(len(pairs))
    for _ in range(_STEPS):
        found = weights * stands_for[pair]
        found /= np.bincount(positions, found)[positions]  # each native word is aligned with one word or none
        counts = np.bincount(pair, found)
        stands_for = counts / (np.bincount(pair_word, counts) + _DOUBT)[pair_word]
    order = np.lexsort((-stands_for, pair_word))  # stable: among equals, the first pair
    first = order[np.unique(pair_word[order], return_index=True)[1]]
    names, native_names = ["", *places], list(native_places)
    return {
        names[pair_word[each]]: native_names[pairs[each] % len(native_places)] if stands_for[each] > least else ""
        for each in first
        if pair_word[each]
    }
