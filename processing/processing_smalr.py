"""SMALR's processor: every language has its own vocabulary of words; a batch may mix languages (Burns et al. 2020,
section 3; texts of at most 40 words for Multi30K, 60 for COCO)."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from ..configuration.configuration_smalr import PADDING_ID
from ..configuration.errors import VocabularyError
from ..configuration.languages import language_id
from .processing_text_image import TextLayout
from .processing_word_level import WordLevelProcessor
from .word_vocabulary import WordVocabulary

VOCABULARIES_FILE = "vocabularies.json"
_HUB_ARGUMENTS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


class SmalrProcessor(WordLevelProcessor):
    """Prepares images and texts for a `SmalrModel`: `pixel_values`, `input_ids`, `attention_mask`, `language_ids`.

    An id in `input_ids` is a different word in each language (`word_vocabulary`). Texts are padded to the longest of
    the batch with 0, and cut at `max_text_length` words; a text without a word is read as one [UNK].

    Args:
        image_processor: such as a `MuralImageProcessor`.
        vocabularies: words of each language, as `frequent_words` returns them. The order is that of the language ids;
            a language that is added at the end changes no other.
        max_text_length: number of words that are read of a text.

    Raises:
        LanguageTagError: if a tag names no language.
        VocabularyError: if there is no language, or its words cannot be a vocabulary.

    Examples:
        >>> words = {"en": frequent_words(english, "en"), "de": frequent_words(german, "de")}
        >>> processor = SmalrProcessor(MuralImageProcessor(), words)
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)

    def __init__(
        self, image_processor: Any, vocabularies: Mapping[str, Sequence[str]], max_text_length: int = 40
    ) -> None:
        super().__init__(image_processor, max_text_length)
        readers = [WordVocabulary(language, words) for language, words in vocabularies.items()]
        # An attribute `vocabularies` would be written into `processor_config.json` and shown by `print`.
        self._vocabularies = {reader.language: reader for reader in readers}
        if not readers or len(self._vocabularies) < len(readers):
            raise VocabularyError(
                f"vocabularies must name at least one language, and each only once; given: {list(vocabularies)}"
            )

    @property
    def vocabularies(self) -> dict[str, WordVocabulary]:
        """Vocabularies by language."""
        return self._vocabularies

    @property
    def languages(self) -> list[str]:
        """Languages, in the order of their ids."""
        return list(self._vocabularies)

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        """As in `PerLanguageProcessor`."""
        language_ids = [language_id(language, self.languages) for language in languages]
        whole = [self._vocabularies[language].encode(text) for text, language in zip(texts, languages, strict=True)]
        rows = self.cut(texts, whole, layout)
        padded: dict[str, list[Any]] = {"input_ids": layout.padded(rows, [PADDING_ID] * len(rows))}  # [N, T]
        return padded | layout.mask(rows) | {"language_ids": language_ids}

    # ---- Files ----

    def to_json_file(self, json_file_path: str | os.PathLike) -> None:
        """Writes the vocabularies beside the settings, at a time when `push_to_hub=True` uploads both."""
        super().to_json_file(json_file_path)
        words = {language: reader.words for language, reader in self._vocabularies.items()}
        text = json.dumps(words, ensure_ascii=False, indent=0)  # one line for each word
        Path(json_file_path).with_name(VOCABULARIES_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def get_processor_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the settings with the vocabularies, from a folder or the Hub."""
        location = {name: kwargs[name] for name in _HUB_ARGUMENTS if name in kwargs}
        settings, remaining = super().get_processor_dict(pretrained_model_name_or_path, **kwargs)
        path = cached_file(pretrained_model_name_or_path, VOCABULARIES_FILE, **location)
        return settings | {"vocabularies": json.loads(Path(path).read_text("utf-8"))}, remaining


__all__ = ["SmalrProcessor"]
