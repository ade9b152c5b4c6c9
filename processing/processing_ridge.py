"""Processor of a `RidgeModel`: texts as characters, as tokens, and translated word by word."""

import os
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..utils.errors import LanguageTagError, ModelFolderError
from ..utils.language_matching import learned_language
from ..utils.languages import UNDETERMINED, normalize_language, normalize_languages
from .glossary import LONGEST_PIECE, MOST_WORDS, Glossary, first_words, is_word
from .processing_dual_encoder import note_cut_texts
from .processing_mla import ExtendedProcessor
from .processing_per_language import TextLayout, counting_cut_texts, file_beside
from .text_normalization import NORMALIZATION, checked_normalization, folded, spelling_of

MOST_CHARACTERS = 512
GLOSSARY_FILE = "glossary.tsv"
_READS_GLOSSARY = "reads_glossary"  # in `processor_config.json`
# Minimum share of a text without a language that a glossary must contain: to use the map of its language, and to
# translate the text.
_ENOUGH, _ENOUGH_TO_GLOSS = 0.5, 0.3


def spaced(text: str) -> str:
    """Returns a text in lower case and NFKC, with a space at both ends and between words."""
    return f" {' '.join(unicodedata.normalize('NFKC', text).lower().split())} "


class RidgeProcessor(ExtendedProcessor):
    """Prepares images and texts: `pixel_values`, `input_ids`, `attention_mask`, `language_ids` and `character_ids`;
    with glossaries also `gloss_ids` and `gloss_attention_mask`.

    The glossaries are saved as `glossary.tsv`: language, word, native translation. Anyone can correct this file.

    Args:
        max_text_length, text_prompt: length at which texts are cut for the text encoder, in tokens, and their prefix.
        max_native_length, pad_native: how the native model reads texts, as in `MlaStudentProcessor`.
        any_language: whether to read a text in any other language as one without a language.
        has_text_encoder: by default, whether there is an `encoder_tokenizer`. A saved processor always has one.
        normalization: version of `text_normalization` for texts that are not native; 0 leaves texts unchanged.
        language_codes: the codes (`{"de": "deu_Latn"}`) of a tokenizer that adds the language to texts, as NLLB's.
        by_inflection: how glossaries read unknown words; older folders, which do not state it, read as before.

    Examples:
        >>> processor = RidgeProcessor.for_native(clip.config, clip_processor, languages=["mi"])
        >>> inputs = processor(text=["a red car", "he motokā whero"], language=["en", "mi"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)
    reads_unstated: ClassVar[bool] = True

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        encoder_tokenizer: Any = None,
        native_language: str = "en",
        languages: list[str] | tuple[str, ...] = (),
        max_text_length: int = 128,
        max_native_length: int = 77,
        pad_native: bool = False,
        text_prompt: str = "",
        any_language: bool = False,
        has_text_encoder: bool | None = None,
        glossaries: Mapping[str, Mapping[str, str]] | None = None,
        normalization: int = NORMALIZATION,
        language_codes: Mapping[str, str] | None = None,
        by_inflection: bool = True,
    ) -> None:
        super().__init__(image_processor, tokenizer, encoder_tokenizer or tokenizer)
        self.native_language = normalize_language(native_language)
        self.languages = normalize_languages(list(languages))
        self.max_text_length, self.max_native_length, self.pad_native = max_text_length, max_native_length, pad_native
        self.text_prompt, self.any_language = text_prompt, any_language
        self.has_text_encoder = encoder_tokenizer is not None if has_text_encoder is None else has_text_encoder
        self.normalization = checked_normalization(normalization)
        self.language_codes, self.by_inflection = dict(language_codes or {}), by_inflection
        # An attribute `glossaries` would be saved in `processor_config.json` and shown by `print`.
        self._glossaries = {normalize_language(tag): self.glossary(words) for tag, words in (glossaries or {}).items()}

    @property
    def glossaries(self) -> dict[str, Glossary]:
        return self._glossaries

    def glossary(self, entries: Mapping[str, str]) -> Glossary:
        return Glossary(entries, self.by_inflection)

    @property
    def known_languages(self) -> list[str]:
        """The languages in the order of their ids; the second is `und`, for texts without a language."""
        return [self.native_language, UNDETERMINED, *self.languages]

    @property
    def model_input_names(self) -> list[str]:
        glosses = ["gloss_ids", "gloss_attention_mask"] if self._glossaries else []
        return [*super().model_input_names, "character_ids", *glosses]

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        """A text without a language is read in the language whose glossary contains most of its words; if
        none contains enough, the map that all languages share reads it."""
        learned = {tag: self._learned(tag) for tag in {*languages}}
        read = [self._language_and_glossary(text, learned[tag]) for text, tag in zip(texts, languages, strict=True)]
        stated, known = [tag for tag, _ in read], self.known_languages
        spelled = [self.folded([text], tag)[0] for text, tag in zip(texts, stated, strict=True)]
        glosses = self._glosses(texts, spelled, [glossary for _, glossary in read], layout)
        ids = [known.index(tag if tag in known else UNDETERMINED) for tag in stated]  # others with `any_language` only
        inputs = self.encode_rows(texts, [known[index] for index in ids], [index == 0 for index in ids], layout)
        for row, (index, tag) in enumerate(zip(ids, stated, strict=True)):
            if index and (codes := self.language_token(tag)):
                own, code = codes
                inputs["input_ids"][row] = [code if token == own else token for token in inputs["input_ids"][row]]
        if not self.has_text_encoder:
            rows = zip(texts, spelled, ids, strict=True)
            cut = [text for text, own, index in rows if index and len(spaced(own)) > MOST_CHARACTERS]
            note_cut_texts(cut, f"{MOST_CHARACTERS} characters")
        return inputs | {"language_ids": ids, "character_ids": code_points(spelled).tolist(), **glosses}

    def language_token(self, language: str) -> tuple[int, int] | None:
        """Returns the ids of the tokens that the encoder's tokenizer adds for its default language and for this one;
        None if it adds none."""
        code = self.language_codes.get(language)
        if code is None:
            return None
        own, stated = self.encoder_tokenizer.convert_tokens_to_ids([self.encoder_tokenizer.src_lang, code])
        return own, stated

    def _learned(self, tag: str) -> str:
        if not self.any_language:
            return learned_language(tag, self.known_languages)
        try:
            return learned_language(tag, [*self.known_languages, *self._glossaries])
        except LanguageTagError:
            return tag

    def _language_and_glossary(self, text: str, tag: str) -> tuple[str, Glossary | None]:
        glossaries = self._glossaries
        if tag != UNDETERMINED or not glossaries:
            own = glossaries.get(tag) or glossaries.get(tag.partition("-")[0])
            return tag, None if tag == self.native_language else own
        # Languages with the same spelling share their words.
        spellings = {language: spelling_of(language) for language in glossaries}
        spelled = {each: first_words(*self.folded([text], each)) for each in {*spellings.values()}}
        shares = {language: own.known(spelled[spellings[language]]) for language, own in glossaries.items()}
        best = max(shares, key=shares.__getitem__)
        words = first_words(text)
        native = max(glossary.native(words) for glossary in glossaries.values())
        if native > shares[best]:
            return (self.native_language if native >= _ENOUGH else UNDETERMINED), None
        is_only = self.languages == [best]
        is_read_as = best in self.languages and (shares[best] >= _ENOUGH or is_only)
        has_enough = shares[best] >= _ENOUGH_TO_GLOSS or is_only
        return best if is_read_as else UNDETERMINED, glossaries[best] if has_enough else None

    def _glosses(
        self, texts: list[str], spelled: list[str], glossaries: list[Glossary | None], layout: TextLayout
    ) -> dict[str, list[Any]]:
        """Returns the tokens of word-by-word translations of folded texts for the native model; the mask is 0 in rows
        without a known word."""
        if not self._glossaries:
            return {}
        words = [own.glosses(text) if own else [] for text, own in zip(spelled, glossaries, strict=True)]
        found = [" ".join(each[:MOST_WORDS]) for each in words]
        if not any(found):  # an exported graph takes at least two tokens
            return {name: [[0, 0]] * len(texts) for name in ("gloss_ids", "gloss_attention_mask")}
        layout = replace(layout, max_length=self.max_text_length, cut=True)
        with counting_cut_texts() as cut:
            read = iter(self.native_tokens([gloss for gloss in found if gloss], layout))
        rows = [next(read) if gloss else [] for gloss in found]
        too_long = [len(each) > MOST_WORDS or gloss in cut for each, gloss in zip(words, found, strict=True)]
        limit = f"{MOST_WORDS} words or {self.max_native_length} tokens, translated word by word,"
        note_cut_texts(list(compress(texts, too_long)), limit)
        layout = replace(layout, max_length=self.max_native_length, with_mask=True)
        padded = layout.padded(rows, [self.tokenizer.pad_token_id or 0] * len(rows))
        return {"gloss_ids": padded, **layout.mask(rows, "gloss_attention_mask")}

    def folded(self, texts: Iterable[str], language: str) -> list[str]:
        return [folded(text, language) for text in texts] if self.normalization else list(texts)

    def characters(self, texts: list[str], language: str) -> Tensor:
        """Returns the code points of texts [N, C], 0 at padding."""
        return code_points(self.folded(texts, language))

    def to_dict(self) -> dict[str, Any]:
        """Also states whether `glossary.tsv` belongs to the processor: an existing file may have another origin."""
        return super().to_dict() | {_READS_GLOSSARY: bool(self._glossaries)}

    def to_json_file(self, json_file_path: str | os.PathLike) -> None:
        """Writes the glossaries next to the settings, in time for `push_to_hub=True` to upload both."""
        super().to_json_file(json_file_path)
        if self._glossaries:
            words = [(tag, *each) for tag, own in self._glossaries.items() for each in own.entries.items()]
            text = "".join(f"{tag}\t{word}\t{native}\n" for tag, word, native in words)
            Path(json_file_path).with_name(GLOSSARY_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def get_processor_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        settings, remaining = super().get_processor_dict(pretrained_model_name_or_path, **kwargs)
        settings = {"normalization": 0, "by_inflection": False} | settings
        if settings.pop(_READS_GLOSSARY, True):
            path = file_beside(pretrained_model_name_or_path, GLOSSARY_FILE, kwargs, is_needed=False)
            if path is not None:
                settings["glossaries"] = _read_glossaries(path, settings)
        return settings, remaining


def code_points(texts: list[str]) -> Tensor:
    """Returns the code points of texts in lower case and NFKC [N, C], 0 at padding."""
    read = [spaced(text)[:MOST_CHARACTERS] for text in texts]
    width = max(map(len, read), default=0)
    codes = "".join(text.ljust(width, "\0") for text in read).encode("utf-32-le", "surrogatepass")
    return torch.from_numpy(np.frombuffer(codes, "<u4").astype(np.int64).reshape(len(texts), width))


def _read_glossaries(path: Path, settings: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Reads the glossaries of a processor with these settings, and refuses lines that would never be read."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path} is not UTF-8: save it as UTF-8 ({error})") from error
    found: dict[str, dict[str, str]] = {}
    languages: dict[str, str] = {}  # as they are spelled in the file
    for number, columns in enumerate(([each.strip() for each in line.split("\t")] for line in lines), 1):
        try:
            if not any(columns):
                continue
            if len(columns) != 3:
                raise ValueError(f"has {len(columns)} columns, not a language, a word and native words between tabs")
            tag, word, native = columns
            if tag not in languages:
                languages[tag] = _checked_language(normalize_language(tag), settings)
            word = folded(word, languages[tag]) if settings["normalization"] else word
            word = unicodedata.normalize("NFKC", word).lower()
            if not is_word(word):
                raise ValueError(
                    f"{word!r} is not one word: letters, digits, apostrophes and hyphens, and in a script without "
                    f"spaces at most {LONGEST_PIECE} of them"
                )
            other = found.setdefault(languages[tag], {}).setdefault(word, native)
            if other != native:
                raise ValueError(f"{word!r} is {native!r} here, and {other!r} in a line above")
        except ValueError as error:
            raise ModelFolderError(f"{path}, line {number}: {error}") from error
    return found


def _checked_language(tag: str, settings: Mapping[str, Any]) -> str:
    native, languages = settings.get("native_language", "en"), settings.get("languages", [])
    if tag == native:
        raise ValueError(f"texts in {tag}, the native language, are read as they are")
    learned = {name for language in languages for name in (language, language.partition("-")[0])}
    if tag not in learned and not settings.get("any_language"):
        raise ValueError(f"this model has not learned {tag!r}; its languages are {', '.join(languages)}")
    return tag
