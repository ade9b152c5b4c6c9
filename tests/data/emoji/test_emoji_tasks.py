import json
from collections import Counter, defaultdict
from importlib.resources import files

import PIL.Image
import pyarrow as pa
from datasets import Dataset

from babelens.data import emoji_entailment, emoji_questions, weakly_aligned_emoji
from babelens.data.emoji.benchmark import ANSWERS, CATEGORIES, _with_keyword_captions, main_colour
from babelens.data.emoji.build import FEATURES, KEYWORD_SEPARATOR


def drawing(colour, size):
    image = PIL.Image.new("RGB", (16, 16), "white")
    image.paste(colour, (0, 0, size, size))
    return image


def captions(texts):
    return [{"language": language, "text": text} for language, text in texts.items()]


def emoji_row(name, texts, keywords, category="Objects", image=None):
    about = {"image": image, "image_id": name, "captions": captions(texts), "keywords": captions(keywords)}
    return about | {"split": "train", "vendor": "noto", "emoji": name, "category": category}


def emoji(count):
    rows = []
    for number in range(count):
        image = drawing(("#dd2e44", "#ffcc4d")[number % 2], 5 + number % 11)
        texts = {tag: f"{tag} train {number}" for tag in ("en", "de", "ja")[: 2 + number % 2]}
        rows.append(emoji_row(f"train {number}", texts, {}, CATEGORIES[number % len(CATEGORIES)], image))
    return Dataset.from_list(rows, features=FEATURES)


def rows(dataset):
    columns = [name for name in dataset.column_names if name != "image"]
    return [tuple(row[name] for name in columns) for row in dataset.select_columns(columns)]


def test_every_image_and_every_name_is_once_true_and_once_false():
    task = emoji_entailment(emoji(30), ["en", "de"])
    assert task.column_names == ["image", "image_id", "text", "language", "label"]
    assert task.features["label"].names == ["false", "true"]
    for column in ("image_id", "text"):
        labels = defaultdict(list)
        for language, value, label in zip(task["language"], task[column], task["label"], strict=True):
            labels[language, value].append(label)
        assert len(labels) == 60
        assert all(sorted(found) == [0, 1] for found in labels.values())
    assert all((text.partition(" ")[2] == image_id) == label for image_id, text, _, label in rows(task))


def test_answers_are_true_and_as_frequent_as_promised():
    corpus = emoji(90)
    task = emoji_questions(corpus, "en")
    assert task.column_names == ["image", "image_id", "text", "language", "label", "question"]
    assert tuple(task.features["label"].names) == ANSWERS
    category_of = dict(zip(corpus["image_id"], corpus["category"], strict=True))
    colour_of = {row["image_id"]: main_colour(row["image"]) for row in corpus}
    wordings = json.loads(files("babelens.data.emoji").joinpath("questions.json").read_text("utf-8"))
    about = {texts[0]: name for name, texts in wordings["en"].items() if name in CATEGORIES}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for image_id, text, _, label, question in rows(task):
        answer = ANSWERS[label]
        truth = {"kind": category_of[image_id], "colour": colour_of[image_id]}
        asked = about.get(text)
        assert answer == (truth[question] if asked is None else ("no", "yes")[category_of[image_id] == asked])
        counts[asked or question][answer] += 1
    assert counts.pop("kind") == dict.fromkeys(CATEGORIES, 10)
    assert counts.pop("colour") == {"red": 45, "yellow": 45}
    assert len(counts) == 5
    assert all(found == {"yes": 10, "no": 10} for found in counts.values())


def test_the_main_colour_covers_half_of_what_is_painted():
    paints = {"#dd2e44": "red", "#f4900c": "orange", "#ffcc4d": "yellow", "#78b159": "green", "#55acee": "blue"}
    paints |= {"#ff0008": "red", "#662113": "red", "#c1694f": "orange", "#ff66cc": "purple", "#002000": "grey"}
    for paint, name in paints.items():
        assert main_colour(drawing(paint, 8)) == name, paint
    image = drawing("#dd2e44", 8)
    image.paste("#78b159", (0, 8, 8, 16))
    assert main_colour(image) in ("red", "green")
    image.paste("#55acee", (8, 0, 16, 8))
    assert main_colour(image) is None
    assert (main_colour(drawing("#dd2e44", 3)), main_colour(drawing("#dd2e44", 4))) == (None, "red")


NAMES = {"tent": {"en": "tent", "de": "Zelt", "ja": "テント"}, "flag": {"en": "flag", "de": "Flagge"}}
KEYWORDS = {
    "tent": {"en": "camping, tent", "de": "Camping, Zelt, Zeltplatz", "ja": "a, b, c, d, e, f, g, テント"},
    "flag": {"en": "flag", "de": "Flagge, Fahne"},
}


def named(*names):
    return Dataset.from_list([emoji_row(name, NAMES[name], KEYWORDS[name]) for name in names], features=FEATURES)


def test_every_row_is_a_name_and_keywords_in_another_language():
    weak = weakly_aligned_emoji(named("tent", "flag"), pairs=99)
    assert weak.features == FEATURES
    assert weak["image_id"] == ["tent"] * 6 + ["flag"]  # no keyword but `flag` itself is left in English
    for row in weak:
        name, keywords = row["captions"]
        own = NAMES[row["image_id"]]
        assert name["text"] == own[name["language"]]
        assert name["language"] != keywords["language"]
        words = keywords["text"].split(KEYWORD_SEPARATOR)
        there = KEYWORDS[row["image_id"]][keywords["language"]].split(KEYWORD_SEPARATOR)
        assert set(words) <= set(there) - {own[keywords["language"]]}
        assert len(words) == len(set(words)) == min(5, len(there) - 1)


def test_keywords_can_be_captions_too():
    """Two of each language, with the name or without it, drawn anew for every image."""
    table = named("tent", "flag").with_format("arrow")[:]
    found = _with_keyword_captions(table, 2)
    assert found == _with_keyword_captions(table, 2)
    assert found.drop_columns("captions") == table.drop_columns("captions")
    for row, before in zip(found.to_pylist(), table.to_pylist(), strict=True):
        names, added = row["captions"][: len(before["captions"])], row["captions"][len(before["captions"]) :]
        assert names == before["captions"]
        assert [each["language"] for each in added] == [tag for tag in NAMES[row["image_id"]] for _ in range(2)]
        for caption in added:
            tag, rest = caption["language"], caption["text"]
            said = {NAMES[row["image_id"]][tag], *KEYWORDS[row["image_id"]][tag].split(KEYWORD_SEPARATOR)}
            for part in sorted(said, key=len, reverse=True):
                rest = rest.replace(part, "")
            assert not rest.strip()
    other = table.set_column(table.column_names.index("vendor"), "vendor", pa.array(["twemoji"] * 2))
    assert _with_keyword_captions(other, 2)["captions"] != found["captions"]


def test_without_keywords_no_caption_is_empty():
    """CLDR names some emoji without keywords."""
    keywords = captions({"en": "a, , b", "de": "", "ja": "a, , b"})
    rows_of = [emoji_row(name, NAMES[name], {}) | {"keywords": keywords[: len(NAMES[name])]} for name in NAMES]
    bare = Dataset.from_list(rows_of, features=FEATURES)
    weak = weakly_aligned_emoji(bare, pairs=99)
    for table in (_with_keyword_captions(bare.with_format("arrow")[:], 3), weak.with_format("arrow")[:]):
        texts = [each["text"] for row in table["captions"].to_pylist() for each in row]
        assert all(word.strip() for text in texts for word in text.split(KEYWORD_SEPARATOR)), texts
    assert {row["captions"][1]["language"] for row in weak} == {"en", "ja"}
