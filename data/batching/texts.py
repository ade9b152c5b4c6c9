"""Changes the texts of a corpus: adds translations to captions, and removes noisy texts."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import ClassVar

from datasets import Dataset, IterableDataset

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.corpus import AnyDataset, Caption, describe, languages_of, undecoded, with_captions
from .collators import identity_label
from .views import LanguagePair, Languages, translation_pairs

_Row = dict[str, list[Caption]]  # the captions of a row
_BATCH_ROWS = 1000  # whose texts are read together

logger = logging.getLogger(__name__)


def _changed(corpus: AnyDataset, change: Callable[[list[Caption]], _Row]) -> AnyDataset:
    """Changes the captions of each row, and leaves out rows without any; images are not decoded."""
    if isinstance(corpus, IterableDataset):
        encoded = undecoded(corpus.with_format(None))
        changed = encoded.map(change, input_columns="captions").filter(itemgetter("captions"))
        return changed.cast(corpus.features)
    captions = [change(row)["captions"] for row in _rows(corpus)]
    rows = [index for index, row in enumerate(captions) if row]
    if not rows:
        raise CorpusError(f"no caption is left of those in {describe(languages_of(corpus)) or 'no language'}")
    return with_captions(corpus.select(rows), filter(None, captions))


def _rows(corpus: Dataset | IterableDataset) -> Iterator[list[Caption]]:
    for batch in corpus.select_columns("captions").with_format(None).iter(_BATCH_ROWS):
        yield from batch["captions"]


# ---- Translations ----
# Multi30K, for example, has translations of the captions of its photographs. Image-text training on them is called
# translate-train; Jain et al. (2021, MURAL) translate captions by machine for it (appendix A.4).

_Key = tuple[str, str]  # language, text
_Known = dict[_Key, dict[_Key, None]]  # a text -> its translations


def add_translations(
    corpus: AnyDataset,
    translations: Dataset,
    *,
    languages: Languages | None = None,
    pairs: Iterable[LanguagePair] | None = None,
) -> AnyDataset:
    """Adds to each image's captions their translations in a translation corpus, if the texts match word for word,
    after the existing ones and without duplicates. A warning says if nothing was found (not for a stream). The result
    is for image-text pairs: `translation_pairs` and `triplets` pair captions by their order, which does not relate a
    caption to the translations appended after it.

    If a row of `translations` has equally many texts in two languages, they are paired in order; otherwise each text
    is a translation of every other. Only captions in `languages` (by default all) are kept and translated; `pairs`
    translate in both directions, and are by default all pairs of languages that occur in a row of the translations.

    Examples:
        >>> corpus = add_translations(load_captions("photos"), load_translations("translations.tsv"), languages="en")
    """
    if not isinstance(translations, Dataset):
        raise CorpusError("translations must be a Dataset, not a stream")
    wanted = None if languages is None else frozenset(normalize_languages(languages))
    known: _Known = {}
    for pair in translation_pairs(translations, pairs):
        a, b = ((pair[f"language_{side}"], pair[f"text_{side}"]) for side in "ab")
        known.setdefault(a, {}).setdefault(b)
        known.setdefault(b, {}).setdefault(a)
    translated = _changed(corpus, partial(_translated, wanted=wanted, known=known))
    if isinstance(corpus, Dataset):
        texts = {key for row in _rows(corpus) for key in _keys(row, wanted)}
        found = len(texts & known.keys())
        message = "the translations have %s of the %s captions, word for word"
        logger.log(logging.INFO if found else logging.WARNING, message, f"{found:,}" if found else "none", len(texts))
    return translated


def _keys(row: list[Caption], wanted: Collection[str] | None) -> list[_Key]:
    return [(each["language"], each["text"]) for each in row if wanted is None or each["language"] in wanted]


def _translated(row: list[Caption], wanted: Collection[str] | None, known: _Known) -> _Row:
    own = _keys(row, wanted)
    added = dict.fromkeys(key for each in own for key in known.get(each, ()) if key not in {*own})
    return {"captions": [{"language": language, "text": text} for language, text in [*own, *added]]}


@dataclass(frozen=True)
class TextFilter:
    """Rules that remove noisy alt texts from web data, similar to ALIGN's, as stated by Lee et al. (2022, ETCL,
    section 3.4): fewer than 3 or more than 100 words, more than 1000 characters, and texts of more than 10 images,
    such as "thumbnail for version as of". Unlike ALIGN, they state no rule for rare words. Not included are their
    rules for images (a shorter side above 200 pixels and an aspect ratio of at most 3: img2dataset's `--min_image_size
    201 --max_aspect_ratio 3`; at most 100 texts per image) and for the language (cld3). Words are separated by spaces:
    use `min_words=1` for Chinese or Japanese. Unless `max_images` is None, the texts are read an extra time, even from
    a stream, with about 100 bytes of memory for each distinct text."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for recipes that state the rules

    min_words: int = 3
    max_words: int = 100
    max_characters: int = 1000
    max_images: int | None = 10

    def __str__(self) -> str:
        """For model cards, such as `texts of 3 to 100 words, 1000 characters at most and 10 images at most`."""
        images = "" if self.max_images is None else f" and {self.max_images} images at most"
        return f"texts of {self.min_words} to {self.max_words} words, {self.max_characters} characters at most{images}"

    def apply(self, corpus: AnyDataset) -> AnyDataset:
        """Returns a caption corpus, or a stream of one, without the rejected texts and rows that have no text left.

        Examples:
            >>> corpus = TextFilter(max_images=None).apply(load_captions("photos"))
        """
        shared: Collection[int] = ()
        if self.max_images is not None:
            fitting = (
                {identity_label(each["text"]) for each in row if self._fits(each["text"])} for row in _rows(corpus)
            )
            counts = Counter(label for row in fitting for label in row)
            shared = frozenset(label for label, images in counts.items() if images > self.max_images)
        kept = _changed(corpus, partial(self._kept, shared=shared))
        if isinstance(kept, Dataset):
            logger.info("the text filter keeps %s of %s rows", f"{len(kept):,}", f"{len(corpus):,}")
        return kept

    def _kept(self, row: list[Caption], shared: Collection[int]) -> _Row:
        kept = (each for each in row if self._fits(each["text"]))
        return {"captions": [each for each in kept if identity_label(each["text"]) not in shared]}

    def _fits(self, text: str) -> bool:
        return self.min_words <= len(text.split()) <= self.max_words and len(text) <= self.max_characters
