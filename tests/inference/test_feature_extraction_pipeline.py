"""The pipelines `feature-extraction` with languages and `image-feature-extraction`; the contracts run them too."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import pipeline
from transformers.pipelines.feature_extraction import FeatureExtractionPipeline

from babelens.inference.embedder import Embedder
from babelens.utils.errors import ModelKindError
from tests.contracts import LANGUAGES, TEXTS
from tests.support.tiny_native import saved


@pytest.fixture(scope="module")
def folder(make_mla, tmp_path_factory):
    where = tmp_path_factory.mktemp("mla") / "mla"
    saved(make_mla(), where)
    return str(where)


@pytest.fixture(scope="module")
def embed(folder):
    return pipeline("feature-extraction", model=folder)


@pytest.fixture
def expected(folder):
    return torch.from_numpy(Embedder.from_pretrained(folder).encode_text(TEXTS, language=LANGUAGES))


def test_a_text_alone_and_texts_in_batches(embed, expected):
    alone = embed(TEXTS[1], language=LANGUAGES[1], return_tensors=True)
    assert alone.shape == (1, expected.shape[1])
    torch.testing.assert_close(alone, expected[1:2])
    for batch_size in (1, 4, 16):
        found = embed(TEXTS, language=LANGUAGES, batch_size=batch_size)
        torch.testing.assert_close(torch.tensor(found)[:, 0], expected)


def test_without_a_language_it_is_that_of_transformers_also_in_batches(embed, folder):
    stock = pipeline("feature-extraction", model=folder, pipeline_class=FeatureExtractionPipeline)
    assert embed(TEXTS) == stock(TEXTS)
    torch.testing.assert_close(torch.tensor(embed(TEXTS, batch_size=4)), torch.tensor(stock(TEXTS)))


def test_a_task_chooses_the_head_of_the_texts(make_mural, tmp_path):
    saved(make_mural(), tmp_path)
    embed, embedder = pipeline("feature-extraction", model=str(tmp_path)), Embedder.from_pretrained(tmp_path)
    expected = torch.from_numpy(embedder.encode_text(TEXTS, language=LANGUAGES, task="text_text"))
    assert (expected - torch.from_numpy(embedder.encode_text(TEXTS, language=LANGUAGES))).abs().max() > 0.1
    for batch_size in (1, 4):
        given = {"task": "text_text", "batch_size": batch_size, "return_tensors": True}
        torch.testing.assert_close(torch.cat(embed(TEXTS, language=LANGUAGES, **given)), expected)
        torch.testing.assert_close(torch.cat(embed(TEXTS, **given)), expected)  # by the tokenizer alone
    with pytest.raises(ModelKindError, match=r"no head for 'triplet'; its tasks are image_text, text_text"):
        embed(TEXTS, language="de", task="triplet")


def test_transparency_lies_on_white_as_in_training(folder, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "seen_through.png")
    path = str(tmp_path / "seen_through.png")
    found = pipeline("image-feature-extraction", model=folder)([path, path], batch_size=2)
    expected = torch.from_numpy(Embedder.from_pretrained(folder).encode_image([path]))
    torch.testing.assert_close(torch.tensor(found[1]), expected)
