"""Word vectors for the words of a vocabulary (SMALR: Burns et al. 2020, section 3.1: FastText's vectors of width 300,
reduced to 50 by principal components). Words are compared as `word_tokenizers.fold` spells them: `hund` finds `Hund`.

Vectors for a language without a file are trained on captions. With so little text, factorizing a matrix of
associations works better than predicting words as FastText does (Sahlgren and Lenci 2016).
"""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from ..utils.errors import InputError
from ..utils.languages import normalize_language
from .word_tokenizers import fold, split_words

logger = logging.getLogger(__name__)


def word_vectors(
    vocabularies: Mapping[str, Sequence[str]],
    files: Mapping[str, str | Path],
    *,
    size: int,
    captions: Mapping[str, Iterable[str]],
) -> list[np.ndarray]:
    """Returns the vectors of each language's words, float32 [n_words, size], from its `.vec` or `.vec.gz` file, or
    trained on its captions without one; zeros for words without a vector."""
    paths = {normalize_language(tag): path for tag, path in files.items()}
    found = []
    for language, words in vocabularies.items():
        if (path := paths.get(normalize_language(language))) is not None:
            found.append(reduce_vectors(read_vectors(path, words, language), size))
        else:
            found.append(train_vectors(captions[language], words, language, size=size))
    return found


def read_vectors(path: str | Path, words: Sequence[str], language: str) -> np.ndarray:
    """Reads the vectors of `words` from a `.vec` file, in their original width; the first spelling of a word
    counts."""
    rows = {word: row for row, word in enumerate(words)}
    vectors: dict[int, np.ndarray] = {}
    lines = _lines(path)
    try:
        count, size = map(int, next(lines, b"").split())
    except ValueError as error:
        raise InputError(f"{path}, line 1: not the number of words and the size of their vectors") from error
    number = 1
    for number, line in enumerate(lines, 2):
        spelling, *numbers = line.split(b" ")
        if len(numbers) != size or not spelling:
            said = f"{_shown(line)} is not a word and {size} numbers; it has {len(numbers)}"
            raise InputError(f"{path}, line {number}: {said}")
        # No known word contains a replacement character.
        row = rows.get(fold(spelling.decode("utf-8", "replace"), language))
        if row is not None and row not in vectors:
            try:
                vectors[row] = np.array([float(field) for field in numbers], np.float32)
            except ValueError as error:
                raise InputError(f"{path}, line {number}: {error}") from error
            if not np.isfinite(vectors[row]).all():
                raise InputError(f"{path}, line {number}: the vector has numbers that are NaN or infinite")
    if number - 1 != count:
        raise InputError(f"{path}: the first line states {count} words, but there are {number - 1}")
    matrix = np.zeros((len(words), size), np.float32)
    matrix[list(vectors)] = list(vectors.values()) or 0
    _warn_of_missing([word for row, word in enumerate(words) if row not in vectors], len(words), language)
    return matrix


def _warn_of_missing(missing: Sequence[str], count: int, language: str) -> None:
    if missing:
        examples = ", ".join(missing[:5])
        logger.warning("%s: %d of %d words have no vector, such as %s", language, len(missing), count, examples)


def dictionary_words(
    path: str | Path, words: Iterable[str], language: str, targets: Sequence[str], target_language: str
) -> dict[str, str]:
    """Returns the words of a vocabulary that a bilingual dictionary translates to one of `targets`, with the first of
    these: rare words then use the embedding of a frequent word (SMALR, section 4, "dictionary mapping"). Lines are
    words and translations, separated by a tab or a space, as in MUSE (Conneau et al. 2018)."""
    wanted, known = dict.fromkeys(words), set(targets)
    found: dict[str, str] = {}
    number = 0
    for number, line in enumerate(_lines(path), 1):
        try:
            text = line.decode("utf-8-sig")
            entry, translation = text.split("\t") if "\t" in text else text.split()
        except ValueError as error:
            said = f"{_shown(line)} is not a word and its translation: {error}"
            raise InputError(f"{path}, line {number}: {said}") from error
        word, translation = fold(entry.strip(), language), fold(translation.strip(), target_language)
        if word in wanted and translation in known:
            found.setdefault(word, translation)
    if not number:
        raise InputError(f"{path}: the file has no words")
    return {word: found[word] for word in wanted if word in found}


def _lines(path: str | Path) -> Iterator[bytes]:
    """Yields the lines of a file or gzip. Only a line feed ends a line: some words contain Unicode's other line
    ends."""
    try:
        with gzip.open(path) if Path(path).suffix == ".gz" else open(path, "rb") as file:
            for line in file:
                yield line.rstrip(b" \r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: {error}") from error


def _shown(line: bytes) -> str:
    return repr(line.decode("utf-8", "replace")[:40])


def reduce_vectors(vectors: np.ndarray, size: int) -> np.ndarray:
    """Returns the first `size` principal components of the words that have a vector, centered, [n_words, size]; the
    others stay zero. Vectors of that width are returned unchanged."""
    if vectors.shape[1] < size:
        raise InputError(f"vectors of {vectors.shape[1]} numbers cannot be reduced to {size}")
    if vectors.shape[1] == size:
        return vectors
    known: np.ndarray = np.any(vectors, axis=1)
    centered = vectors[known].astype(np.float64)  # [n, given]
    centered -= centered.mean(0) if len(centered) else 0
    _, axes = np.linalg.eigh(centered.T @ centered)  # columns in order of rising variance
    matrix = np.zeros((len(known), size), np.float32)
    matrix[known] = centered @ _signed(axes[:, ::-1][:, :size])
    return matrix


def _signed(axes: np.ndarray) -> np.ndarray:
    """Multiplies columns by -1 if their largest coefficient is negative: a solver may return either direction."""
    return axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])


def train_vectors(captions: Iterable[str], words: Sequence[str], language: str, *, size: int) -> np.ndarray:
    """Trains vectors on the words that occur together in captions: the rows of U S^(1/2), where U S V^T is the
    truncated singular value decomposition of the positive pointwise mutual information (Levy and Goldberg 2014)."""
    indices = {word: index for index, word in enumerate(words)}
    codes = [np.empty(0, np.int64)]  # of pairs of words in a caption; each word is also paired with itself
    for caption in captions:
        present = np.array([indices[word] for word in {*split_words(caption, language)} if word in indices], np.int64)
        codes.append((present[:, None] * len(words) + present).ravel())
    found, counts = np.unique(np.concatenate(codes), return_counts=True)
    if not counts.size:
        raise InputError(f"the captions in {language!r} have no word of the vocabulary to train vectors on")
    pairs = np.stack(np.divmod(found, len(words)))  # [2, n]
    totals = np.bincount(pairs[0], counts, len(words))  # [n_words]
    information = np.log(counts * counts.sum() / totals[pairs[0]] / totals[pairs[1]])
    positive = torch.sparse_coo_tensor(
        pairs, information.clip(min=0), (len(words), len(words)), dtype=torch.float32, check_invariants=True
    ).coalesce()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        left, scale, _ = torch.svd_lowrank(positive, min(size + 10, len(words)), niter=6)
    matrix = np.zeros((len(words), size), np.float32)
    components = (_signed(left.numpy()) * scale.sqrt().numpy())[:, :size]
    matrix[:, : components.shape[1]] = components
    missing = [word for word, total in zip(words, totals, strict=True) if not total]
    _warn_of_missing(missing, len(words), language)
    return matrix
