"""Bilingual dictionaries, by which rare words of one language use the embedding of a frequent word of another (SMALR:
Burns et al. 2020, section 4, "dictionary mapping": words that occur fewer than t times are mapped to English).

Each line of a dictionary has a word and its translation, separated by a tab or a space, as in MUSE (Conneau et al.
2018). A word may have several lines; the first translation that is known counts. Entries of several words, which need
a tab, are skipped. Words are compared as vocabularies spell them (`word_tokenizers.fold`).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..configuration.errors import VocabularyError
from .word_files import lines_of, shown
from .word_tokenizers import fold


def dictionary_words(
    path: str | Path, words: Iterable[str], language: str, targets: Sequence[str], target_language: str
) -> dict[str, str]:
    """Returns the words that a dictionary translates to one of `targets`, with that translation.

    Args:
        path: a text file in UTF-8, or its gzip archive.
        words, language: words of a vocabulary, and the BCP-47 tag of its language.
        targets, target_language: the words to translate to, and the tag of their language.

    Returns:
        The translations by word, in the order of `words`.

    Raises:
        LanguageTagError: if a tag names no language.
        VocabularyError: if the file is missing, damaged or empty, or a line is not a word and its translation.
    """
    wanted, known = dict.fromkeys(words), set(targets)
    found: dict[str, str] = {}
    number = 0
    for number, line in enumerate(lines_of(path, VocabularyError), 1):
        word, translation = _entry(path, number, line)
        word, translation = fold(word, language), fold(translation, target_language)
        if word in wanted and translation in known:
            found.setdefault(word, translation)
    if not number:
        raise VocabularyError(f"{path}: there are no words")
    return {word: found[word] for word in wanted if word in found}


def _entry(path: str | Path, number: int, line: bytes) -> tuple[str, str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise VocabularyError(f"{path}, line {number}: not UTF-8: {error}") from error
    fields = [field.strip() for field in text.split("\t")] if "\t" in text else text.split()
    if len(fields) != 2 or not all(fields):
        raise VocabularyError(f"{path}, line {number}: {shown(line)} is not a word and its translation")
    return fields[0], fields[1]
