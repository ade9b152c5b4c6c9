"""Which language texts are in, by their character n-grams: those of CLDR's names of emoji are the profiles.

Compared with a thousand captions in 200 languages, 20 captions are enough to find the language where it has a profile.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...configuration.errors import CorpusError
from ...configuration.files import atomic_file
from ...configuration.languages import language_and_script
from ...modeling.modeling_dual_encoder import normalize
from ...modeling.text_features import hashed_ngrams
from ...processing.processing_ridge import characters_of
from ..npm import Package, file_integrity, tarball_of
from .benchmark import DEFAULT_CACHE, EmojiNames, load_emoji_names
from .build import read_sources

logger = logging.getLogger(__name__)

_ROWS, _TEXTS = 2**16, 300
_VERSION = 1  # of the counts on disk


@dataclass(frozen=True, eq=False)
class LanguageProfiles:
    """The n-grams of languages.

    Args:
        tags: the languages.
        importance ([rows]): of each n-gram.
        profiles ([languages, rows]): weighted counts, each of length 1.
    """

    tags: list[str]
    importance: Tensor
    profiles: Tensor

    def likeness(self, texts: Sequence[str]) -> dict[str, float]:
        """The cosine of texts with each language: 0.5 to 0.8 in their own, of 300 sentences; less of fewer."""
        cosines = self.profiles @ normalize(_counts(texts[:_TEXTS]) * self.importance)
        return dict(zip(self.tags, cosines.tolist(), strict=True))

    def own(self, language: str) -> list[str]:
        """The profiles of a language: in any script, of its macrolanguage."""
        primary = language_and_script(language)[0]
        return [tag for tag in self.tags if tag == language or language_and_script(tag)[0] == primary]


def profiles_of(names: EmojiNames) -> LanguageProfiles:
    """The profiles of the languages that name most emoji; of CLDR's package they are kept on disk."""
    tags = names.languages if names.source is None else list(names.annotations)
    kept = None if names.source is None else DEFAULT_CACHE / f"profiles-{_VERSION}-{_short(names.source)}.npy"
    if kept is not None and kept.is_file():
        counts = torch.from_numpy(np.load(kept))
    else:
        none = torch.zeros(_ROWS)
        each = [_counts(names.sample(tag)) if names.names_most(tag) else none for tag in tags]
        counts = torch.stack(each).half()
        if kept is not None:
            with atomic_file(kept) as unfinished, unfinished.open("wb") as file:
                np.save(file, counts.numpy())
    some = counts.any(1)
    tags, counts = [tag for tag, has in zip(tags, some.tolist(), strict=True) if has], counts[some].float()
    importance = (len(tags) / (counts > 0).sum(0).clamp(min=1)).log()
    return LanguageProfiles(tags, importance, normalize(counts * importance))


@cache
def profiles_at_hand(cache_dir: Path = DEFAULT_CACHE) -> LanguageProfiles | None:
    """The profiles, if CLDR's package was fetched before; nothing is fetched."""
    source = read_sources()["names"]
    package = Package(source["package"], source["version"], source["integrity"])
    tarball = tarball_of(package, cache_dir / "packages")
    if not tarball.is_file() or file_integrity(tarball) != package.integrity:
        return None
    try:
        return profiles_of(load_emoji_names())
    except (CorpusError, OSError) as error:
        logger.info("columns are judged without the n-grams of CLDR's names: %s", error)
        return None


def _counts(texts: Sequence[str]) -> Tensor:
    """Damped counts of the n-grams of 2 to 4 characters in texts, hashed [rows]."""
    places, kept = hashed_ngrams(characters_of(list(texts)), _ROWS, 2, 4)
    return torch.bincount(places[kept], minlength=_ROWS).float().log1p()


def _short(integrity: str) -> str:
    return "".join(filter(str.isalnum, integrity))[-12:]
