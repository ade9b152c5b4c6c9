"""Weakly aligned texts from the emoji benchmark: a name in one language beside keywords in another.

CLDR's keywords are what its volunteers type to find an emoji. Each language has its own, and they are no translation
of the name: 🧑‍🌾 is `Bauer/Bäuerin` in German, and `farmer, gardener, rancher` are its English keywords. That is how
the captions of one image in several Wikipedias stand to one another (Zhou et al. 2023, RC3, section 2.1).
"""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from datasets import Dataset

from ...configuration.errors import CorpusError
from ..corpus.captions import Caption
from .build import KEYWORD_SEPARATOR

_KEYWORDS = 5  # in a text; languages have about so many for an emoji, some four times as many


def weakly_aligned_emoji(corpus: Dataset, *, pairs: int = 1, seed: int = 0) -> Dataset:
    """A caption corpus whose rows say two things of an image: its name, and in another language some keywords.

    `weak_pairs` of it gives every row once. Keywords that are the name in their own language are left out, and at most
    five are drawn. (Flags of countries have the word for `flag` and no more; select rows by `category` to leave them
    out.)

    Args:
        corpus: from `load_emoji`, which chooses vendors, split and languages.
        pairs: rows for each image, of different (language of the name, language of the keywords); fewer where the
            image has no more. The image is copied for each.
        seed: of the draws. They depend on the image and the languages, not on what else is in the corpus.

    Raises:
        CorpusError: for less than one pair, and when no image has a name in one language and keywords in another.
    """
    if pairs < 1:
        raise CorpusError(f"pairs is the number of rows for each image, not {pairs}")
    concepts = corpus.select_columns(["image_id", "vendor", "captions", "keywords"])
    drawn = [(row, texts) for row, concept in enumerate(concepts) for texts in _draws(concept, pairs, seed)]
    if not drawn:
        raise CorpusError("no image has a name in one language and keywords in another; load two languages or more")
    rows, captions = zip(*drawn, strict=True)
    table = corpus.with_format("arrow")[:].take(pa.array(rows))
    field = table.field("captions")
    table = table.set_column(table.column_names.index("captions"), field, pa.array(captions, field.type))
    return Dataset(table, info=corpus.info)


def _draws(concept: dict[str, Any], pairs: int, seed: int) -> Iterator[list[Caption]]:
    """A name and, in another language, keywords; for each of `pairs` drawn pairs of languages."""
    names = {caption["language"]: caption["text"] for caption in concept["captions"]}
    keywords = {
        entry["language"]: [
            word for word in entry["text"].split(KEYWORD_SEPARATOR) if word != names.get(entry["language"])
        ]
        for entry in concept["keywords"]
    }
    languages = [(a, b) for a in sorted(names) for b in sorted(keywords) if a != b and keywords[b]]
    draw = random.Random(f"{concept['image_id']} {concept['vendor']} {seed}")  # the same in any corpus
    for a, b in draw.sample(languages, min(pairs, len(languages))):
        words = draw.sample(keywords[b], min(_KEYWORDS, len(keywords[b])))
        yield [{"language": a, "text": names[a]}, {"language": b, "text": KEYWORD_SEPARATOR.join(words)}]
