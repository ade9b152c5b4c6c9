"""Glossaries for a page without a server.

A text that is translated word by word is read by the native model's text tower, which is too large for a page. Such a
text is a bag of words, though, all of them words of the glossaries: a vector for each, learned by ridge regression
from what the tower makes of them, gives the direction of its embedding well enough, and takes 127 bytes a word. The
tower is asked for each word alone, for random phrases of them, and for sentences in its language, if there are some.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ..inference.embedder import Embedder
from ..modeling.modeling_ridge import RidgeMaps
from ..processing.glossary import Glossary, words_of

_PHRASES = 4000
_LONGEST = 8  # words of a phrase
_STRENGTH = 1.0
_STEPS = 200  # of conjugate gradients; some sixty are taken
_MOST_SHARED = 35  # characters that a word shares with the one before; one digit to the base of 36
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def native_words(glossaries: Iterable[Glossary]) -> list[str]:
    """All native words of some glossaries, sorted."""
    return sorted(set().union(*(each.native_words for each in glossaries)))


def word_vectors(
    embedder: Embedder, maps: RidgeMaps, words: Sequence[str], sentences: Sequence[str], directions: int
) -> Tensor:
    """Learns vectors of native words. The direction of a text translated word by word is that of their sum, in which a
    word that occurs n times counts log(1 + n) times.

    Args:
        embedder: the model, which embeds native texts.
        maps: its maps.
        words: native words.
        sentences: native sentences from which is learned, too; none are needed.
        directions: how many of the directions of the maps are kept.

    Returns:
        Vectors [words, directions].
    """
    random = np.random.default_rng(0)
    longest = min(_LONGEST, len(words))
    sizes = random.integers(min(2, longest), longest + 1, _PHRASES)
    phrases = [[words[place] for place in random.choice(len(words), size, replace=False)] for size in sizes]
    read = [*words, *map(" ".join, phrases), *sentences]
    bags = [[word] for word in words] + phrases + [words_of(each) for each in sentences]
    embeddings = embedder.encode_text(read, language=embedder.processor.native_language)
    targets = maps.direction_of(torch.from_numpy(embeddings))[:, :directions]
    places = {word: place for place, word in enumerate(words)}
    for bag in bags:
        for word in bag:
            places.setdefault(word, len(places))
    seen = Counter(word for bag in bags for word in set(bag))
    importance = torch.tensor([math.log((1 + len(bags)) / (1 + seen[word])) + 1 for word in places])
    features = _features(bags, places, importance)
    return (_ridge(features, targets) * importance[:, None])[: len(words)]


def _features(bags: Sequence[Sequence[str]], places: Mapping[str, int], importance: Tensor) -> Tensor:
    """Bags of words as rows of length 1 of a sparse matrix [bags, words]."""
    rows, columns, values = [], [], []
    for row, bag in enumerate(bags):
        counts = {places[word]: math.log1p(count) for word, count in Counter(bag).items()}
        weights = torch.tensor(list(counts.values())) * importance[list(counts)]
        rows += [row] * len(counts)
        columns += list(counts)
        values += (weights / weights.norm().clamp(min=1e-12)).tolist()
    size = (len(bags), len(places))
    return torch.sparse_coo_tensor(torch.tensor([rows, columns]), values, size, check_invariants=True).coalesce()


def _ridge(features: Tensor, targets: Tensor) -> Tensor:
    """Solves (X'X + λ) W = X'Y by conjugate gradients, column by column at once."""
    across = features.t().coalesce()
    left = torch.sparse.mm(across, targets)
    found, step, size = torch.zeros_like(left), left.clone(), left.square().sum(0)
    enough = 1e-10 * size
    for _ in range(_STEPS):
        if bool((size <= enough).all()):
            break
        image = torch.sparse.mm(across, torch.sparse.mm(features, step)) + _STRENGTH * step
        length = size / (step * image).sum(0).clamp(min=1e-30)
        found, left = found + length * step, left - length * image
        before, size = size, left.square().sum(0)
        step = left + size / before.clamp(min=1e-30) * step
    return found


def packed_glossary(glossary: Glossary, words: Sequence[str]) -> str:
    """A glossary as lines in the order of its words: how many characters a word shares with the one before (a digit to
    the base of 36), the others, a tab, and the positions of its native words, in lower case, among `words`, to the
    base of 36.

    Examples:
        >>> packed_glossary(Glossary({"hund": "dog", "hunde": "dogs", "im": ""}), ["a", "dog", "dogs"])
        '0hund\\t1\\n4e\\t2\\n0im\\t'
    """
    places = {word: place for place, word in enumerate(words)}
    lines, before = [], ""
    for word in sorted(glossary.entries):
        shared = 0
        while shared < min(len(word), len(before), _MOST_SHARED) and word[shared] == before[shared]:
            shared += 1
        native = " ".join(_base36(places[each]) for each in glossary.entries[word].lower().split())
        lines.append(f"{_DIGITS[shared]}{word[shared:]}\t{native}")
        before = word
    return "\n".join(lines)


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, last = divmod(number, 36)
        digits = _DIGITS[last] + digits
    return digits
