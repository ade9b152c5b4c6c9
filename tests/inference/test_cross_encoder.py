"""The cross-encoder gives the model's own scores in batches of any size."""

import numpy as np
import pytest
import torch
from PIL import Image

from babelens.inference import cross_encoder as cross_encoder_module
from babelens.inference.cross_encoder import CrossEncoder
from tests.support.tiny_cross_encoder import tiny_cross_encoder

TEXTS = ["thing 0", "a thing of many words, number 10", "ding 20", "sache, die 30 heißt", "thing 40"]
LANGUAGES = ["en", "en", "de", "de", "en"]


class Counted(list):
    def __init__(self, drawn: list[Image.Image]) -> None:
        super().__init__(drawn)
        self.reads = [0] * len(drawn)

    def __getitem__(self, index):
        if isinstance(index, int):
            self.reads[index] += 1
        return super().__getitem__(index)


@pytest.fixture(scope="module")
def parts():
    return tiny_cross_encoder(TEXTS, ["en", "de"])


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return Counted([Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)) for _ in range(7)])


@pytest.fixture
def regions():
    rng = np.random.default_rng(1)
    return [rng.standard_normal((count, 6)).astype(np.float32) for count in (1, 5, 3)]


def one_by_one(parts, texts, languages, **visual) -> np.ndarray:
    model, processor = parts
    number = len(next(iter(visual.values())))
    scores = np.empty((len(texts), number), np.float32)
    for row, (text, language) in enumerate(zip(texts, languages, strict=True)):
        for column in range(number):
            given = {name: [items[column]] for name, items in visual.items()}
            inputs = processor(text=text, language=language, return_tensors="pt", **given)
            with torch.no_grad():
                scores[row, column] = model(**inputs).scores.item()
    return scores


@pytest.mark.parametrize(("batch_size", "at_once"), [(4, 3), (64, 256)])
def test_all_pairs_are_scored_as_each_is_alone(parts, images, monkeypatch, batch_size, at_once):
    monkeypatch.setattr(cross_encoder_module, "_IMAGES_AT_ONCE", at_once)
    found = CrossEncoder(*parts, batch_size=batch_size).score_all(TEXTS, images, language=LANGUAGES)
    assert found.dtype == np.float32 and found.shape == (5, 7)
    assert images.reads == [1] * 7
    np.testing.assert_allclose(found, one_by_one(parts, TEXTS, LANGUAGES, images=list(images)), rtol=0, atol=1e-5)
    assert np.ptp(found, axis=0).min() > 0.01 and np.ptp(found, axis=1).min() > 0.01


def test_pairs_of_texts_and_images(parts, images):
    judge = CrossEncoder(*parts, batch_size=3)
    every = judge.score_all(TEXTS, images, language=LANGUAGES)
    found = judge.score(TEXTS, images[:5], language=LANGUAGES)
    np.testing.assert_allclose(found, every.diagonal(), rtol=0, atol=1e-5)
    pairs = np.array([[4, 6], [0, 0], [4, 6], [2, 1]])
    chosen = judge.score_pairs(TEXTS, images, pairs, language=LANGUAGES)
    np.testing.assert_allclose(chosen, every[pairs[:, 0], pairs[:, 1]], rtol=0, atol=1e-5)
    assert chosen[0] == chosen[2]


@pytest.mark.parametrize("visual", ["regions", "both"])
def test_regions_in_place_of_images_or_beside_them(images, regions, visual):
    parts = tiny_cross_encoder(TEXTS, ["en", "de"], visual=visual)
    given = {"regions": regions} | ({"images": images[:3]} if visual == "both" else {})
    found = CrossEncoder(*parts, batch_size=4).score_all(TEXTS, language=LANGUAGES, **given)
    np.testing.assert_allclose(found, one_by_one(parts, TEXTS, LANGUAGES, **given), rtol=0, atol=1e-5)
