"""What of held-out data is in the training data."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset, Image
from PIL import Image as Pillow
from tiny_training import shapes_corpus

from babelens.data.corpus import overlap
from babelens.data.corpus.overlap import corpus_overlaps, shared_images, shared_texts
from babelens.workflows import acquisition_run
from babelens.workflows.acquiring import Acquisition
from babelens.workflows.ridge_acquisition import RidgeAcquisition


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


# ---- What `babelens acquire` holds out ----


def acquisition(kind, folder, rows):
    (folder / "pairs.tsv").write_text("\n".join(["de\ten", *map("\t".join, rows)]), encoding="utf-8")
    run = kind("clip", "de", str(folder / "pairs.tsv"), folder / "out")
    run.model = SimpleNamespace(config=SimpleNamespace(native_language="en"))
    return run


def test_acquire_trains_on_no_copy_of_a_held_out_pair(tmp_path, monkeypatch, caplog):
    rows = [(f"Hund {n}", f"dog {n}") for n in range(60)]
    monkeypatch.setattr(acquisition_run, "translation_retrieval", lambda *args, **kwargs: {"r1": 1.0, "r10": 2.0})
    monkeypatch.setattr(acquisition_run, "Embedder", lambda *args: None)
    run = acquisition(Acquisition, tmp_path, rows * 3)
    run.processor = None
    train, held_out = run.split
    assert (len(train), len(held_out)) == (54, 6)
    assert run.retrieval_in("de", held_out) == {"pairs": 6, "r1": 1.0, "r10": 2.0} and not caplog.records
    other = acquisition(Acquisition, tmp_path, [*rows, *((text, f"the {native}") for text, native in rows)])
    other.processor = None
    found = other.retrieval_in("de", other.split[1])
    assert 0 < found["shared"] <= found["pairs"] == 12
    assert f"de: {found['shared']} of the" in caplog.text
    closed = acquisition(RidgeAcquisition, tmp_path, rows * 3)
    monkeypatch.setattr(RidgeAcquisition, "teacher", None)
    assert closed.pairs["de"] == tuple(map(list, zip(*rows, strict=True)))
