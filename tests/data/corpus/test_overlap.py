"""What of held-out data is in the training data."""

import io

import numpy as np
import pytest
from datasets import Dataset, Image
from PIL import Image as Pillow

from babelens.data.corpus import overlap
from babelens.data.corpus.overlap import corpus_overlaps, shared_images, shared_texts
from tests.support.tiny_training import shapes_corpus


def photo(seed, size=(64, 48)):
    """A smooth picture, another one for each seed."""
    noise = np.random.default_rng(seed).normal(128, 90, (6, 6))  # Pillow's own noise differs from run to run
    parts = Pillow.fromarray(noise.clip(0, 255).astype(np.uint8))
    return parts.convert("RGB").resize(size, Pillow.Resampling.BICUBIC)


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return {"bytes": buffer.getvalue(), "path": None}


def corpus(cells):
    return Dataset.from_dict({"image": cells}).cast_column("image", Image())


@pytest.fixture(scope="module")
def photos():
    return [photo(seed) for seed in range(8)]


def test_same_files_and_similar_images_are_counted_apart(photos):
    held_out = corpus([encoded(image) for image in photos[:4]])
    training = [
        corpus([encoded(photos[0]), encoded(photos[5])]),
        corpus([encoded(photos[1], "JPEG", quality=80), encoded(photos[2].resize((160, 120)))]),
    ]
    found = shared_images(held_out, training)
    assert (found.total, found.same, found.alike) == (4, 1, 2)
    assert found.is_notable
    assert not shared_images(held_out, [corpus([encoded(each) for each in photos[4:]])]).is_notable


def test_images_in_rows_and_in_files_are_the_same(photos, tmp_path):
    paths = []
    for number, image in enumerate(photos):
        paths.append(str(tmp_path / f"{number}.png"))
        image.save(paths[-1])
    held_out = corpus([encoded(image) for image in photos[:2]])
    assert shared_images(held_out, [corpus([{"bytes": None, "path": path} for path in paths])]).same == 2


def test_many_images_are_not_decoded_and_few_are_read(photos, tmp_path, monkeypatch):
    """Of many images only the files that are as large as a held-out one are read."""
    read = []
    monkeypatch.setattr(overlap, "_DECODED", 4)
    monkeypatch.setattr(overlap, "read_image", None)
    monkeypatch.setattr(overlap, "image_bytes", lambda cell, place: read.append(place) or cell["bytes"])
    held_out = corpus([encoded(photos[0])])
    found = shared_images(held_out, [corpus([encoded(image) for image in photos] * 2)])
    assert (found.same, found.alike) == (1, None)
    assert "not searched for" in str(found)
    assert len(read) < 1 + 2 * len(photos)


def test_images_that_cannot_be_read_are_left_out(photos):
    held_out = corpus([encoded(photos[0]), {"bytes": b"no image", "path": None}, {"bytes": None, "path": "gone.png"}])
    found = shared_images(held_out, [corpus([encoded(photos[0]), {"bytes": None, "path": "gone.png"}])])
    assert (found.total, found.same, found.alike) == (3, 1, 0)


def test_texts_are_compared_as_written_and_by_their_letters():
    held_out = ["A dog runs.", "Ein  Hund", "a cat", "a cat", "犬が走る。", "?!"]
    training = ["a dog runs", "A DOG, RUNS", "Ein Hund", "A bird", "犬が走る", "...", "Straße"]
    found = shared_texts(held_out, iter(training))
    assert (found.total, found.same, found.alike) == (5, 1, 2)
    assert shared_texts(["STRASSE"], training).alike == 1


def test_streams_are_named_and_not_read():
    shapes = shapes_corpus()
    stream = {"web": shapes.to_iterable_dataset()}
    images, texts = corpus_overlaps(shapes, images=stream, texts=stream | {"pairs": shapes.remove_columns("image")})
    assert (images.same, images.alike) == (0, 0)
    assert (texts.same, texts.total) == (48, 48)
    assert all("web not compared" in str(found) for found in (images, texts))
    assert corpus_overlaps(shapes.remove_columns("image"), images={"own": shapes}, texts={}) == []
