"""Translations kept on disk, each text once: a translation model takes longer than all else in most experiments.

Each model has an SQLite file of its own, which its fingerprint names, with a row for every pair of languages and text.
Translations are written some hundred at a time, so that a process that is killed loses no more than these, and several
processes may share one file: none translates what another translates.
"""

import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from datasets import config

from ..data.corpus.corpus import captions_of
from ..data.corpus.loading import load_translations
from ..data.corpus.tables import TRANSLATION_FILES
from ..modeling.encoding import progress_bar
from ..utils.errors import InputError, LanguageTagError, SaveError
from ..utils.files import errors_naming, wait_for_lock
from ..utils.languages import normalize_language
from .translation import LanguagePair, Seq2SeqTranslator, Translator

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "translations"

_TABLE = """CREATE TABLE IF NOT EXISTS translations (
    source TEXT, target TEXT, text TEXT, translation TEXT NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (source, target, text)
) WITHOUT ROWID"""
_BLOCK = 256  # number of texts that are translated and written together
_ASKED = 500  # number of texts that are looked up together
_PATIENCE = 60.0  # seconds to wait for another process that writes


class CachedTranslator:
    """A translator whose translations are kept on disk.

    Args:
        translator: the translator.
        key: the name of its file; by default the fingerprint of a `Seq2SeqTranslator`, which other weights or settings
            change. A translator of another kind needs a name that changes whenever its translations would.
        folder: the folder of the files; by default `translations` in the cache of `datasets`.
        show_progress: as in `Embedder.encode_text`.

    Examples:
        >>> translator = CachedTranslator(Seq2SeqTranslator.from_pretrained("facebook/nllb-200-distilled-600M"))
        >>> translator.translate(["a red car"], "en", "sw")
    """

    def __init__(
        self,
        translator: Translator,
        *,
        key: str | None = None,
        folder: str | Path | None = None,
        show_progress: bool | None = None,
    ) -> None:
        if key is None and not isinstance(translator, Seq2SeqTranslator):
            raise ValueError(f"{type(translator).__name__} has no fingerprint: give a key")
        self.translator, self.show_progress = translator, show_progress
        name = translator.fingerprint() if isinstance(translator, Seq2SeqTranslator) and key is None else key
        self.file = Path(folder or DEFAULT_CACHE) / f"{name}.sqlite"

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order; each text that is not on disk is translated once."""
        pair = normalize_language(source), normalize_language(target)
        distinct = list(dict.fromkeys(texts))
        with self._open() as database:
            known = _find(database, pair, distinct)
            missing = sorted((text for text in distinct if text not in known), key=len, reverse=True)
            with progress_bar(len(missing), f"Translating {pair[0]} to {pair[1]}", self.show_progress) as bar:
                for start in range(0, len(missing), _BLOCK):
                    block = missing[start : start + _BLOCK]
                    known |= self._translate(database, pair, block)
                    bar.update(len(block))
        return [known[text][0] for text in texts]

    def _translate(
        self, database: sqlite3.Connection, pair: tuple[str, str], texts: list[str]
    ) -> dict[str, tuple[str, float]]:
        """Translates some texts, and writes them; those that another process has written in the meantime are read."""
        with self._locked():
            found = _find(database, pair, texts)
            if new := [text for text in texts if text not in found]:
                began = time.perf_counter()
                translations = self.translator.translate(new, *pair)
                seconds = (time.perf_counter() - began) / len(new)
                made = {text: (each, seconds) for text, each in zip(new, translations, strict=True)}
                rows = [(*pair, text, *each) for text, each in made.items()]
                with database:
                    database.executemany("INSERT INTO translations VALUES (?, ?, ?, ?, ?)", rows)
                found |= made
        return found

    def seconds(self, texts: Sequence[str], source: str, target: str) -> float:
        """How long it took to translate texts, each once, whenever that was; what is not on disk took nothing."""
        pair = normalize_language(source), normalize_language(target)
        with self._open() as database:
            return sum(seconds for _, seconds in _find(database, pair, list(dict.fromkeys(texts))).values())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits, and logs it, until no other process translates with this file, so that processes share the work."""
        with ExitStack() as stack:
            with errors_naming(self.file):
                stack.enter_context(wait_for_lock(self.file))
            yield

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file as a database, which is made if there is none."""
        with errors_naming(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.file, timeout=_PATIENCE)) as database:
                with database:
                    database.execute(_TABLE)
                yield database
        except sqlite3.OperationalError as error:  # a full disk, a folder that is not writable
            raise SaveError(f"{self.file}: translations cannot be kept there: {error}") from error
        except sqlite3.DatabaseError as error:
            raise SaveError(
                f"{self.file} is damaged ({error}): delete it, and the texts are translated again"
            ) from error


def _find(database: sqlite3.Connection, pair: tuple[str, str], texts: Sequence[str]) -> dict[str, tuple[str, float]]:
    """The translations that are on disk, and the seconds that each took, by text."""
    found: dict[str, tuple[str, float]] = {}
    for start in range(0, len(texts), _ASKED):
        asked = texts[start : start + _ASKED]
        marks = ", ".join("?" * len(asked))
        rows = database.execute(
            "SELECT text, translation, seconds FROM translations "
            f"WHERE source = ? AND target = ? AND text IN ({marks})",
            (*pair, *asked),
        )
        found |= {text: (translation, seconds) for text, translation, seconds in rows}
    return found


# ---- Translation tables ----
# Translations from a file, behind the interface of a translator: what somebody has translated already, by a
# service or by hand, stands in for a translation model.
#
#     en              de                    zh
#     a red car       ein rotes Auto        一辆红色的汽车


class TranslationTable:
    """A translator that looks texts up, word for word; of several translations of a text, the first is taken.

    Args:
        file: a table that `load_translations` reads: `.tsv` with a header of language tags, or `.jsonl`.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = file
        self._found: dict[LanguagePair, dict[str, str]] = defaultdict(dict)
        for row in captions_of(load_translations(file, on_incomplete="skip")).to_pylist():
            for a in row:
                for b in row:
                    if a["language"] != b["language"]:
                        self._found[a["language"], b["language"]].setdefault(a["text"], b["text"])

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Looks texts up, in their order."""
        pair = normalize_language(source), normalize_language(target)
        if pair not in self._found:
            known = ", ".join(f"{a} to {b}" for a, b in sorted(self._found))
            raise LanguageTagError(f"{self.file}: no translations from {pair[0]} to {pair[1]}; there are {known}")
        found = self._found[pair]
        if missing := [text for text in dict.fromkeys(texts) if text not in found]:
            raise InputError(
                f"{self.file}: {len(missing):,} texts have no translation from {pair[0]} to {pair[1]}, such as "
                f"{missing[0][:80]!r}"
            )
        return [found[text] for text in texts]


def open_translator(
    source: str, *, pair: LanguagePair | None = None, batch_size: int = 32, **loading: Any
) -> Translator:
    """A translator by its name: a file of translations, or a translation model whose translations are kept on disk.

    Args:
        source: a `.tsv` or `.jsonl` file of translations; or a model, a folder or Hub id.
        pair, batch_size, loading: as in `Seq2SeqTranslator.from_pretrained`; not used for a file.
    """
    if Path(source).suffix in TRANSLATION_FILES:
        return TranslationTable(source)
    return CachedTranslator(Seq2SeqTranslator.from_pretrained(source, pair=pair, batch_size=batch_size, **loading))


__all__ = ["TranslationTable", "open_translator"]
