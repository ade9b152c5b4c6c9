"""Which names of emoji help to learn a language: those of CLDR in the language itself, or in a near relative.

The language is found by its sentences and not by its tag alone. Tags differ in their detail (`arb-Arab`, `ar`), most
languages have no names of their own while a relative has (Occitan's is Catalan), and a column of another language than
its tag says is a mistake to report.
"""

import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..configuration.errors import MissingExtraError, SourceUnavailableError
from ..configuration.identity import code_of
from ..data.emoji.benchmark import EmojiNames, NameTranslations, load_emoji_names
from ..modeling.modeling_dual_encoder import normalize
from ..modeling.text_features import hashed_ngrams
from ..processing.processing_ridge import characters_of
from ..trainers.frozen_features import frozen_tensor

logger = logging.getLogger(__name__)

_ROWS, _SENTENCES = 2**16, 300
# Cosines of n-gram profiles: the same language has 0.55 to 0.8 in alphabets, and near relatives 0.35 to 0.55.
_ALIKE, _RELATED, _SAME_SCRIPT, _APART = 0.5, 0.4, 0.1, 0.15
_WEIGHT, _WEIGHT_OF_RELATIVES = 0.2, 0.1


def names_of_emoji() -> EmojiNames | None:
    """CLDR's names; None, with a warning, where they cannot be fetched."""
    try:
        return load_emoji_names()
    except (SourceUnavailableError, MissingExtraError) as error:
        logger.warning("Languages are learned without CLDR's names of emoji: %s", error)
        return None


def names_for(texts: Mapping[str, Sequence[str]], native: str, names: EmojiNames) -> dict[str, NameTranslations]:
    """Chooses names for languages; a warning tells of texts that look like another language than their tag's.

    Args:
        texts: by language, its sentences.
        native: the native language.
        names: all that there are.

    Returns:
        By language, its names; languages without any that would help are left out.
    """
    if not names.names_most(native):
        return {}
    counts = _counts_of_names(names)
    known = [place for place, tag in enumerate(names.annotations) if tag != native and counts[place].any()]
    tags, counts = [list(names.annotations)[place] for place in known], counts[known].float()
    importance = (len(tags) / (counts > 0).sum(0).clamp(min=1)).log()
    profiles = normalize(counts * importance)
    chosen = {}
    for language, sentences in texts.items():
        alike = profiles @ normalize(_counts(sentences[:_SENTENCES]) * importance)
        nearest = int(alike.argmax())
        tagged = next((tags.index(tag) for tag in (language, language.partition("-")[0]) if tag in tags), None)
        if tagged is not None and alike[nearest] >= max(_ALIKE, float(alike[tagged]) + _APART):
            logger.warning(
                "%s: the texts look like %s and not like %s: check the columns, or the tag",
                language,
                tags[nearest],
                tags[tagged],
            )
            tagged = None
        if tagged is not None and alike[tagged] >= _SAME_SCRIPT:
            chosen[language] = names.translations(tags[tagged], native, _WEIGHT)
        elif alike[nearest] >= _RELATED:
            weight = _WEIGHT if alike[nearest] >= _ALIKE else _WEIGHT_OF_RELATIVES
            chosen[language] = names.translations(tags[nearest], native, weight)
    return chosen


def _counts_of_names(names: EmojiNames) -> Tensor:
    """The n-grams of the names in each language [languages, rows], zero in languages that name few emoji. Those of
    CLDR's package are kept on disk: to count them takes as long as to learn a language."""

    def compute() -> Tensor:
        none = torch.zeros(_ROWS)
        each = [_counts(names.sample(tag)) if names.names_most(tag) else none for tag in names.annotations]
        return torch.stack(each).half()

    if names.source is None:
        return compute()
    settings = f"n-grams of names, {names.source} {_ROWS} {code_of(names)}"
    return frozen_tensor(compute, weights={}, settings=settings, items=[])


def _counts(texts: Sequence[str]) -> Tensor:
    """Damped counts of the n-grams of 2 to 4 characters in texts, hashed [rows]."""
    places, kept = hashed_ngrams(characters_of(list(texts)), _ROWS, 2, 4)
    return torch.bincount(places[kept], minlength=_ROWS).float().log1p()
