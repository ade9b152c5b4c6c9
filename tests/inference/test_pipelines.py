import numpy as np
import pytest
import torch
from PIL import Image
from transformers import pipeline
from transformers.pipelines.feature_extraction import FeatureExtractionPipeline
from transformers.pipelines.zero_shot_image_classification import ZeroShotImageClassificationPipeline

from babelens.evaluation.classification import prompt_set
from babelens.inference.embedder import Embedder
from babelens.inference.pipelines import PHOTO_TEMPLATES, MultilingualZeroShotPipeline, templates_of
from babelens.utils.errors import ModelKindError
from tests.contracts import LANGUAGES, TEXTS, drawn_images
from tests.support.tiny_native import saved

LABELS = ["ein auto", "ein haus"]


@pytest.fixture(scope="module")
def classify(clip_folder):
    return pipeline("zero-shot-image-classification", model=str(clip_folder))


@pytest.fixture(scope="module")
def stock(clip_folder):
    stock_class = {"pipeline_class": ZeroShotImageClassificationPipeline}
    return pipeline("zero-shot-image-classification", model=str(clip_folder), **stock_class)


def test_without_a_language_it_is_that_of_transformers(classify, stock):
    assert type(classify) is MultilingualZeroShotPipeline
    image = drawn_images(1)[0]
    for options in ({}, {"hypothesis_template": "ein {}"}):
        asked = {"candidate_labels": LABELS} | options
        assert classify(image, **asked) == stock(image, **asked)


def test_the_template_of_the_language_and_one_of_the_user(classify, stock):
    image = drawn_images(1)[0]
    german = stock(image, candidate_labels=LABELS, hypothesis_template=PHOTO_TEMPLATES["de"][0])
    assert classify(image, candidate_labels=LABELS, language="de-AT") == german
    own = stock(image, candidate_labels=LABELS, hypothesis_template="hier: {}")
    assert classify(image, candidate_labels=LABELS, language="de", hypothesis_template="hier: {}") == own
    assert german != own


def test_a_language_without_a_template_is_asked_by_labels_alone(classify, stock, caplog):
    image = drawn_images(1)[0]
    found = classify(image, candidate_labels=LABELS, language="yo")
    assert found == stock(image, candidate_labels=LABELS, hypothesis_template="{}")
    assert "no template in yo: only its labels are read" in caplog.text


@pytest.mark.parametrize(
    ("language", "like"),
    [("pt-BR", "pt"), ("zh-TW", "zh-Hant"), ("zh-Hans", "zh"), ("sr-Latn", "sr-Latn"), ("fil", "tl"), ("EN", "en")],
)
def test_a_template_of_the_same_language_and_script(language, like):
    assert templates_of(language, PHOTO_TEMPLATES) == prompt_set("photo")[like]


@pytest.fixture
def folder(folder_of):
    return str(folder_of("mla"))


def test_without_a_language_it_is_that_of_transformers_also_in_batches(folder):
    embed = pipeline("feature-extraction", model=folder)
    stock = pipeline("feature-extraction", model=folder, pipeline_class=FeatureExtractionPipeline)
    assert embed(TEXTS) == stock(TEXTS)
    torch.testing.assert_close(torch.tensor(embed(TEXTS, batch_size=4)), torch.tensor(stock(TEXTS)))


def test_a_task_chooses_the_head_of_texts_without_a_language(make_mural, tmp_path):
    saved(make_mural(), tmp_path)
    embed, embedder = pipeline("feature-extraction", model=str(tmp_path)), Embedder.from_pretrained(tmp_path)
    expected = torch.from_numpy(embedder.encode_text(TEXTS, language=LANGUAGES, task="text_text"))
    assert (expected - torch.from_numpy(embedder.encode_text(TEXTS, language=LANGUAGES))).abs().max() > 0.1
    found = embed(TEXTS, task="text_text", batch_size=4, return_tensors=True)  # by the tokenizer alone
    torch.testing.assert_close(torch.cat(found), expected)
    assert embed(TEXTS[1], language=LANGUAGES[1], return_tensors=True).shape == (1, expected.shape[1])
    with pytest.raises(ModelKindError, match=r"no head for 'triplet'; its tasks are image_text, text_text"):
        embed(TEXTS, language="de", task="triplet")


def test_transparency_lies_on_white_as_in_training(folder, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "seen_through.png")
    path = str(tmp_path / "seen_through.png")
    found = pipeline("image-feature-extraction", model=folder)([path, path], batch_size=2)
    expected = torch.from_numpy(Embedder.from_pretrained(folder).encode_image([path]))
    torch.testing.assert_close(torch.tensor(found[1]), expected)
