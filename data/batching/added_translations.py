"""Adds translations to captions: an image gets captions in more languages if a translation corpus contains its
captions.

Multi30K, for example, has translations of the captions of its photographs. Image-text training on them is called
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
    """Adds to each image's captions their translations in a translation corpus, if the texts match word for word.

    The result is for image-text pairs. `translation_pairs` and `triplets` pair the captions of an image by their
    order, which does not relate a caption to the translations appended after it.

    Args:
        corpus: a caption corpus, or a stream of one.
        translations: a translation corpus. If a row has equally many texts in two languages, they are paired in order;
            otherwise each text is a translation of every other.
        languages: languages of the captions that are kept and translated; images without a caption in them are left
            out. By default all.
        pairs: (language, language) tuples: captions in either language get translations into the other. By default all
            pairs of languages that occur in a row of the translations.

    Returns:
        The corpus with more captions, after the existing ones and without duplicates. A warning says if nothing was
        found (not for a stream).

    Raises:
        CorpusError: if either argument is not a corpus, no caption is in `languages` (not checked for a stream), or
            the translations are a stream.
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
        encoded = undecoded(corpus.with_format(None))  # images are not decoded
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
    """Returns the translations of each text, in the order of the corpus."""
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
    """Adds translations to a batch of a stream, and leaves out rows without a caption in the languages."""
    captions = [_in_languages(row, wanted) for row in batch["captions"]]
    return batch_with_captions(batch, [_with_translations(of_row, known) for of_row in captions])
