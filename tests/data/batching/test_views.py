from io import BytesIO
from itertools import product

import numpy as np
import PIL.Image
import pytest
from datasets import Dataset, Image

from babelens.data.batching import views
from babelens.data.corpus.loading import load_captions, load_translations
from babelens.utils.errors import CorpusError

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (9, 9, 9))
CAPTIONS_OF_ROWS = [
    {"en": ["cat one", "cat two"], "de": ["Katze eins", "Katze zwei"]},  # as many: one to one
    {"en": ["dog"], "de": ["Hund", "Wauwau"], "ja": ["犬"]},  # all with all
    {"en": ["sun"]},
    {"en": ["dog"], "de": ["Hund", "Köter"]},  # the second image of what row 1 shows
]
IMAGE_IDS = ["cat", "dog", "sun", "dog"]


def bytes_of(colour):
    buffer = BytesIO()
    PIL.Image.new("RGBA" if len(colour) == 4 else "RGB", (2, 2), colour).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


@pytest.fixture
def corpus():
    columns = {"image": [bytes_of(c) for c in COLOURS], "image_id": IMAGE_IDS, "captions": CAPTIONS_OF_ROWS}
    return load_captions(Dataset.from_dict(columns).cast_column("image", Image()), check_images=False)


def colour_of(example):
    return example["image"].getpixel((0, 0))


def texts(view):
    return [tuple(value for name, value in example.items() if name.startswith("text")) for example in view]


def test_there_is_one_example_for_every_caption(corpus):
    view = views.image_text_pairs(corpus)
    expected = [
        (COLOURS[row], IMAGE_IDS[row], text, language)
        for row, captions in enumerate(CAPTIONS_OF_ROWS)
        for language, row_texts in captions.items()
        for text in row_texts
    ]
    assert [(colour_of(e), e["image_id"], e["text"], e["language"]) for e in view] == expected
    assert len(view) == 12
    assert list(view[0]) == ["image", "image_id", "text", "language"]


def test_a_bad_image_is_an_error_where_it_is_used_with_its_row(corpus):
    cells = [bytes_of(COLOURS[0]), {"bytes": None, "path": "/nowhere/dog.png"}]
    columns = {"image": cells, "image_id": ["cat", "dog"], "captions": [{"en": "cat"}, {"en": "dog"}]}
    dataset = Dataset.from_dict(columns).cast_column("image", Image())
    view = views.image_text_pairs(load_captions(dataset, check_images=False))
    assert view[0]["text"] == "cat"
    with pytest.raises(CorpusError, match=r"image_id 'dog', row 1: /nowhere/dog\.png: no such file"):
        view[1]


def test_random_corpora_give_what_plain_loops_give(corpus):
    rng = np.random.default_rng(0)
    words = [f"word {number}" for number in range(6)]
    chosen = [[list(rng.choice(words, rng.integers(1, 4), replace=False)) for _ in range(2)] for _ in range(40)]
    captions = [{"en": english, "de": german} for english, german in chosen]
    rows = {"image_id": [str(number) for number in rng.integers(0, 8, 40)], "captions": captions}
    expected, seen = [], set()
    for image_id, row in zip(*rows.values(), strict=True):
        one_to_one = len(row["en"]) == len(row["de"])
        pairs = zip(row["en"], row["de"], strict=True) if one_to_one else product(row["en"], row["de"])
        new = [(image_id, *pair) for pair in pairs if (image_id, *pair) not in seen]
        expected += new
        seen.update(new)
    view = views.translation_pairs(load_translations(Dataset.from_dict(rows)), [("en", "de")])
    assert [(e["image_id"], e["text_a"], e["text_b"]) for e in view] == expected
    sides = {"text_a": "dog", "language_a": "en", "text_b": "Köter", "language_b": "de"}
    assert view.texts() == {name: [example[name] for example in view] for name in sides}
    assert views.translation_pairs(corpus, [("en", "de")])[4] == {"image_id": "dog"} | sides


def test_co_captions_are_pairs_of_different_captions():
    rows = [{"en": ["a", "b", "c"], "de": ["x", "x"]}, {"en": ["d"], "de": ["y"]}]
    corpus = load_translations(Dataset.from_dict({"captions": rows}))
    pairs = [("en", "en"), ("de", "de")]
    assert texts(views.translation_pairs(corpus, pairs[:1], co_captions=True)) == [("a", "b"), ("a", "c"), ("b", "c")]
    itself = [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")]
    assert texts(views.translation_pairs(corpus, pairs[:1])) == itself
    with pytest.raises(CorpusError, match="no row has texts in de with de"):
        views.translation_pairs(corpus, pairs, co_captions=True)


def test_triplets_give_every_image_with_every_pair_of_its_texts(corpus):
    view = views.triplets(corpus, [("en", "de")])
    found = [(colour_of(e), e["text_a"], e["text_b"]) for e in view][3:]
    assert found == [(COLOURS[row], "dog", text) for row, text in ((1, "Wauwau"), (3, "Hund"), (3, "Köter"))]
    assert list(view[0]) == ["image", "image_id", "text_a", "language_a", "text_b", "language_b"]


def test_every_two_texts_in_different_languages(corpus):
    view = views.weak_pairs(corpus, ["en", "DE"])
    cats = product(("cat one", "cat two"), ("Katze eins", "Katze zwei"))
    assert texts(view) == [*cats, *product(["dog"], ("Hund", "Wauwau", "Hund", "Köter"))]
    assert [colour_of(view[row]) for row in (0, 4, 6)] == [COLOURS[0], COLOURS[1], COLOURS[3]]


def test_all_images_are_searched_and_all_of_a_thing_are_right(corpus):
    found = views.retrieval_set(corpus, "DE")
    assert [image.getpixel((0, 0)) for image in found.images] == list(COLOURS)
    assert found.image_ids == IMAGE_IDS
    assert found.texts == ["Katze eins", "Katze zwei", "Hund", "Wauwau", "Köter"]
    assert found.text_image_ids == ["cat", "cat", "dog", "dog", "dog"]
    assert found.text_to_images == [[0], [0], [1, 3], [1, 3], [1, 3]]
    assert found.language == "de"


@pytest.mark.parametrize(
    "make",
    [lambda c: views.image_text_pairs(c, "de"), views.translation_pairs, lambda c: views.triplets(c, [("en", "de")])],
    ids=["image_text_pairs", "translation_pairs", "triplets"],
)
def test_a_stream_gives_the_same_examples(corpus, make):
    view, stream = make(corpus), make(load_captions(corpus.to_iterable_dataset()))
    assert isinstance(stream, views.StreamView)
    for expected, example in zip(view, stream, strict=True):
        assert list(example) == list(expected)
        if "image" in expected:
            assert np.array_equal(example.pop("image"), expected.pop("image"))
        assert example == expected
