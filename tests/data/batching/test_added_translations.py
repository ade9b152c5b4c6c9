from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, Image
from PIL import Image as Pillow

from babelens.data import TextFilter, add_translations, image_text_pairs, load_captions, load_translations

PHOTOS = [
    {"en": ["a dog", "a black dog runs"], "de": ["ein hund"]},
    {"en": ["a cat"]},
    {"de": ["ein haus"]},
    {"en": ["a black dog runs"]},
]
TRANSLATIONS = [
    {"en": "a dog", "de": "ein hund", "cs": "pes"},
    {"en": "a dog", "cs": "nějaký pes"},
    {"en": "a black dog runs", "cs": "běží černý pes"},
    {"en": "A cat", "cs": "kočka"},  # another text than "a cat"
    {"de": "ein haus", "fr": "une maison"},
]


@pytest.fixture
def translations():
    return load_translations(Dataset.from_list([{"captions": row} for row in TRANSLATIONS]))


def test_each_translation_is_added_once_behind_the_captions(translations):
    rows = [{"features": [float(n)], "captions": captions, "vendor": "v"} for n, captions in enumerate(PHOTOS)]
    photos = load_captions(Dataset.from_list(rows))
    found = add_translations(photos, translations)
    assert [[f"{each['language']} {each['text']}" for each in row["captions"]] for row in found] == [
        ["en a dog", "en a black dog runs", "de ein hund", "cs pes", "cs nějaký pes", "cs běží černý pes"],
        ["en a cat"],
        ["de ein haus", "fr une maison"],
        ["en a black dog runs", "cs běží černý pes"],
    ]
    assert found.column_names == photos.column_names and found.features == photos.features
    assert list(found["features"]) == list(photos["features"]) and list(found["image_id"]) == list(photos["image_id"])
    for languages in (None, ["en"]):
        stream = add_translations(photos.to_iterable_dataset(num_shards=2), translations, languages=languages)
        assert list(stream) == list(add_translations(photos, translations, languages=languages))
        assert stream.features == photos.features and stream.num_shards == 2


def test_images_stay_as_they_are_encoded(tmp_path, translations):
    """A JPEG of noise, which a second encoding would change, and a rotated one."""
    noise = Pillow.fromarray(np.random.default_rng(0).integers(0, 256, (24, 16, 3), dtype=np.uint8))
    exif = Pillow.Exif()
    exif[0x0112] = 6
    noise.save(tmp_path / "a.jpg", exif=exif)
    encoded = (tmp_path / "a.jpg").read_bytes()
    photos = load_captions(Dataset.from_list([{"image": str(tmp_path / "a.jpg"), "captions": {"en": "a dog"}}]))
    whole = image_text_pairs(photos)[0]["image"]
    for corpus in (photos, photos.to_iterable_dataset(), photos.with_format("arrow").to_iterable_dataset()):
        added = add_translations(corpus, translations, languages="en")
        assert added.features == photos.features
        examples = list(image_text_pairs(added))
        assert len(examples) == 4 and all(example["image"].tobytes() == whole.tobytes() for example in examples)
        (row,) = added.cast_column("image", Image(decode=False))
        assert (row["image"]["bytes"] or Path(row["image"]["path"]).read_bytes()) == encoded


SHORT, LONG, LETTERS = "two words", " ".join("w" * 101), "a b " + "c" * 997
TEXTS = [SHORT, "three words here", LONG, " ".join("w" * 100), LETTERS, LETTERS[:-1]]


def corpus_of(rows):
    records = [{"features": [float(n)], "captions": {"en": row}} for n, row in enumerate(rows)]
    return load_captions(Dataset.from_list(records))


def texts_of(corpus):
    return [[caption["text"] for caption in row["captions"]] for row in corpus]


def test_the_values_of_the_paper_are_the_defaults():
    kept = texts_of(TextFilter().apply(corpus_of([[text] for text in TEXTS] + [[SHORT, "a red square"]])))
    assert kept == [["three words here"], [" ".join("w" * 100)], [LETTERS[:-1]], ["a red square"]]
    assert str(TextFilter()) == "texts of 3 to 100 words, 1000 characters at most and 10 images at most"


def test_texts_of_more_than_ten_rows_are_left_out_whole():
    ten, eleven = "a text of ten", "a text of eleven"
    rows = [[ten, eleven, f"own text number {n}"] for n in range(10)] + [[eleven, eleven]]
    kept = texts_of(TextFilter().apply(corpus_of(rows)))
    assert kept == [[ten, f"own text number {n}"] for n in range(10)]
    assert texts_of(TextFilter(max_images=None).apply(corpus_of(rows))) == rows


def test_a_stream_is_filtered_as_its_rows_are():
    rows = [[f"a text number {n % 30} {n % 2}", f"of {n % 3} many"] for n in range(200)]
    corpus = corpus_of([*rows, *([SHORT] for _ in range(40))])  # rows without a text left
    stream = TextFilter(max_images=6).apply(corpus.to_iterable_dataset(num_shards=4))
    assert stream.features == corpus.features
    assert list(stream) == list(TextFilter(max_images=6).apply(corpus))
