"""Tasks from emoji: balanced, the same in every language and run, and not to be answered by words alone."""

from collections import Counter, defaultdict
from io import BytesIO

import PIL.Image
from datasets import Dataset

from babelens.data import emoji_entailment, emoji_questions
from babelens.data.emoji.build import FEATURES
from babelens.data.emoji.tasks import ANSWERS, CATEGORIES, _wordings, main_colour


def drawing(colour, size):
    """A square of that many pixels a side in the corner of a white image."""
    image = PIL.Image.new("RGB", (16, 16), "white")
    image.paste(colour, (0, 0, size, size))
    return image


def emoji(count, *, vendor="noto", split="train", category=None):
    """Concepts that differ in name and image, of all categories by turns, a yellow one after each red one."""
    rows = []
    for number in range(count):
        buffer = BytesIO()
        drawing(("#dd2e44", "#ffcc4d")[number % 2], 5 + number % 11).save(buffer, "PNG")
        rows.append(
            {
                "image": {"bytes": buffer.getvalue(), "path": None},
                "image_id": f"{split} {number}",
                "captions": [
                    {"language": tag, "text": f"{tag} {split} {number}"}
                    for tag in ("en", "de", "ja")[: 2 + number % 2]
                ],
                "split": split,
                "vendor": vendor,
                "emoji": str(number),
                "category": category or CATEGORIES[number % len(CATEGORIES)],
                "keywords": [],
            }
        )
    return Dataset.from_list(rows, features=FEATURES)


def rows(dataset):
    columns = [name for name in dataset.column_names if name != "image"]
    return [tuple(row[name] for name in columns) for row in dataset.select_columns(columns)]


class TestEntailment:
    def test_every_image_and_every_name_is_once_true_and_once_false(self):
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


class TestQuestions:
    def test_answers_are_true_and_as_frequent_as_promised(self):
        corpus = emoji(90)
        task = emoji_questions(corpus, "en")
        assert task.column_names == ["image", "image_id", "text", "language", "label", "question"]
        assert tuple(task.features["label"].names) == ANSWERS
        category_of = dict(zip(corpus["image_id"], corpus["category"], strict=True))
        colour_of = {row["image_id"]: main_colour(row["image"]) for row in corpus}
        about = {texts[0]: name for name, texts in _wordings()["en"].items() if name in CATEGORIES}
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
