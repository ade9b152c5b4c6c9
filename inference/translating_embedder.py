"""An embedder that translates texts before it encodes them: a model of one language that is asked in others."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..configuration.languages import language_for_each, normalize_language
from .embedder import Embedder
from .translation import Translator, TranslatorsByPair
from .translation_cache import CachedTranslator

logger = logging.getLogger(__name__)


class TranslatingEmbedder:
    """Encodes texts in any language of a translator by their translations, and images as they are.

    It encodes as an `Embedder` does, so that search and evaluation take it in its place.

    Args:
        embedder: encodes images, and texts in the language `to`.
        translator: translates texts.
        to: the language that texts are translated into. Texts in this language are not translated.

    Attributes:
        translation_seconds: how long translating has taken; of a `CachedTranslator`, when the translations were made.
        encoding_seconds: how long encoding the texts has taken.
        n_translated: number of texts that were translated, each once.
        n_empty: number of these that were translated to nothing, and are encoded as they are.

    Examples:
        >>> embedder = TranslatingEmbedder(Embedder.from_pretrained("openai/clip-vit-base-patch32"), translator)
        >>> embedder.encode_text("gari jekundu", language="sw")
    """

    def __init__(self, embedder: Embedder, translator: Translator, *, to: str = "en") -> None:
        self.embedder, self.translator, self.to = embedder, translator, normalize_language(to)
        self.translation_seconds = self.encoding_seconds = 0.0
        self.n_translated = self.n_empty = 0

    def encode_image(self, images: Any, **options: Any) -> np.ndarray:
        """As `Embedder.encode_image`."""
        return self.embedder.encode_image(images, **options)

    def encode_text(self, texts: str | Sequence[str], *, language: str | Sequence[str], **options: Any) -> np.ndarray:
        """As `Embedder.encode_text`, of the translations.

        Raises:
            UnknownLanguageError: for a language that the translator does not translate.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        languages = language_for_each(language, len(given))
        for tag in dict.fromkeys(languages):
            if tag != self.to:
                rows = [row for row, each in enumerate(languages) if each == tag]
                for row, text in zip(rows, self._translated([given[row] for row in rows], tag), strict=True):
                    given[row] = text
        began = time.perf_counter()
        embeddings = self.embedder.encode_text(given, language=self.to, **options)
        self.encoding_seconds += time.perf_counter() - began
        return embeddings

    def _translated(self, texts: list[str], language: str) -> list[str]:
        distinct = list(dict.fromkeys(texts))
        translator = self.translator
        if isinstance(translator, TranslatorsByPair):
            translator = translator.of(language, self.to)
        began = time.perf_counter()
        translations = dict(zip(distinct, translator.translate(distinct, language, self.to), strict=True))
        if isinstance(translator, CachedTranslator):
            self.translation_seconds += translator.seconds(distinct, language, self.to)
        else:
            self.translation_seconds += time.perf_counter() - began
        self.n_translated += len(distinct)
        if empty := [text for text in distinct if not translations[text].strip()]:
            self.n_empty += len(empty)
            logger.warning(
                "%d of %d texts were translated from %s to nothing in %s, such as %r: they are encoded as they are",
                *(len(empty), len(distinct), language, self.to, empty[0]),
            )
        return [translations[text] if translations[text].strip() else text for text in texts]
