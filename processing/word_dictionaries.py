"""Bilingual dictionaries, by which rare words of one language have the embedding of a frequent word of another (SMALR:
Burns et al. 2020, section 4, "dictionary mapping": words that occur fewer than t times, to English).

A dictionary has a word and its translation in every line, with a tab or a space between, as those of MUSE have
(Conneau et al. 2018). A word may have several lines; the first translation that is known counts. Entries of several
words, which need a tab, are passed over. Words are compared as vocabularies spell them (`word_tokenizers.fold`).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..configuration.errors import VocabularyError
from .word_files import lines_of, shown
from .word_tokenizers import fold


def dictionary_words(
    path: str | Path, words: Iterable[str], language: str, targets: Sequence[str], target_language: str
) -> dict[str, str]:
    """The words that a dictionary translates by one of `targets`, in their order, and that one.

    Args:
        path: text in UTF-8, or gzip.
        words, language: words of a vocabulary, and its BCP-47 tag.
        targets, target_language: the same of what is translated to.

    Raises:
        LanguageTagError: for an unknown language tag.
        VocabularyError: for a missing, damaged or empty file, and for a line that is not a word and its translation.
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
