"""LIWE's processor: the characters of words (`word_tokenizers`) in any language (Wehrmann et al. 2019)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import regex

from ..configuration.configuration_liwe import PADDING_ID, SPECIAL_IDS, UNKNOWN_ID
from ..utils.errors import InputError
from ..utils.languages import UNDETERMINED
from .images import truncated_repr
from .processing_per_language import TextLayout
from .word_tokenizers import WordLevelProcessor, frequent, split_words

# Scripts whose words `split_words` finds or normalizes by the rules of a language.
_RULES_OF_A_LANGUAGE = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Arabic}]"
)


def frequent_characters(texts: Mapping[str, Iterable[str]], *, min_frequency: int = 1) -> str:
    """Returns the characters of texts (by language) that occur `min_frequency` times or more, as `frequent` sorts
    them."""
    words = (word for language, several in texts.items() for text in several for word in split_words(text, language))
    return "".join(frequent(Counter(chain.from_iterable(words)), min_frequency))


class LiweProcessor(WordLevelProcessor):
    """Prepares images and texts for a `LiweModel`: `pixel_values`, `input_ids` [N, W, C], `attention_mask` [N, W].

    The ids of `characters`, as `frequent_characters` returns them, are the same in all languages: 0 is padding, 1 an
    unknown character. A text without a word is read as one unknown character. A text may come without its language, as
    `und`: Unicode's word boundaries then separate its words. Texts are cut at `max_text_length` words.

    Examples:
        >>> processor = LiweProcessor(MuralImageProcessor(), frequent_characters({"de": captions}))
        >>> processor(text="ein rotes Auto", language="de", return_tensors="pt")["input_ids"]  # [1, 3, 26]
    """

    auto_classes = ("AutoProcessor",)
    unknown_id = UNKNOWN_ID
    needs_language = False

    def __init__(
        self, image_processor: Any, characters: str, max_text_length: int = 40, word_length: int = 26
    ) -> None:
        super().__init__(image_processor, max_text_length)
        self._ids = {character: character_id for character_id, character in enumerate(characters, SPECIAL_IDS)}
        if len(self._ids) != len(characters) or not characters:
            raise InputError(f"characters={truncated_repr(characters)}: give each once")
        self.characters, self.word_length = characters, word_length

    @property
    def vocab_size(self) -> int:
        return SPECIAL_IDS + len(self.characters)

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        for text, language in zip(texts, languages, strict=True):
            if language == UNDETERMINED and _RULES_OF_A_LANGUAGE.search(text):
                advice = "whose rules find its words: give language='zh'"
                raise InputError(f"{truncated_repr(text)} came without its language, {advice}")
        whole = [self._words(text, language) for text, language in zip(texts, languages, strict=True)]
        return self.encode_rows(texts, whole, layout, [PADDING_ID] * self.word_length)

    def _words(self, text: str, language: str) -> list[list[int]]:
        words = [self._characters(word)[: self.word_length] for word in split_words(text, language)]
        return [word + [PADDING_ID] * (self.word_length - len(word)) for word in words or [[UNKNOWN_ID]]]

    def _characters(self, word: str) -> list[int]:
        return [self._ids.get(character, UNKNOWN_ID) for character in word]

    def ids_of(self, text: str, language: str) -> list[int]:
        return self._characters("".join(split_words(text, language)))
