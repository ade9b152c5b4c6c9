"""Translations from a file, behind the interface of a translator: what somebody has translated already, by a service
or by hand, stands in for a translation model.

    en              de                    zh
    a red car       ein rotes Auto        一辆红色的汽车
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..configuration.errors import InputError, UnknownLanguageError
from ..configuration.languages import normalize_language
from ..data.corpus.corpus import captions_of
from ..data.corpus.loading import load_translations
from ..data.corpus.translation_files import TRANSLATION_FILES
from .translation import Seq2SeqTranslator, Translator
from .translation_cache import CachedTranslator
from .translation_codes import LanguagePair


class TranslationTable:
    """A translator that looks texts up, word for word; of several translations of a text, the first is taken.

    Args:
        file: a table that `load_translations` reads: `.tsv` with a header of language tags, or `.jsonl`.

    Raises:
        CorpusError, LanguageTagError: for a file that cannot be read.
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
        """Looks texts up, in their order.

        Raises:
            UnknownLanguageError: for a pair of languages of which the table has no row.
            InputError: for texts that it does not have; the message counts them and names one.
        """
        pair = normalize_language(source), normalize_language(target)
        if pair not in self._found:
            known = ", ".join(f"{a} to {b}" for a, b in sorted(self._found))
            raise UnknownLanguageError(f"{self.file}: no translations from {pair[0]} to {pair[1]}; there are {known}")
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

    Raises: as `TranslationTable` and `Seq2SeqTranslator.from_pretrained`.
    """
    if Path(source).suffix in TRANSLATION_FILES:
        return TranslationTable(source)
    return CachedTranslator(Seq2SeqTranslator.from_pretrained(source, pair=pair, batch_size=batch_size, **loading))


__all__ = ["TranslationTable", "open_translator"]
