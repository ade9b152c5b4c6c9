"""Tatoeba's sentences with English translations (Artetxe & Schwenk 2019, arXiv 1812.10464), as LASER's authors publish
them: `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng`, whose lines correspond."""

import re

from datasets import Dataset

from ...configuration.languages import normalize_language
from ..corpus.corpus import CAPTIONS
from ..readers.bitext_files import bitexts
from ..readers.task_files import task_dataset
from .layout import Layout, captions_in

_FILE = re.compile(r"tatoeba\.([a-z]{3})-eng\.(?:\1|eng)")
_LEFT_OUT = "kzj"  # whose tag is that of `dtp`, which has files of its own
_LONGEST = 10_000  # characters of a sentence


def read_tatoeba(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """A translation corpus: the sentences in these languages, each with its English translation."""
    codes = [match[1] for path in sorted(layout.root.iterdir()) if (match := _FILE.fullmatch(path.name))]
    code_of = {normalize_language(code): code for code in codes if code != _LEFT_OUT}
    rows = []
    for language in languages:
        if language not in code_of:
            raise layout.error(f"there is no file tatoeba.CODE-eng.CODE in {language}")
        code = code_of[language]
        for side in (code, "eng"):
            layout.file(f"tatoeba.{code}-eng.{side}")
        (bitext,) = bitexts(layout.root / f"tatoeba.{code}-eng")
        for pair in bitext.read(_LONGEST):
            rows.append({"captions": captions_in({tag: [text] for tag, text in pair.texts})})
    return task_dataset(rows, {"captions": CAPTIONS}, layout.root)
