"""Machine translation of queries and captions, with any sequence-to-sequence model of transformers. A translator has
one method, `translate(texts, source, target)`, whose languages are BCP-47 tags. Two baselines use one: translate-train
and translate-test (Burns et al. 2020, SMALR, section 7.1)."""

import logging
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from datasets import Dataset, config
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..data.corpus.corpus import Caption, captions_of, describe, languages_of, with_captions
from ..data.corpus.loading import load_translations
from ..data.corpus.tables import TRANSLATION_FILES
from ..utils.errors import CorpusError, InputError, LanguageTagError, SaveError
from ..utils.files import errors_naming
from ..utils.identity import model_identity
from ..utils.language_matching import nearest_language
from ..utils.languages import language_and_script, language_for_each, normalize_language, normalize_languages
from ..utils.pretrained import load_model, load_processor
from .embedder import Embedder, batches, default_device

logger = logging.getLogger(__name__)

LanguagePair = tuple[str, str]
Written = tuple[str, str]  # language and script


class Translator(Protocol):
    """The interface of a translator."""

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts from `source` to `target`, in their order."""


# ---- How translation models are told the languages ----
# It differs from family to family:
#
# NLLB, M2M100, mBART-50  a token for each language (`deu_Latn`, `__de__`, `de_DE`): the tokenizer is set to the
#                         source's, and the translation begins with the target's
# MADLAD-400              a token of the target before the text (`<2de>`); the model finds the source out
# Marian, many targets    the same, as `>>deu<<`
# Marian, one pair        nothing; its tokenizer says which pair, or the user does

_TARGET_TOKEN = re.compile(r"<2(\w+)>|>>([\w-]+)<<")
_MANY = "mul"  # the tag of several languages, by which Marian's models call them


def _tag(code: Any) -> str | None:
    """The tag of a code in a tokenizer's settings; None for a family of languages, such as `ROMANCE`."""
    try:
        return normalize_language(code)
    except LanguageTagError:
        return None


def source_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[Written, str]:
    """The tokens by which a tokenizer states the language of a text (`src_lang`); empty if it does not."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    # M2M100's tokens of languages are not among its special tokens.
    return _by_language([*tokenizer.all_special_tokens, *getattr(tokenizer, "lang_code_to_token", {}).values()])


def token_of(tokens: Mapping[Written, str], language: str) -> str | None:
    """Returns the token of a language, or of the nearest one: NLLB has `pbt_Arab` for `ps`, `nob_Latn` for `no`."""
    if (found := tokens.get(language_and_script(language))) is not None:
        return found
    by_tag = {"-".join(filter(None, written)): token for written, token in tokens.items()}
    return by_tag.get(nearest_language(language, tuple(by_tag)))


def _by_language(tokens: Iterable[str]) -> dict[Written, str]:
    """Tokens of languages by language and script; other tokens, such as `<s>`, are left out."""
    found: dict[Written, str] = {}
    for token in tokens:
        match = _TARGET_TOKEN.fullmatch(token)
        tag = _tag((match[1] or match[2]) if match else token.strip("_"))
        if tag is not None:
            found.setdefault(language_and_script(tag), token)
    return found


class Seq2SeqTranslator:
    """A translation model of transformers: Marian, M2M100, NLLB, mBART-50, MADLAD-400 and similar models; `pair` is
    the source and target language of a model that translates one pair and does not state it. The model's own
    `generation_config` sets how it generates: beams, length and so on. Without a length there, a translation may have
    twice as many tokens as the longest text of its batch, and 20 more."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        pair: LanguagePair | None = None,
        batch_size: int = 32,
    ) -> None:
        self.model, self.tokenizer, self.batch_size = model.eval(), tokenizer, batch_size
        self._tokenizing = threading.Lock()
        self._source_tokens = source_tokens(tokenizer)
        # The tokens of a vocabulary that precede a text and state its target.
        self._tokens = self._source_tokens or _by_language(
            sorted(filter(_TARGET_TOKEN.fullmatch, tokenizer.get_vocab()))
        )
        stated = [getattr(tokenizer, name, None) for name in ("source_lang", "target_lang")]  # Marian's
        self._source, self._target = map(_tag, pair or stated)
        if not (self._tokens or (self._source and self._target)):
            raise InputError(f"{type(tokenizer).__name__} has no tokens for languages: give pair=('en', 'de')")

    @classmethod
    def from_pretrained(
        cls,
        folder_or_repo: str | Path,
        *,
        pair: LanguagePair | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        **loading: Any,
    ) -> Self:
        """Loads model and tokenizer, by default onto the accelerator; `loading` are arguments of `from_pretrained`."""
        model = load_model(AutoModelForSeq2SeqLM, folder_or_repo, **loading)
        tokenizer = load_processor(AutoTokenizer, folder_or_repo, **loading)
        return cls(model.to(device or default_device()), tokenizer, pair=pair, batch_size=batch_size)

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order. A warning counts translations that ended at the greatest length."""
        prefix, source_code, options = self._request(*_normalized(source, target))
        settings, longest = self.model.generation_config, self.tokenizer.model_max_length
        ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
        ends = [each for each in (*ends, self.tokenizer.pad_token_id) if each is not None]
        translations, cut = [""] * len(texts), 0
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))  # little of a batch is padding
        for start in range(0, len(texts), self.batch_size):
            indices = order[start : start + self.batch_size]
            batch = [prefix + texts[index] for index in indices]
            with self._tokenizing:  # another thread may translate from another language
                if source_code is not None:
                    self.tokenizer.src_lang = source_code
                inputs = self.tokenizer(batch, padding=True, return_tensors="pt", verbose=False)  # checked below
            for text, length in zip(batch, inputs["attention_mask"].sum(1).tolist(), strict=True):
                if length > longest:
                    raise InputError(f"a text of {length} tokens ({text[:60]!r}…): the model reads {longest}")
            names = ("input_ids", "attention_mask")  # without the segments that BERT's tokenizers also make
            read: dict[str, Any] = {name: inputs[name].to(self.model.device) for name in names}
            if settings.max_length is None and settings.max_new_tokens is None:  # transformers would take 20 tokens
                read["max_new_tokens"] = 2 * read["input_ids"].shape[1] + 20
            generated = self.model.generate(**read, **options).cpu()
            cut += int((~torch.isin(generated[:, -1], torch.tensor(ends))).sum())
            found = self.tokenizer.batch_decode(generated, skip_special_tokens=True)
            for index, text in zip(indices, found, strict=True):
                translations[index] = text
        if cut:
            told = "%d of %d translations from %s to %s were cut at the greatest length"
            logger.warning(told, cut, len(texts), source, target)
        return translations

    def _request(self, source: str, target: str) -> tuple[str, str | None, dict[str, int]]:
        """How to ask for a translation from `source` to `target`, two canonical tags: what precedes each text, the
        tokenizer's `src_lang`, and arguments of `generate`."""
        if self._source_tokens:
            number = self.tokenizer.convert_tokens_to_ids(self._token(target))
            # M2M100's token of a language is its code between underscores.
            return "", self._token(source).strip("_"), {"forced_bos_token_id": number}
        for only, asked in ((self._source, source), (None if self._tokens else self._target, target)):
            if only and only != _MANY and language_and_script(only) != language_and_script(asked):
                of_pair = f"{self._source} to {self._target or 'several languages'}"
                raise LanguageTagError(f"this model translates {of_pair}, not {source} to {target}")
        return f"{self._token(target)} " if self._tokens else "", None, {}

    def _token(self, language: str) -> str:
        if (token := token_of(self._tokens, language)) is None:
            raise LanguageTagError(f"this translation model has no token for {language!r}")
        return token

    def fingerprint(self) -> str:
        """A digest of everything that a translation depends on, apart from the text and its languages."""
        return model_identity(self.model, self.tokenizer, self.model.generation_config.to_json_string())


class TranslatorsByPair:
    """Combines translators of one pair of languages each, such as Marian's models, into one translator.

    Examples:
        >>> german = Seq2SeqTranslator.from_pretrained("Helsinki-NLP/opus-mt-en-de", pair=("en", "de"))
        >>> TranslatorsByPair({("en", "de"): german}).translate(["a red car"], "en", "de")
    """

    def __init__(self, translators: Mapping[LanguagePair, Translator]) -> None:
        self._translators = {_normalized(*pair): translator for pair, translator in translators.items()}

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts by the translator of the pair."""
        pair = _normalized(source, target)
        return _of_pair(self._translators, pair, "no translator").translate(texts, *pair)


class TranslationTable:
    """Looks whole texts up in a `.tsv` or `.jsonl` file (`load_translations`), and takes the first of several."""

    def __init__(self, file: str | Path) -> None:
        self.file = file
        self._found: dict[LanguagePair, dict[str, str]] = defaultdict(dict)
        for row in captions_of(load_translations(file, on_incomplete="skip")).to_pylist():
            for a, b in permutations(row, 2):
                if a["language"] != b["language"]:
                    self._found[a["language"], b["language"]].setdefault(a["text"], b["text"])

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Looks texts up, in their order."""
        pair = _normalized(source, target)
        found = _of_pair(self._found, pair, f"{self.file}: no translations")
        if missing := [text for text in dict.fromkeys(texts) if text not in found]:
            told = f"{len(missing):,} texts have no translation from {pair[0]} to {pair[1]}"
            raise InputError(f"{self.file}: {told}, such as {missing[0][:80]!r}")
        return [found[text] for text in texts]


def _normalized(source: str, target: str) -> LanguagePair:
    return normalize_language(source), normalize_language(target)


def _of_pair(values: Mapping[LanguagePair, Any], pair: LanguagePair, missing: str) -> Any:
    if pair not in values:
        known = ", ".join(f"{a} to {b}" for a, b in sorted(values))
        raise LanguageTagError(f"{missing} from {pair[0]} to {pair[1]}; there are {known}")
    return values[pair]


# ---- Translations on disk: an SQLite file for each model, with a row for each pair of languages and text ----

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "translations"
_TABLE = """CREATE TABLE IF NOT EXISTS translations (
    source TEXT, target TEXT, text TEXT, translation TEXT NOT NULL, PRIMARY KEY (source, target, text)
) WITHOUT ROWID"""
_LOOK_UP = "SELECT translation FROM translations WHERE source = ? AND target = ? AND text = ?"
_ADD = "INSERT OR IGNORE INTO translations VALUES (?, ?, ?, ?)"
_BLOCK = 256  # texts that are translated and written together: a process that is killed loses no more
_TIMEOUT_SECONDS = 60.0  # to wait for another process that writes


class CachedTranslator:
    """A translator whose translations are kept on disk: if two processes translate the same text, both return the one
    that was written first. The file `key` is by default the fingerprint of a `Seq2SeqTranslator`, which other weights
    or settings change; another translator needs a key that changes whenever its translations would. The `folder` is by
    default `translations` in the cache of `datasets`."""

    def __init__(self, translator: Translator, *, key: str | None = None, folder: str | Path | None = None) -> None:
        if key is None:
            if not isinstance(translator, Seq2SeqTranslator):
                raise ValueError(f"{type(translator).__name__} has no fingerprint: give a key")
            key = translator.fingerprint()
        self.translator = translator
        self.file = Path(folder or DEFAULT_CACHE) / f"{key}.sqlite"

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order; each text that is not on disk is translated once."""
        pair = _normalized(source, target)
        with errors_naming(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.file, timeout=_TIMEOUT_SECONDS)) as database:
                with database:
                    database.execute(_TABLE)
                known = _find(database, pair, dict.fromkeys(texts))
                missing = sorted((text for text in dict.fromkeys(texts) if text not in known), key=len, reverse=True)
                for block in batches(missing, _BLOCK, f"Translating {pair[0]} to {pair[1]}"):
                    rows = zip(block, self.translator.translate(block, *pair), strict=True)
                    with database:
                        database.executemany(_ADD, [(*pair, *row) for row in rows])
                known |= _find(database, pair, missing)
        except sqlite3.DatabaseError as error:  # a full disk, a folder that is not writable, a damaged file
            raise SaveError(f"{self.file}: {error}; if the file is damaged, delete it") from error
        return [known[text] for text in texts]


def _find(database: sqlite3.Connection, pair: LanguagePair, texts: Iterable[str]) -> dict[str, str]:
    rows = ((text, database.execute(_LOOK_UP, (*pair, text)).fetchone()) for text in texts)
    return {text: row[0] for text, row in rows if row is not None}


def open_translator(source: str, **options: Any) -> Translator:
    """A translator by its name: a `.tsv` or `.jsonl` file of translations, or a translation model (folder or Hub id),
    whose translations are kept on disk, with the arguments of `Seq2SeqTranslator.from_pretrained`."""
    if Path(source).suffix in TRANSLATION_FILES:
        return TranslationTable(source)
    return CachedTranslator(Seq2SeqTranslator.from_pretrained(source, **options))


# ---- Translated captions, and queries that are translated before they are encoded ----


def translated_captions(
    corpus: Dataset,
    translator: Translator,
    *,
    source: str,
    targets: str | list[str] | tuple[str, ...],
    everywhere: bool = False,
    replace: bool = False,
) -> Dataset:
    """Adds translations of the captions in one language as captions of other languages, after those that a row has, or
    instead with `replace`. A row with a caption that was translated to nothing gets no captions in that language,
    which a warning counts. With `everywhere`, rows that have captions in a language also get translations into it, as
    in SMALR's data. A `CachedTranslator` keeps its translations."""
    source, wanted = normalize_language(source), normalize_languages(targets)
    if source in wanted:
        raise CorpusError(f"captions in {source} are not translated into {source}")
    if source not in (present := languages_of(corpus)):
        raise CorpusError(f"no captions in {source} to translate; the corpus has {describe(present)}")
    captions: Iterable[list[Caption]] = corpus.with_format(None)["captions"]
    rows = [[each for each in row if not (replace and each["language"] in wanted)] for row in captions]
    added: list[list[Caption]] = [[] for _ in rows]
    for target in wanted:
        asked = [
            [each["text"] for each in row if each["language"] == source]
            if everywhere or all(each["language"] != target for each in row)
            else []
            for row in rows
        ]
        found = _translations(translator, [text for texts in asked for text in texts], source, target)
        for new, texts in zip(added, asked, strict=True):
            if all(found[text].strip() for text in texts):
                new += [{"language": target, "text": found[text]} for text in texts]
    return with_captions(corpus, [[*row, *new] for row, new in zip(rows, added, strict=True)])


def _translations(translator: Translator, texts: Iterable[str], source: str, target: str) -> dict[str, str]:
    """The translations by text, each made once; a warning counts those that are empty."""
    distinct = list(dict.fromkeys(texts))
    found = dict(zip(distinct, translator.translate(distinct, source, target), strict=True)) if distinct else {}
    if empty := [text for text, translation in found.items() if not translation.strip()]:
        logger.warning(
            "%d of %d texts were translated from %s to nothing in %s, such as %r, and have no translation",
            *(len(empty), len(distinct), source, target, empty[0]),
        )
    return found


class TranslatingEmbedder:
    """Encodes texts in any language of a translator by their translations into the language `to`, and images as they
    are; serves as an `Embedder`. `n_empty` texts were translated to nothing and encoded as they are."""

    def __init__(self, embedder: Embedder, translator: Translator, *, to: str = "en") -> None:
        self.embedder, self.translator, self.to = embedder, translator, normalize_language(to)
        self.n_empty = 0

    def encode_image(self, images: Any, **options: Any) -> np.ndarray:
        """As `Embedder.encode_image`."""
        return self.embedder.encode_image(images, **options)

    def encode_text(self, texts: str | Sequence[str], *, language: str | Sequence[str], **options: Any) -> np.ndarray:
        """As `Embedder.encode_text`, of the translations."""
        given = [texts] if isinstance(texts, str) else list(texts)
        languages = language_for_each(language, len(given))
        for tag in dict.fromkeys(languages):
            if tag != self.to:
                rows = [row for row, each in enumerate(languages) if each == tag]
                found = _translations(self.translator, [given[row] for row in rows], tag, self.to)
                self.n_empty += sum(not translation.strip() for translation in found.values())
                for row in rows:
                    given[row] = found[given[row]] if found[given[row]].strip() else given[row]
        return self.embedder.encode_text(given, language=self.to, **options)
