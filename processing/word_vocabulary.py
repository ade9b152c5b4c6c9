"""Vocabularies of words, by falling frequency, one for each language (SMALR: Burns et al. 2020, section 3).

Every language has its own ids: 0 is padding, 1 [MASK], 2 [UNK], and known words begin at 3. A model gets one row of
word vectors for each known word, in the same order (`word_vectors`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from ..configuration.configuration_smalr import SPECIAL_IDS, UNKNOWN_ID
from ..configuration.errors import VocabularyError
from ..configuration.languages import normalize_language
from .word_tokenizers import split_words


def frequent_words(
    texts: Iterable[str], language: str, *, max_size: int | None = None, min_frequency: int = 1
) -> list[str]:
    """Returns the words of texts by falling frequency; equally frequent ones by their code points.

    Args:
        texts: training captions; may be a generator.
        language: their BCP-47 tag.
        max_size: number of words to keep; by default all.
        min_frequency: leave out words that occur less often.

    Raises:
        LanguageTagError: if the tag names no language.
        ImportError: as `split_words`.
        VocabularyError: if no word is left, or `max_size` or `min_frequency` is below 1.
    """
    for name, value in (("max_size", max_size), ("min_frequency", min_frequency)):
        if value is not None and value < 1:
            raise VocabularyError(f"{name}={value} leaves no words; the least is 1")
    counts = Counter(word for text in texts for word in split_words(text, language))
    kept = [word for word, count in counts.items() if count >= min_frequency]
    if not kept:
        most = max(counts.values(), default=0)
        raise VocabularyError(
            f"no word of the texts in {language!r} occurs {min_frequency} times; the most frequent occurs {most} times"
        )
    return sorted(kept, key=lambda word: (-counts[word], word))[:max_size]


class WordVocabulary:
    """Maps the texts of one language to word ids.

    Args:
        language: BCP-47 tag.
        words: known words, as `frequent_words` returns them; the first has id 3.

    Raises:
        LanguageTagError: if the tag names no language.
        VocabularyError: if a word is not a text, or is given twice.

    Examples:
        >>> vocabulary = WordVocabulary("en", ["a", "car", "red"])
        >>> vocabulary.encode("A red bus")
        [3, 5, 2]
    """

    def __init__(self, language: str, words: Sequence[str]) -> None:
        self.language = normalize_language(language)
        self.words = tuple(words)
        self._ids: dict[str, int] = {}
        for word_id, word in enumerate(self.words, SPECIAL_IDS):
            if not isinstance(word, str) or not word:
                raise VocabularyError(f"{self.language!r}: word {word_id} of the vocabulary is {word!r}")
            if word in self._ids:
                raise VocabularyError(f"{self.language!r}: {word!r} is word {self._ids[word]} and {word_id}")
            self._ids[word] = word_id

    def __len__(self) -> int:
        """Number of ids: the known words and the three special ones."""
        return SPECIAL_IDS + len(self.words)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text's words; a text without a word is one [UNK], so that every text has a state.

        Raises:
            ImportError: as `split_words`.
        """
        return [self._ids.get(word, UNKNOWN_ID) for word in split_words(text, self.language)] or [UNKNOWN_ID]

    def unknown_rate(self, texts: Iterable[str]) -> float:
        """Returns the share of [UNK] in texts, in percent of all words."""
        ids = [word_id for text in texts for word_id in self.encode(text)]
        return 100 * ids.count(UNKNOWN_ID) / max(len(ids), 1)
