"""Machine-translated captions and queries: translate-train, translate-test, SMALR (Burns et al. 2020, section 7.1)."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from ..data.corpus.corpus import Caption, describe, languages_of, with_captions
from ..utils.errors import CorpusError
from ..utils.languages import language_for_each, normalize_language, normalize_languages
from .embedder import Embedder
from .translation import Translator

logger = logging.getLogger(__name__)


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
