"""Translations as captions: a caption that a translation corpus translates gives its image captions in more languages.

Multi30K, for one, has translations of captions of its photographs. Image-text training on them is called
translate-train; Jain et al. (2021, MURAL) translate captions by machine for it (appendix A.4).
"""

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from datasets import Dataset, IterableDataset

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.caption_index import LanguagePair
from ..corpus.captions import Caption
from ..corpus.corpus import AnyDataset, batch_with_captions, captions_of, describe, languages_of, with_captions
from .views import Languages, translation_pairs, undecoded

_Key = tuple[str, str]  # language, text
_Known = dict[_Key, dict[_Key, None]]  # a text -> its translations

logger = logging.getLogger(__name__)


def add_translations(
    corpus: AnyDataset,
    translations: Dataset,
    *,
    languages: Languages | None = None,
    pairs: Iterable[LanguagePair] | None = None,
) -> AnyDataset:
    """Adds to the captions of each image the translations that a translation corpus has of them, word for word.

    The result is for image-text pairs. `translation_pairs` and `triplets` pair the captions of an image by their
    order, which says nothing of a caption and the translations that were added behind it.

    Args:
        corpus: a caption corpus, or a stream of one.
        translations: a translation corpus. If a row has as many texts in one language as in the other, the first is
            the translation of the first, and so on; otherwise each is one of every other.
        languages: the languages of the captions that are kept, and whose translations are looked up; images without
            any are left out. By default all.
        pairs: (language, language) tuples: captions in either language get translations into the other; by default
            every two languages that a row of the translations has.

    Returns:
        The corpus with more captions, after those that it had; none is added twice. A warning says if nothing was
        found (not for a stream).

    Raises:
        CorpusError: if one of both is no corpus, no caption is in `languages` (not checked for a stream), or the
            translations are a stream.
        LanguageTagError: for an unknown language.

    Examples:
        >>> corpus = add_translations(load_captions("photos"), load_translations("translations.tsv"), languages="en")
    """
    for given in (corpus, translations):
        if "captions" not in (getattr(given, "column_names", None) or []):
            raise CorpusError("a corpus has a column 'captions': use as_caption_corpus or as_translation_corpus first")
    if not isinstance(translations, Dataset):
        raise CorpusError("translations must be a Dataset, not a stream")
    wanted = None if languages is None else frozenset(normalize_languages(languages))
    known = _by_text(translations, pairs)
    if isinstance(corpus, IterableDataset):
        encoded = undecoded(corpus.with_format(None))  # images stay as they are
        added = encoded.map(partial(_of_batch, known=known, wanted=wanted), batched=True)
        return added.cast(corpus.features)
    captions = [_in_languages(row, wanted) for row in captions_of(corpus).to_pylist()]
    rows = [row for row, kept in enumerate(captions) if kept]
    texts = {_key(caption) for kept in captions for caption in kept}
    if not texts:
        asked = "" if wanted is None else f" in {', '.join(sorted(wanted)) or 'no language'}"
        raise CorpusError(f"no captions{asked}; the corpus has {describe(languages_of(corpus)) or 'none'}")
    found = len(texts & known.keys())
    translated = [_with_translations(captions[row], known) for row in rows]
    logger.log(
        logging.INFO if found else logging.WARNING,
        "the translations have %s of the %s captions, word for word; %s captions were added",
        *((f"{found:,}" if found else "none"), f"{len(texts):,}"),
        f"{sum(map(len, translated)) - sum(map(len, captions)):,}",
    )
    return with_captions(corpus.select(rows), translated)


def _by_text(translations: Dataset, pairs: Iterable[LanguagePair] | None) -> _Known:
    """The translations of each text, in the order of the corpus."""
    known: _Known = {}
    for pair in translation_pairs(translations, pairs):
        a, b = (pair["language_a"], pair["text_a"]), (pair["language_b"], pair["text_b"])
        known.setdefault(a, {}).setdefault(b)
        known.setdefault(b, {}).setdefault(a)
    return known


def _key(caption: Caption) -> _Key:
    return caption["language"], caption["text"]


def _in_languages(row: list[Caption], wanted: Collection[str] | None) -> list[Caption]:
    return [caption for caption in row if wanted is None or caption["language"] in wanted]


def _with_translations(row: list[Caption], known: _Known) -> list[Caption]:
    present = {_key(caption) for caption in row}
    added = dict.fromkeys(key for caption in row for key in known.get(_key(caption), ()) if key not in present)
    return [*row, *({"language": language, "text": text} for language, text in added)]


def _of_batch(batch: dict[str, list[Any]], *, known: _Known, wanted: Collection[str] | None) -> dict[str, list[Any]]:
    """A batch of a stream: without the rows that have no caption in the languages."""
    captions = [_in_languages(row, wanted) for row in batch["captions"]]
    return batch_with_captions(batch, [_with_translations(of_row, known) for of_row in captions])
