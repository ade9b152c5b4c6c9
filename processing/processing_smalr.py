"""SMALR's processor: a separate vocabulary of words for every language (Burns et al. 2020, section 3; texts of at most
40 words for Multi30K, 60 for COCO)."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..configuration.configuration_smalr import PADDING_ID, SPECIAL_IDS, UNKNOWN_ID
from ..utils.errors import InputError
from ..utils.language_matching import learned_language
from ..utils.languages import normalize_language
from .processing_per_language import TextLayout, file_beside
from .word_tokenizers import WordLevelProcessor, frequent, split_words


def frequent_words(texts: Iterable[str], language: str, *, min_frequency: int = 1) -> list[str]:
    """Returns the words of texts that occur `min_frequency` times or more, as `frequent` sorts them."""
    counts = Counter(word for text in texts for word in split_words(text, language))
    if not (found := frequent(counts, min_frequency)):
        most = max(counts.values(), default=0)
        raise InputError(
            f"no word in {language!r} occurs {min_frequency} times; the most frequent occurs {most} times"
        )
    return found


VOCABULARIES_FILE = "vocabularies.json"


class SmalrProcessor(WordLevelProcessor):
    """Prepares images and texts for a `SmalrModel`: `pixel_values`, `input_ids`, `attention_mask`, `language_ids`. The
    `vocabularies`, from `frequent_words`, are in the order of the language ids; adding a language at the end changes
    no other. An id in `input_ids` means a different word in each language. Texts are cut at `max_text_length` words.

    Examples:
        >>> words = {"en": frequent_words(english, "en"), "de": frequent_words(german, "de")}
        >>> processor = SmalrProcessor(MuralImageProcessor(), words)
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)
    unknown_id = UNKNOWN_ID

    def __init__(
        self, image_processor: Any, vocabularies: Mapping[str, Sequence[str]], max_text_length: int = 40
    ) -> None:
        super().__init__(image_processor, max_text_length)
        # An attribute `vocabularies` would be saved in `processor_config.json` and shown by `print`.
        self._vocabularies = {normalize_language(tag): list(words) for tag, words in vocabularies.items()}
        if not 0 < len(self._vocabularies) == len(vocabularies):
            raise InputError(f"vocabularies must name languages, each once; given: {list(vocabularies)}")
        self._ids: dict[str, dict[str, int]] = {}
        for tag, words in self._vocabularies.items():
            if twice := [word for word, count in Counter(words).items() if count > 1 or not word]:
                raise InputError(f"{tag!r}: {twice[0]!r} is in the vocabulary twice, or is not a word")
            self._ids[tag] = {word: word_id for word_id, word in enumerate(words, SPECIAL_IDS)}

    @property
    def vocabularies(self) -> dict[str, list[str]]:
        return self._vocabularies

    @property
    def languages(self) -> list[str]:
        return list(self._vocabularies)

    def ids_of(self, text: str, language: str) -> list[int]:
        """Returns the ids of a text's words: 0 is padding, 1 [MASK], 2 [UNK], and the vocabulary begins at 3. A text
        without a word becomes one [UNK], so every text has a state."""
        ids = self._ids[language]
        return [ids.get(word, UNKNOWN_ID) for word in split_words(text, language)] or [UNKNOWN_ID]

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        languages = [learned_language(language, self.languages) for language in languages]
        whole = [self.ids_of(text, language) for text, language in zip(texts, languages, strict=True)]
        known = [self.languages.index(language) for language in languages]
        return self.encode_rows(texts, whole, layout, PADDING_ID) | {"language_ids": known}

    def to_json_file(self, json_file_path: str | os.PathLike) -> None:
        """Writes the vocabularies next to the settings, in time for `push_to_hub=True` to upload both."""
        super().to_json_file(json_file_path)
        text = json.dumps(self._vocabularies, ensure_ascii=False, indent=0)  # one line for each word
        Path(json_file_path).with_name(VOCABULARIES_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def get_processor_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        settings, remaining = super().get_processor_dict(pretrained_model_name_or_path, **kwargs)
        path = file_beside(pretrained_model_name_or_path, VOCABULARIES_FILE, kwargs)
        return settings | {"vocabularies": json.loads(path.read_text("utf-8"))}, remaining
