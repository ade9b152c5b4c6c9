"""The emoji benchmark: emoji by four vendors with their names in 120 languages, for training and evaluation.

Names come from Unicode CLDR, images from Twemoji, OpenMoji, Fluent and Noto, in pinned packages. The benchmark
measures generalization to unseen concepts, vendors and languages, and to languages with translation pairs only.
"""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, DatasetInfo, Features, Image, Value

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.corpus import Caption
from ..readers import TRUTH
from .build import FEATURES, KEYWORD_SEPARATOR, SPLITS, VENDORS, emoji_table, read_sources


def load_emoji(
    vendors: str | Sequence[str] | None = None,
    split: str | None = None,
    languages: str | list[str] | tuple[str, ...] | None = None,
    *,
    keyword_captions: int = 0,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """Loads the emoji benchmark as a caption corpus with one row for each vendor and each concept that it draws.

    Columns: `image` (RGB, 64 pixels wide and high, on white), `image_id` (the code points of the concept, such as
    `1f600`; the same for all vendors), `captions` (its CLDR name in each language), `split` (by groups of concepts
    that resemble each other), `vendor` (`twemoji`, `openmoji`, `fluent` or `noto`), `emoji` (its characters),
    `category` (Unicode's, such as `Animals & Nature`; results for `Flags` are best reported separately), and
    `keywords` (CLDR's in each language, joined by `, `). For training, `keyword_captions` is the number of additional
    captions of each image and language: the name and two keywords, or three keywords, sampled for that image; those of
    two languages are not translations. Packages and tables are in `cache_dir`, by default in the cache of `datasets`.

    Examples:
        >>> corpus = load_emoji(["twemoji"], split="train", languages=["en", "de"])
        >>> corpus[0]["captions"]
    """
    vendors = _listed("vendor", vendors, VENDORS)
    splits = _listed("split", split, SPLITS)
    path = emoji_table(cache_dir)
    table = pq.read_table(path, filters=pc.field("vendor").isin(vendors) & pc.field("split").isin(splits))
    if languages is not None:
        table = _keep_languages(table, normalize_languages(languages))
    if keyword_captions:
        table = _with_keyword_captions(table, keyword_captions)
    table = table.replace_schema_metadata(FEATURES.arrow_schema.metadata)
    sources = {source["title"]: source for source in read_sources().values()}.values()
    info = DatasetInfo(
        features=FEATURES,
        description=(__doc__ or "").partition("\n\n")[0],
        license="; ".join(f"{source['title']}: {source['license']}" for source in sources),
        citation="\n".join(f"{source['attribution']} {source['url']}" for source in sources),
    )
    request = repr((path.name, sorted(vendors), sorted(splits), languages, keyword_captions))
    return Dataset(table, info=info, fingerprint=hashlib.sha256(request.encode()).hexdigest()[:16])


def published_manifest() -> dict[str, Any]:
    """Returns the counts, languages and splits of the benchmark, and the digest of its texts and pixels."""
    return json.loads(files(__package__).joinpath("manifest.json").read_text("utf-8"))


def _keep_languages(table: pa.Table, languages: list[str]) -> pa.Table:
    known = pc.unique(pc.struct_field(pc.list_flatten(table["captions"]), "language")).to_pylist()
    if missing := [tag for tag in languages if tag not in known]:
        there = ", ".join(sorted(known))
        raise CorpusError(f"the emoji benchmark has no names in {', '.join(missing)}; it has {there}")
    for column in ("captions", "keywords"):
        lists = table[column].combine_chunks()
        kept = pc.is_in(lists.values.field("language"), value_set=pa.array(languages))
        offsets = np.concatenate([[0], np.cumsum(kept)])[lists.offsets]
        texts = lists.values.filter(kept)
        filtered = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts, type=lists.type)
        table = table.set_column(table.column_names.index(column), table.field(column), filtered)
    return table


def _with_keyword_captions(table: pa.Table, count: int) -> pa.Table:
    """Adds `count` captions made of keywords to each row, for each language that has keywords."""
    captions = []
    for row in table.select(["image_id", "vendor", "captions", "keywords"]).to_pylist():
        names, keywords = _texts_of(row)
        added = []
        for language, words in keywords.items():
            rng = random.Random(f"{row['image_id']} {row['vendor']} {language}")  # the same wherever it is loaded
            for _ in range(count if words and names.get(language) else 0):
                chosen = rng.sample(words, min(3, len(words)))
                text = " ".join([names[language], *chosen[:2]] if rng.random() < 0.5 else chosen)
                added.append({"language": language, "text": text})
        captions.append(row["captions"] + added)
    return _with_column(table, "captions", captions)


def _texts_of(row: dict[str, Any]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns language -> name, and language -> keywords; CLDR has none for some emoji."""
    keywords = {each["language"]: each["text"].split(KEYWORD_SEPARATOR) for each in row["keywords"]}
    names = {each["language"]: each["text"] for each in row["captions"]}
    return names, {language: [word for word in words if word.strip()] for language, words in keywords.items()}


def _with_column(table: pa.Table, name: str, cells: Sequence[Any]) -> pa.Table:
    field = table.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(cells, field.type))


def _listed(what: str, chosen: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Returns the chosen values as a list; all known values for None."""
    values = list(known) if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    if unknown := [value for value in values if value not in known]:
        raise CorpusError(f"unknown {what} {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return values


# ---- Tasks ----
# Each uses only the images of a corpus from `load_emoji`, so held-out images stay held out; random choices depend only
# on the seed and the corpus. A question that can be answered from its text does not test vision: the text allows an
# accuracy of exactly one half for entailment, and of about the share of the most frequent answer for questions.

# Unicode's groups of emoji, but for the five swatches of skin tones (`Component`).
CATEGORIES = (
    *("Activities", "Animals & Nature", "Flags", "Food & Drink", "Objects", "People & Body", "Smileys & Emotion"),
    *("Symbols", "Travel & Places"),
)
# Colour -> its smallest hue in degrees. Red covers the hues from 335 degrees as well.
_HUES = {"red": 0, "orange": 12, "yellow": 40, "green": 70, "blue": 170, "purple": 250}
_RED_AGAIN = 335
COLOURS = (*_HUES, "grey")
ANSWERS = (*CATEGORIES, *COLOURS, "no", "yes")

_PAPER = 240  # a pixel with all channels at least this high is white background
_PAINTED = 0.05  # minimum share of painted pixels of an image whose main colour is determined
_ATTEMPTS = 100  # number of random orders that are tried to find one without similar neighbors
_KEYWORDS = 5  # in a weakly aligned text; most languages have about five for an emoji, some have four times as many


def emoji_entailment(corpus: Dataset, languages: str | list[str] | tuple[str, ...], *, seed: int = 0) -> Dataset:
    """Makes visual entailment: each image in each language, once with its own name and once with that of another
    emoji. Columns: `image`, `image_id`, `text` (the name), `language`, `label` (0 false, 1 true).

    Within a vendor and a split, the name of each image is the wrong name of exactly one other image, so neither the
    name nor the image reveals the label. The other emoji is the same in all languages, and differs in its names and
    pixels (unlike the flags of Norway and of Bouvet Island). Images without a name in a language are left out.
    """
    tags = normalize_languages(languages)
    names = [{caption["language"]: caption["text"] for caption in row} for row in corpus["captions"]]
    drawings = corpus.cast_column("image", Image(decode=False)).select_columns("image")[:]["image"]
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row, (vendor, split) in enumerate(zip(corpus["vendor"], corpus["split"], strict=True)):
        if all(tag in names[row] for tag in tags):
            groups[vendor, split, "any"].append(row)  # the group is part of the seed

    def alike(a: int, b: int) -> bool:
        return drawings[a] == drawings[b] or any(names[a][tag] == names[b][tag] for tag in tags)

    others: dict[int, int] = {}
    for group, rows in groups.items():
        if len(rows) > 1:
            others |= _others(rows, alike, random.Random(f"{seed} {group}"))
    if not others:
        raise CorpusError(f"no two images that can be told apart have names in {', '.join(tags)}")
    named = [(row, other) for row in sorted(others) for other in (row, others[row])]
    examples = [(row, names[other][tag], tag, TRUTH[row == other]) for tag in tags for row, other in named]
    return _dataset(corpus, examples, TRUTH)


def _others(rows: Sequence[int], alike: Callable[[int, int], bool], rng: random.Random) -> dict[int, int]:
    """Assigns to each row another row that is not `alike`, each exactly once: the next row in a random circle."""
    for _ in range(_ATTEMPTS):
        circle = rng.sample(rows, len(rows))
        others = dict(zip(circle, circle[1:] + circle[:1], strict=True))
        if not any(alike(a, b) for a, b in others.items()):
            return others
    raise CorpusError(f"too many of {len(rows)} images are alike to give each the name of another")


def emoji_questions(corpus: Dataset, languages: str | list[str] | tuple[str, ...], *, seed: int = 0) -> Dataset:
    """Makes visual questions in English, German, French, Czech, Japanese, Chinese and Indonesian, the same in each.
    Columns: `image`, `image_id`, `text`, `language`, `label` (one of `ANSWERS`), `question`, one of

        kind      "What kind of thing is this?" Nine answers, Unicode's categories of emoji.
        colour    "What colour is mostly seen?" Seven answers, for images that `main_colour` gives one. Vendors use
                  different colours, so it is computed from the image.
        category  "Is this a flag?" and similar questions about five of Unicode's categories, answered by yes or no.
                  Faces are not asked about: the category of smileys also has hearts, and others have faces.

    There is one question of `kind` and one of `colour` about each image, in one of two wordings. Images are left out
    until no answer is more frequent than the median answer; of `category`, yes is as frequent as no.
    """
    tags = normalize_languages(languages)
    # Language -> subject of the question -> its wordings, as many in every language.
    wordings = json.loads(files(__package__).joinpath("questions.json").read_text("utf-8"))
    if absent := [tag for tag in tags if tag not in wordings]:
        raise CorpusError(f"questions are available in {', '.join(wordings)}, not in {', '.join(absent)}")
    rng = random.Random(seed)
    categories = {row: category for row, category in enumerate(corpus["category"]) if category in CATEGORIES}
    colours = {row: main_colour(image) for row, image in enumerate(corpus["image"])}
    asked = [(kind, *each) for kind, of in (("kind", categories), ("colour", colours)) for each in _balanced(of, rng)]
    for category in CATEGORIES:
        if category in wordings["en"]:
            truths = {row: "yes" if its == category else "no" for row, its in categories.items()}
            asked += [(category, *each) for each in _balanced(truths, rng, ("yes", "no"))]
    worded = [(*question, rng.randrange(len(wordings["en"][question[0]]))) for question in asked]
    examples = [
        (row, wordings[tag][about][wording], tag, answer) for tag in tags for about, row, answer, wording in worded
    ]
    kinds = ["category" if about in CATEGORIES else about for about, _, _ in asked] * len(tags)
    return _dataset(corpus, examples, ANSWERS).add_column("question", kinds)


def main_colour(image: PIL.Image.Image) -> str | None:
    """Returns the colour, one of `COLOURS`, of at least half of the pixels that are not white, or None; also None if
    nearly all are white. Colours are hues in HSV: orange includes brown, and purple pink."""
    rgb = np.asarray(image.convert("RGB"))
    painted = rgb.min(axis=-1) < _PAPER  # [H, W]
    if painted.mean() < _PAINTED:
        return None
    hue, saturation, value = np.asarray(image.convert("RGB").convert("HSV"))[painted].T / 255
    degrees = np.where(hue * 360 < _RED_AGAIN, hue * 360, 0)
    colours = np.searchsorted(list(_HUES.values()), degrees, side="right") - 1
    colours[(saturation < 0.2) | (value < 0.25)] = COLOURS.index("grey")
    counts = np.bincount(colours, minlength=len(COLOURS))
    return COLOURS[counts.argmax()] if 2 * counts.max() >= counts.sum() else None


def _balanced(answers: dict[int, Any], rng: random.Random, order: Sequence[str] = ()) -> list[tuple[int, str]]:
    """Samples (row, answer) such that no answer is more frequent than the median answer, the lower one of two; answers
    are sampled in an order, by default that of the rows. Rows with the answer None are left out."""
    rows_of: dict[str, list[int]] = defaultdict(list, {answer: [] for answer in order})
    for row, answer in answers.items():
        if answer is not None:
            rows_of[answer].append(row)
    most = median_low(map(len, rows_of.values())) if rows_of else 0
    return sorted((row, answer) for answer, rows in rows_of.items() for row in rng.sample(rows, min(most, len(rows))))


def _dataset(corpus: Dataset, examples: list[tuple[int, str, str, str]], answers: Sequence[str]) -> Dataset:
    """Makes the data set of a task from (row of the image, text, language, label)."""
    texts = dict.fromkeys(("image_id", "text", "language"), Value("string"))
    features = Features({"image": Image(), **texts, "label": ClassLabel(names=list(answers))})
    rows, *columns, labels = zip(*examples, strict=True)
    table = corpus.select_columns(["image", "image_id"]).with_format("arrow")[:].take(pa.array(rows))
    cells = [*table.columns, *columns, [answers.index(label) for label in labels]]
    table = pa.table(cells, names=list(features), metadata=features.arrow_schema.metadata)
    return Dataset(table, info=DatasetInfo(features=features))


# ---- Weakly aligned texts: a name in one language with keywords in another ----
# CLDR's keywords are search words for an emoji. Each language has its own, and they are not translations of the
# name: 🧑‍🌾 is `Bauer/Bäuerin` in German, and its English keywords are `farmer, gardener, rancher`. The captions of
# one image in several Wikipedias are related in the same way (Zhou et al. 2023, RC3, section 2.1).


def weakly_aligned_emoji(corpus: Dataset, *, pairs: int = 1, seed: int = 0) -> Dataset:
    """Makes a caption corpus whose rows have two captions: the name of the image, and keywords in another language.
    Each image has `pairs` rows with different pairs of languages, fewer if it has fewer. A keyword that equals the
    name in its language is left out, and at most five are sampled. (The only keyword of a flag is the word for `flag`;
    select rows by `category` to leave flags out.) Choices depend on the seed, the image and the languages only."""
    rows: list[int] = []
    captions: list[list[Caption]] = []
    for row, concept in enumerate(corpus.select_columns(["image_id", "vendor", "captions", "keywords"])):
        names, keywords = _texts_of(concept)
        keywords = {tag: [word for word in words if word != names.get(tag)] for tag, words in keywords.items()}
        languages = [(a, b) for a in sorted(names) for b in sorted(keywords) if a != b and keywords[b]]
        rng = random.Random(f"{concept['image_id']} {concept['vendor']} {seed}")  # the same in any corpus
        for a, b in rng.sample(languages, min(pairs, len(languages))):
            words = KEYWORD_SEPARATOR.join(rng.sample(keywords[b], min(_KEYWORDS, len(keywords[b]))))
            rows.append(row)
            captions.append([{"language": a, "text": names[a]}, {"language": b, "text": words}])
    if not rows:
        raise CorpusError("no image has a name in one language and keywords in another; load two languages or more")
    table = corpus.with_format("arrow")[:].take(pa.array(rows))
    return Dataset(_with_column(table, "captions", captions), info=corpus.info)


def load_weak_emoji(*, pairs: int = 1, seed: int = 0, **options: Any) -> Dataset:
    """Returns `weakly_aligned_emoji` of `load_emoji`, whose arguments are `options`."""
    return weakly_aligned_emoji(load_emoji(**options), pairs=pairs, seed=seed)
