"""Identifies the language of texts by their character n-grams, compared with profiles stored on disk.

`data.emoji.profiles` makes the profiles from CLDR's names of emoji, when those are first fetched. For captions in 200
languages, 20 of a thousand are enough to find a language that has a profile.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from datasets import config

from ...utils.languages import language_and_script

KEPT = Path(config.HF_DATASETS_CACHE) / "babelens"
VERSION = 2  # of the counts on disk
ROWS = 2**16  # number of hash buckets of n-grams
_TEXTS, _CHARACTERS = 300, 512  # maximum number of texts, and of characters of each
_SIZES, _FACTOR = (2, 3, 4), 1_000_003

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LanguageProfiles:
    """The n-grams of languages: the weight of each [rows], and weighted counts [languages, rows] of unit length."""

    tags: list[str]
    importance: Array
    profiles: Array

    def likeness(self, texts: Sequence[str]) -> dict[str, float]:
        """Returns the cosine of texts with each language: 0.5 to 0.8 with their language for 300 sentences; less for
        fewer."""
        cosines = self.profiles @ normal(counts_of(texts[:_TEXTS]) * self.importance)
        return dict(zip(self.tags, cosines.tolist(), strict=True))

    def own(self, language: str) -> list[str]:
        """Returns the profiles of a language: in any script, or of its macrolanguage."""
        primary = language_and_script(language)[0]
        return [tag for tag in self.tags if tag == language or language_and_script(tag)[0] == primary]


def profiles_from(tags: list[str], counts: Array) -> LanguageProfiles:
    """Makes the profiles of languages from `counts_of` their texts [languages, rows], without languages that have
    none."""
    some = np.asarray(counts.any(1))
    tags, counts = [tag for tag, has in zip(tags, some, strict=True) if has], counts[some].astype(np.float32)
    importance = np.log(len(tags) / np.maximum((counts > 0).sum(0), 1)).astype(np.float32)
    return LanguageProfiles(tags, importance, normal(counts * importance))


@cache
def profiles_at_hand() -> LanguageProfiles | None:
    """Returns the stored profiles, or None. Nothing is downloaded."""
    files = sorted(KEPT.glob(f"profiles-{VERSION}-*.npz"))
    if not files:
        return None
    with np.load(files[-1]) as kept:
        return profiles_from(kept["tags"].tolist(), kept["counts"])


def counts_of(texts: Sequence[str]) -> Array:
    """Returns damped counts of hashed n-grams in texts [rows]; an n-gram may begin or end with a space, but has none
    inside."""
    words = (word for text in texts for word in unicodedata.normalize("NFKC", text[:_CHARACTERS]).lower().split())
    characters = np.array([ord(each) for each in f" {' '.join(words)} "], np.uint64)
    counts = np.zeros(ROWS, np.int64)
    for size in _SIZES:
        windows = np.lib.stride_tricks.sliding_window_view(characters, size) if len(characters) >= size else None
        if windows is not None:
            inside = windows[:, 1:-1] if size > 2 else windows
            kept = windows[(inside != ord(" ")).all(1) if size > 2 else (inside != ord(" ")).any(1)]
            hashed = np.full(len(kept), size, np.uint64)
            for offset in range(size):
                hashed = (hashed * np.uint64(_FACTOR) + kept[:, offset]) % np.uint64(2**31 - 1)
            counts += np.bincount((hashed % np.uint64(ROWS)).astype(np.int64), minlength=ROWS)
    return np.log1p(counts).astype(np.float32)


def normal(vectors: Array) -> Array:
    """Scales vectors to unit length."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))
