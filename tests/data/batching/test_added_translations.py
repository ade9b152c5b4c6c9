from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, Image
from PIL import Image as Pillow

from babelens.data import add_translations, as_caption_corpus, as_translation_corpus, image_text_pairs

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
def photos():
    rows = [{"features": [float(n)], "captions": captions, "vendor": "v"} for n, captions in enumerate(PHOTOS)]
    return as_caption_corpus(Dataset.from_list(rows))


@pytest.fixture
def translations():
    return as_translation_corpus(Dataset.from_list([{"captions": row} for row in TRANSLATIONS]))


def spelled(corpus):
    return [[f"{caption['language']} {caption['text']}" for caption in row["captions"]] for row in corpus]


def test_each_translation_is_added_once_behind_the_captions(photos, translations):
    found = add_translations(photos, translations)
    assert spelled(found) == [
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
    photos = as_caption_corpus(Dataset.from_list([{"image": str(tmp_path / "a.jpg"), "captions": {"en": "a dog"}}]))
    whole = image_text_pairs(photos)[0]["image"]
    for corpus in (photos, photos.to_iterable_dataset(), photos.with_format("arrow").to_iterable_dataset()):
        added = add_translations(corpus, translations, languages="en")
        assert added.features == photos.features
        examples = list(image_text_pairs(added))
        assert len(examples) == 4 and all(example["image"].tobytes() == whole.tobytes() for example in examples)
        (row,) = added.cast_column("image", Image(decode=False))
        assert (row["image"]["bytes"] or Path(row["image"]["path"]).read_bytes()) == encoded
