"""The pipeline `image-text-retrieval`, in both directions: the model's scores, best first."""

import numpy as np
import pytest
from transformers import pipeline

from babelens.inference import rc3_pipelines
from babelens.inference.cross_encoder import CrossEncoder
from tests.contracts import CAPTIONS, drawn_images
from tests.support.tiny_cross_encoder import tiny_cross_encoder
from tests.support.tiny_native import saved

TEXTS = list(CAPTIONS.values())


@pytest.fixture(scope="module")
def parts():
    return tiny_cross_encoder(TEXTS, list(CAPTIONS))


@pytest.fixture(scope="module")
def retrieve(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    saved(parts, folder)
    return pipeline("image-text-retrieval", model=str(folder), device="cpu")


@pytest.fixture
def scores(parts):
    return CrossEncoder(*parts).score_all(TEXTS, drawn_images(7), language="de")


def assert_best_first(found: list[dict], scores: np.ndarray) -> None:
    assert [each["index"] for each in found] == np.argsort(-scores, kind="stable").tolist()
    np.testing.assert_allclose([each["score"] for each in found], np.sort(scores)[::-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("at_once", [3, 64])
def test_images_by_text_and_texts_by_image(retrieve, scores, monkeypatch, at_once):
    monkeypatch.setattr(rc3_pipelines, "_CANDIDATES_AT_ONCE", at_once)
    assert_best_first(retrieve(TEXTS[1], images=drawn_images(7), language="de"), scores[1])
    assert_best_first(retrieve(drawn_images(7)[4], texts=TEXTS, language="de"), scores[:, 4])


def test_several_queries_and_the_best_only(retrieve, scores, tmp_path):
    for number, image in enumerate(drawn_images(7)):
        image.save(tmp_path / f"{number}.png")
    paths = [str(tmp_path / f"{number}.png") for number in range(7)]
    for row, found in enumerate(retrieve(TEXTS[:3], images=paths, language="de", top_k=2)):
        assert [each["index"] for each in found] == np.argsort(-scores[row])[:2].tolist()
    for column, found in enumerate(retrieve(paths[:2], texts=TEXTS, language="de")):
        assert_best_first(found, scores[:, column])


@pytest.mark.parametrize("batch_size", [2, 3])
def test_batches_of_queries_change_nothing(retrieve, batch_size):
    for queries, candidates in ((TEXTS[:5], {"images": drawn_images(7)}), (drawn_images(7)[:5], {"texts": TEXTS})):
        one_by_one = retrieve(queries, **candidates, language="de", top_k=4)
        assert retrieve(queries, **candidates, language="de", top_k=4, batch_size=batch_size) == one_by_one
    assert retrieve(TEXTS[0], images=drawn_images(2), language="de", batch_size=2)[0]["score"]
