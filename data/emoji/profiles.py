"""The n-grams of CLDR's names of emoji, by which the language of texts is recognized (`corpus.language_profiles`)."""

import numpy as np

from ...utils.files import atomic_file
from ..corpus.language_profiles import KEPT, ROWS, VERSION, LanguageProfiles, counts_of, profiles_from
from .benchmark import EmojiNames


def profiles_of(names: EmojiNames) -> LanguageProfiles:
    """The profiles of the languages that name most emoji; those of CLDR's package are kept on disk."""
    digest = "".join(filter(str.isalnum, names.source or ""))[-12:]
    file = KEPT / f"profiles-{VERSION}-{digest}.npz"
    if digest and file.is_file():
        with np.load(file) as kept:
            return profiles_from(kept["tags"].tolist(), kept["counts"])
    tags, none = list(names.annotations), np.zeros(ROWS, np.float32)
    counts = np.stack([counts_of(names.sample(tag)) if names.names_most(tag) else none for tag in tags])
    if digest:
        with atomic_file(file) as unfinished, unfinished.open("wb") as stream:
            np.savez_compressed(stream, tags=np.array(tags), counts=counts.astype(np.float16))
    return profiles_from(tags, counts)
