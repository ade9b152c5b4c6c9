"""Weakly aligned texts from the emoji benchmark: a name in one language beside keywords in another.

CLDR's keywords are search words for an emoji. Each language has its own, and they are not translations of the name:
🧑‍🌾 is `Bauer/Bäuerin` in German, and its English keywords are `farmer, gardener, rancher`. The captions of one image
in several Wikipedias are related in the same way (Zhou et al. 2023, RC3, section 2.1).
"""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from datasets import Dataset

from ...configuration.errors import CorpusError
from ..corpus.captions import Caption
from .build import KEYWORD_SEPARATOR

_KEYWORDS = 5  # in a text; most languages have about five for an emoji, some have four times as many


def weakly_aligned_emoji(corpus: Dataset, *, pairs: int = 1, seed: int = 0) -> Dataset:
    """A caption corpus whose rows have two captions: the name of the image, and keywords in another language.

    `weak_pairs` of this corpus has one example for each row. A keyword that equals the name in its language is left
    out, and at most five keywords are sampled. (The only keyword of a flag is the word for `flag`; select rows by
    `category` to leave flags out.)

    Args:
        corpus: a corpus from `load_emoji`.
        pairs: number of rows for each image, each with another pair (language of the name, language of the keywords);
            fewer if the image has fewer such pairs. The image is copied for each row.
        seed: seed of the random choices, which depend on the image and the languages, not on the rest of the corpus.

    Raises:
        CorpusError: if `pairs` is less than one, or no image has a name in one language and keywords in another.
    """
    if pairs < 1:
        raise CorpusError(f"pairs is the number of rows for each image, not {pairs}")
    concepts = corpus.select_columns(["image_id", "vendor", "captions", "keywords"])
    sampled = [(row, texts) for row, concept in enumerate(concepts) for texts in _sampled(concept, pairs, seed)]
    if not sampled:
        raise CorpusError("no image has a name in one language and keywords in another; load two languages or more")
    rows, captions = zip(*sampled, strict=True)
    table = corpus.with_format("arrow")[:].take(pa.array(rows))
    field = table.field("captions")
    table = table.set_column(table.column_names.index("captions"), field, pa.array(captions, field.type))
    return Dataset(table, info=corpus.info)


def _sampled(concept: dict[str, Any], pairs: int, seed: int) -> Iterator[list[Caption]]:
    """A name and keywords in another language, for each of `pairs` sampled pairs of languages."""
    names = {caption["language"]: caption["text"] for caption in concept["captions"]}
    keywords = {
        entry["language"]: [
            word for word in entry["text"].split(KEYWORD_SEPARATOR) if word != names.get(entry["language"])
        ]
        for entry in concept["keywords"]
    }
    languages = [(a, b) for a in sorted(names) for b in sorted(keywords) if a != b and keywords[b]]
    rng = random.Random(f"{concept['image_id']} {concept['vendor']} {seed}")  # the same in any corpus
    for a, b in rng.sample(languages, min(pairs, len(languages))):
        words = rng.sample(keywords[b], min(_KEYWORDS, len(keywords[b])))
        yield [{"language": a, "text": names[a]}, {"language": b, "text": KEYWORD_SEPARATOR.join(words)}]
