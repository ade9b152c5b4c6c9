"""Two tasks made of the emoji benchmark: is this its name, and questions about what is drawn.

Each takes a corpus from `load_emoji`, which chooses vendors, split and languages, and asks about its images alone:
what is held out there is held out here. The same questions are asked in every language, so that accuracies compare. No
draw depends on anything but the seed and the corpus.

A question that its words answer measures no seeing. `text_only_accuracy` says how far words alone lead: exactly one
half for entailment, near the share of the most frequent answer for questions.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetInfo, Features, Image, Value

from ...configuration.errors import CorpusError
from ...configuration.languages import normalize_languages
from ..readers.task_files import TRUTH

# Unicode's groups of emoji, but for the five swatches of skin tones (`Component`).
CATEGORIES = (
    "Activities",
    "Animals & Nature",
    "Flags",
    "Food & Drink",
    "Objects",
    "People & Body",
    "Smileys & Emotion",
    "Symbols",
    "Travel & Places",
)
# The first hue, in degrees, of every colour around the circle: red begins again at 335.
_HUES = {"red": 0, "orange": 12, "yellow": 40, "green": 70, "blue": 170, "purple": 250}
_RED_AGAIN = 335
COLOURS = (*_HUES, "grey")
ANSWERS = (*CATEGORIES, *COLOURS, "no", "yes")

_PAPER = 240  # a pixel whose channels are all this light is the white that drawings lie on
_PAINTED = 0.05  # of the pixels: with less there is nothing to name a colour of
_GROUPING = ("vendor", "split", "category")
_ATTEMPTS = 100  # at a circle in which nobody sits beside one who is alike


def emoji_entailment(
    corpus: Dataset, languages: str | list[str] | tuple[str, ...], *, hard_negatives: bool = False, seed: int = 0
) -> Dataset:
    """Is this the image's name? For every image, in every language, once its own and once another emoji's.

    Columns: `image`, `image_id`, `text` (the name), `language`, `label` (0 false, 1 true).

    Another's names are dealt out among the drawings of a vendor and a split such that each is used once: every name is
    as often true as false, and every image too, so that neither alone says anything. The other emoji is the same in
    all languages. It is never one of the same name, or whose drawing is the same pixel for pixel (flags of Norway and
    of Bouvet Island).

    Args:
        corpus: from `load_emoji`. Images without a name in one of the languages are left out.
        languages: whose names to ask with.
        hard_negatives: deal names out within a category: is this face one of these twenty? An image that is alone in
            its category is left out.
        seed: of the dealing. The images of every draw are copied.

    Raises:
        CorpusError: when no two images with names in all of the languages are left.
        LanguageTagError: for an unknown language.
    """
    tags = normalize_languages(languages)
    names = [{caption["language"]: caption["text"] for caption in row} for row in corpus["captions"]]
    drawings = corpus.cast_column("image", Image(decode=False)).select_columns("image")[:]["image"]
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row, (vendor, split, category) in enumerate(zip(*(corpus[name] for name in _GROUPING), strict=True)):
        if all(tag in names[row] for tag in tags):
            groups[vendor, split, category if hard_negatives else "any"].append(row)

    def alike(a: int, b: int) -> bool:
        return drawings[a] == drawings[b] or any(names[a][tag] == names[b][tag] for tag in tags)

    others: dict[int, int] = {}
    for group, rows in groups.items():
        if len(rows) > 1:
            others |= _dealt(rows, alike, random.Random(f"{seed} {group}"))
    if not others:
        raise CorpusError(f"no two images that can be told apart have names in {', '.join(tags)}")
    examples = [
        _Example(row, names[named][tag], tag, "true" if named == row else "false")
        for tag in tags
        for row in sorted(others)
        for named in (row, others[row])
    ]
    return _dataset(corpus, examples, TRUTH)


def emoji_questions(corpus: Dataset, languages: str | list[str] | tuple[str, ...], *, seed: int = 0) -> Dataset:
    """Short questions about the images, in English, German, French, Czech, Japanese, Chinese and Indonesian.

    Columns: `image`, `image_id`, `text` (the question), `language`, `label` (among `ANSWERS`), `question`, one of

        kind      "What kind of thing is this?": one of nine, Unicode's groups of emoji
        colour    "What colour is mostly seen?": one of seven, see `main_colour`; asked where one covers half of what
                  is painted. It is computed from this very drawing: vendors paint the same thing differently
        category  "Is this a flag?" and the like for five of Unicode's groups: yes or no. Whether there is a face is
                  not asked: the groups do not say, since that of the smileys has hearts in it and others have faces

    Of `kind` and `colour` each image is asked once, in one of two wordings; no answer is more frequent than the
    median one, so that a rare answer costs few images. Every question of `category` has as many yes as no.

    Args:
        corpus: from `load_emoji`; names are not needed, and no language of it plays a role.
        languages: to ask in, each the same questions.
        seed: of the draws. The images of every draw are copied.

    Raises:
        CorpusError: for a language without questions, and a corpus none of whose images can be asked about.
        LanguageTagError: for an unknown language.
    """
    tags = normalize_languages(languages)
    wordings = _wordings()
    if absent := [tag for tag in tags if tag not in wordings]:
        raise CorpusError(f"there are no questions in {', '.join(absent)}; there are in {', '.join(wordings)}")
    draw = random.Random(seed)
    categories = {row: category for row, category in enumerate(corpus["category"]) if category in CATEGORIES}
    colours = {row: main_colour(image) for row, image in enumerate(corpus["image"])}
    asked = [("kind", row, answer) for row, answer in _balanced(categories, draw)]
    asked += [("colour", row, answer) for row, answer in _balanced(colours, draw)]
    for category in CATEGORIES:
        if category in wordings["en"]:
            asked += [(category, row, answer) for row, answer in _yes_or_no(categories, category, draw)]
    if not asked:
        raise CorpusError("the images have no category and no colour that could be asked about")
    chosen = [draw.randrange(len(wordings["en"][about])) for about, _, _ in asked]
    examples = [
        _Example(row, wordings[tag][about][wording], tag, answer)
        for tag in tags
        for (about, row, answer), wording in zip(asked, chosen, strict=True)
    ]
    kinds = ["category" if about in CATEGORIES else about for about, _, _ in asked] * len(tags)
    return _dataset(corpus, examples, ANSWERS).add_column("question", kinds)


def text_only_accuracy(dataset: Dataset) -> float:
    """How often the most frequent label of its text is right: what can be had without looking, between 0 and 1."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for text, label in zip(dataset["text"], dataset["label"], strict=True):
        counts[text][label] += 1
    return sum(max(labels.values()) for labels in counts.values()) / len(dataset)


def main_colour(image: PIL.Image.Image) -> str | None:
    """The colour, of `COLOURS`, of at least half of what is painted: of all pixels that are not white.

    By hue in HSV: red from 335 degrees, orange (with brown) from 12, yellow from 40, green from 70, blue from 170,
    purple (with pink) from 250; without regard to hue, grey for a saturation below .2 or a value below .25. None when
    no colour covers half, or next to nothing is painted.
    """
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


# ------------------------------------------------------------------------------------------------------------ draws


class _Example(NamedTuple):
    row: int
    text: str
    language: str
    label: str


@cache
def _wordings() -> dict[str, dict[str, list[str]]]:
    """Language -> what is asked about -> wordings, as many in every language."""
    return json.loads(files(__package__).joinpath("questions.json").read_text("utf-8"))


def _dealt(rows: Sequence[int], alike: Callable[[int, int], bool], draw: random.Random) -> dict[int, int]:
    """For every row another that is not like it, each of them once: the next one on a random circle."""
    for _ in range(_ATTEMPTS):
        circle = draw.sample(rows, len(rows))
        others = dict(zip(circle, circle[1:] + circle[:1], strict=True))
        if not any(alike(a, b) for a, b in others.items()):
            return others
    raise CorpusError(f"too many of {len(rows)} images are alike to give each the name of another")


def _balanced(answers: dict[int, Any], draw: random.Random) -> list[tuple[int, str]]:
    """(row, answer) for as many rows as leave no answer more frequent than the median one. None is no answer."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, answer in answers.items():
        if answer is not None:
            rows_of[answer].append(row)
    most = median_low(map(len, rows_of.values())) if rows_of else 0
    return sorted((row, answer) for answer, rows in rows_of.items() for row in draw.sample(rows, min(most, len(rows))))


def _yes_or_no(categories: dict[int, str], category: str, draw: random.Random) -> list[tuple[int, str]]:
    """(row, answer) with as many images of the category as of all others."""
    inside = [row for row, its in categories.items() if its == category]
    outside = [row for row, its in categories.items() if its != category]
    count = min(len(inside), len(outside))
    return sorted(
        (row, answer) for answer, rows in (("yes", inside), ("no", outside)) for row in draw.sample(rows, count)
    )


def _dataset(corpus: Dataset, examples: list[_Example], labels: Sequence[str]) -> Dataset:
    features = Features(
        image=Image(),
        image_id=Value("string"),
        text=Value("string"),
        language=Value("string"),
        label=ClassLabel(names=list(labels)),
    )
    images = corpus.select_columns(["image", "image_id"]).with_format("arrow")[:]
    table = images.take(pa.array([example.row for example in examples]))
    table = table.append_column("text", pa.array([example.text for example in examples]))
    table = table.append_column("language", pa.array([example.language for example in examples]))
    table = table.append_column("label", pa.array([labels.index(example.label) for example in examples]))
    table = table.replace_schema_metadata(features.arrow_schema.metadata)
    return Dataset(table, info=DatasetInfo(features=features))
