"""Word vectors for the words of a vocabulary (SMALR: Burns et al. 2020, section 3.1: FastText's vectors of width 300,
reduced to 50 by principal components).

    read_vectors         reads published `.vec` files, as text or gzip
    reduce_vectors       computes principal components, of one language or of several together
    train_vectors        trains vectors on captions, for languages without a file: no download needed
    word_vectors         returns a vector for each word of a language, from its file or its captions
    aligned_word_vectors returns those of several languages, from files that share one vector space

The first line of a `.vec` file states the number of words and the width of their vectors; every other line has a word
and its numbers, most frequent first. The file is read once, line by line, and only the needed lines are kept. Its
words are compared in the spelling of the vocabulary (`word_tokenizers.fold`), so `hund` finds `Hund`.

Vectors are trained by factorizing a matrix of associations between the words of a caption (Levy and Goldberg 2014).
With as little text as captions provide, that works better than predicting words as FastText does (Sahlgren and Lenci
2016), and it needs only torch.
"""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ..utils.errors import InputError
from ..utils.languages import normalize_language
from .word_tokenizers import fold, split_words

VECTOR_SIZE = 50

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WordVectors:
    """Vectors for the words of a vocabulary.

    Args:
        matrix: float32 [n_words, size]; zeros for words without a vector.
        missing: the words without a vector.
        repeated: number of lines that repeat a word of an earlier line; the first line counts.
    """

    matrix: np.ndarray
    missing: tuple[str, ...] = ()
    repeated: int = 0


def word_vectors(
    words: Sequence[str],
    language: str,
    files: Mapping[str, str | Path],
    *,
    captions: Iterable[str] | None = None,
    size: int = VECTOR_SIZE,
    seed: int = 0,
) -> WordVectors:
    """Returns the vectors of a language's vocabulary; words without one get zeros, and the log states their number.

    Args:
        words: the vocabulary, without the special words.
        files: `.vec` or `.vec.gz` files by language.
        captions: texts to train vectors on if `files` has none for the language.
    """
    language = normalize_language(language)
    path = {normalize_language(tag): path for tag, path in files.items()}.get(language)
    if path is not None:
        (found,) = reduce_vectors([read_vectors(path, words, language)], size)
    elif captions is not None:
        found = train_vectors(captions, words, language, size=size, seed=seed)
    else:
        given = ", ".join(files) or "no language"
        raise InputError(
            f"there are word vectors for {given}, not for {language!r}: give a .vec file, or captions= to train on"
        )
    _warn_of_missing(found, language)
    return found


def aligned_word_vectors(
    vocabularies: Mapping[str, Sequence[str]], files: Mapping[str, str | Path], *, size: int = VECTOR_SIZE
) -> dict[str, WordVectors]:
    """Returns the vectors of several languages, from files that share one space, reduced to the same principal
    components.

    Cosines between words of two languages are those of the files, as far as the components preserve them. Components
    of each language alone would have different axes in every language.
    """
    paths = {normalize_language(tag): path for tag, path in files.items()}
    for language in vocabularies:
        if language not in paths:
            raise InputError(
                f"there are aligned word vectors for {', '.join(paths) or 'no language'}, not for {language!r}: "
                "vectors in one space come from files, one for each language"
            )
    read = [read_vectors(paths[language], words, language) for language, words in vocabularies.items()]
    found = dict(zip(vocabularies, reduce_vectors(read, size), strict=True))
    for language, vectors in found.items():
        _warn_of_missing(vectors, language)
    return found


def _warn_of_missing(found: WordVectors, language: str) -> None:
    if found.missing:
        counts = f"{len(found.missing)} of {len(found.matrix)}"
        logger.warning("%s: %s words have no vector, such as %s", language, counts, ", ".join(found.missing[:5]))


# ---- Files ----


def read_vectors(path: str | Path, words: Sequence[str], language: str) -> WordVectors:
    """Reads the vectors of `words` from a `.vec` file, in their original width; the first of several spellings of a
    word counts.

    The number of fields is checked in every line, the numbers only if the word is needed.
    """
    rows = {word: row for row, word in enumerate(words)}
    vectors: dict[int, np.ndarray] = {}
    spellings: set[bytes] = set()
    repeated = 0
    lines = lines_of(path, InputError)
    count, size = _header(path, next(lines, b""))
    number = 1
    for number, line in enumerate(lines, 2):
        spelling, numbers = _split(path, number, line, size)
        row = rows.get(
            fold(spelling.decode("utf-8", "replace"), language)
        )  # no known word contains a replacement character
        if row is None:
            continue
        if spelling in spellings:
            repeated += 1
        elif row not in vectors:
            vectors[row] = _parse(path, number, numbers)
        spellings.add(spelling)
    if number - 1 != count:
        raise InputError(f"{path}: the first line states {count} words, but there are {number - 1}")
    if repeated:
        logger.warning("%s: %d lines repeat a word of the vocabulary; the first counts", path, repeated)
    matrix = np.zeros((len(words), size), np.float32)
    matrix[list(vectors)] = list(vectors.values()) or 0
    return WordVectors(matrix, _without(words, np.isin(np.arange(len(words)), list(vectors))), repeated)


def _header(path: str | Path, line: bytes) -> tuple[int, int]:
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() and int(field) for field in fields):
        raise InputError(f"{path}, line 1: {shown(line)} is not the number of words and the size of their vectors")
    return int(fields[0]), int(fields[1])


def _split(path: str | Path, number: int, line: bytes, size: int) -> tuple[bytes, list[bytes]]:
    fields = line.split(b" ")
    if len(fields) != size + 1 or not fields[0]:
        raise InputError(
            f"{path}, line {number}: {shown(line)} is not a word and {size} numbers; it has {len(fields) - 1}"
        )
    return fields[0], fields[1:]


def _parse(path: str | Path, number: int, fields: list[bytes]) -> np.ndarray:
    try:
        values = np.array([float(field) for field in fields], np.float32)
    except ValueError as error:
        raise InputError(f"{path}, line {number}: {error}") from error
    if not np.isfinite(values).all():
        raise InputError(f"{path}, line {number}: the vector has numbers that are NaN or infinite")
    return values


def _without(words: Sequence[str], found: np.ndarray) -> tuple[str, ...]:
    return tuple(word for word, has_vector in zip(words, found, strict=True) if not has_vector)


# ---- Principal components ----


def reduce_vectors(vectors: Sequence[WordVectors], size: int = VECTOR_SIZE) -> list[WordVectors]:
    """Returns the first `size` principal components of all words that have a vector, centered; the others stay zero.

    Vectors of that width are returned unchanged.

    Args:
        vectors: those of one language, or of several languages that share one vector space.
        size: number of components.
    """
    widths = [part.matrix.shape[1] for part in vectors]
    if len(set(widths)) > 1:
        raise InputError(f"vectors of {', '.join(map(str, widths))} numbers are not in one space")
    if widths[0] < size:
        raise InputError(f"vectors of {widths[0]} numbers cannot be reduced to {size}")
    if widths[0] == size:
        return [*vectors]
    given = np.concatenate([part.matrix for part in vectors])
    known: np.ndarray = np.any(given, axis=1)
    centred = given[known].astype(np.float64)  # [n, given]
    centred -= centred.mean(0) if len(centred) else 0
    _, axes = np.linalg.eigh(centred.T @ centred)  # columns in order of rising variance
    matrix = np.zeros((len(known), size), np.float32)
    matrix[known] = centred @ _signed(axes[:, ::-1][:, :size])
    ends = np.cumsum([len(part.matrix) for part in vectors])[:-1]
    return [replace(part, matrix=own) for part, own in zip(vectors, np.split(matrix, ends), strict=True)]


# ---- Training ----


def train_vectors(
    captions: Iterable[str], words: Sequence[str], language: str, *, size: int = VECTOR_SIZE, seed: int = 0
) -> WordVectors:
    """Trains vectors on the words that occur together in captions: positive pointwise mutual information, factorized.

    The vectors are the rows of U S^(1/2), where U S V^T is the truncated singular value decomposition of the matrix
    (Levy and Goldberg 2014), found by random projections. A word that does not occur in the captions stays zero. The
    same seed gives the same vectors.
    """
    pairs, counts = _counted_pairs(captions, words, language)
    if not counts.size:
        raise InputError(f"the captions in {language!r} have no word of the vocabulary to train vectors on")
    totals = np.bincount(pairs[0], counts, len(words))  # [n_words]
    information = np.log(counts * counts.sum() / totals[pairs[0]] / totals[pairs[1]])
    positive = torch.sparse_coo_tensor(
        pairs, information.clip(min=0), (len(words), len(words)), dtype=torch.float32, check_invariants=True
    ).coalesce()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, scale, _ = torch.svd_lowrank(positive, min(size + 10, len(words)), niter=6)
    matrix = np.zeros((len(words), size), np.float32)
    components = (_signed(left.numpy()) * scale.sqrt().numpy())[:, :size]
    matrix[:, : components.shape[1]] = components
    return WordVectors(matrix, _without(words, totals > 0))


def _counted_pairs(captions: Iterable[str], words: Sequence[str], language: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts the pairs of words that occur together in a caption; each word is also paired with itself.

    Returns:
        Indices of words [2, n], and numbers of captions [n].
    """
    indices = {word: index for index, word in enumerate(words)}
    codes = [np.empty(0, np.int64)]
    for caption in captions:
        present = np.array([indices[word] for word in {*split_words(caption, language)} if word in indices], np.int64)
        codes.append((present[:, None] * len(words) + present).ravel())
    pairs, counts = np.unique(np.concatenate(codes), return_counts=True)
    return np.stack(np.divmod(pairs, len(words))), counts


def _signed(axes: np.ndarray) -> np.ndarray:
    """Multiplies columns by -1 if their largest coefficient is negative: a solver may return either direction."""
    return axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])


# ---- Files with a word on each line: word vectors and dictionaries, as text or gzip ----


def lines_of(path: str | Path, error_class: type[ValueError]) -> Iterator[bytes]:
    """Yields the lines of a file, without trailing spaces.

    Only a line feed ends a line: some words contain characters that Unicode also counts as line ends.
    """
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                yield line.rstrip(b" \r\n")
    except FileNotFoundError as error:
        raise error_class(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise error_class(f"{path}: {error}") from error


def shown(line: bytes) -> str:
    """Returns a short form of a line for an error message."""
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


# ---- Word dictionaries ----
# Bilingual dictionaries, with which rare words of one language use the embedding of a frequent word of another
# (SMALR: Burns et al. 2020, section 4, "dictionary mapping": words that occur fewer than t times are mapped to
# English).
#
# Each line of a dictionary has a word and its translation, separated by a tab or a space, as in MUSE (Conneau et
# al. 2018). A word may have several lines; the first translation that is known counts. Entries of several words,
# which need a tab, are skipped. Words are compared in the spelling of vocabularies (`word_tokenizers.fold`).


def dictionary_words(
    path: str | Path, words: Iterable[str], language: str, targets: Sequence[str], target_language: str
) -> dict[str, str]:
    """Returns the words of a vocabulary that a dictionary translates to one of `targets`, with that translation."""
    wanted, known = dict.fromkeys(words), set(targets)
    found: dict[str, str] = {}
    number = 0
    for number, line in enumerate(lines_of(path, InputError), 1):
        word, translation = _entry(path, number, line)
        word, translation = fold(word, language), fold(translation, target_language)
        if word in wanted and translation in known:
            found.setdefault(word, translation)
    if not number:
        raise InputError(f"{path}: the file has no words")
    return {word: found[word] for word in wanted if word in found}


def _entry(path: str | Path, number: int, line: bytes) -> tuple[str, str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not UTF-8: {error}") from error
    fields = [field.strip() for field in text.split("\t")] if "\t" in text else text.split()
    if len(fields) != 2 or not all(fields):
        raise InputError(f"{path}, line {number}: {shown(line)} is not a word and its translation")
    return fields[0], fields[1]
