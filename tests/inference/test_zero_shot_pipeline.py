"""The pipeline `zero-shot-image-classification` with labels in a language; the contracts of the methods run it too."""

import pytest
import torch
from transformers import pipeline
from transformers.pipelines.zero_shot_image_classification import ZeroShotImageClassificationPipeline

from babelens.evaluation.classification import prompt_set
from babelens.inference.pipelines import PHOTO_TEMPLATES, MultilingualZeroShotPipeline, templates_of
from tests.contracts import drawn_images
from tests.support.tiny_native import saved, tiny_clip

LABELS = ["ein auto", "ein haus"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(saved(tiny_clip(), tmp_path_factory.mktemp("clip") / "clip"))


@pytest.fixture(scope="module")
def classify(folder):
    return pipeline("zero-shot-image-classification", model=folder)


@pytest.fixture(scope="module")
def stock(folder):
    return pipeline("zero-shot-image-classification", model=folder, pipeline_class=ZeroShotImageClassificationPipeline)


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


def test_labels_of_several_languages_and_several_images(classify):
    images = drawn_images(3)
    found = classify(images, candidate_labels=LABELS, language=["de", "en"], batch_size=2)
    alone = classify(images[2], candidate_labels=LABELS, language=["de", "en"])
    assert [entry["label"] for entry in found[2]] == [entry["label"] for entry in alone]
    torch.testing.assert_close(*(torch.tensor([entry["score"] for entry in each]) for each in (found[2], alone)))


def test_a_language_without_a_template_is_asked_by_labels_alone(classify, stock, caplog):
    image = drawn_images(1)[0]
    found = classify(image, candidate_labels=LABELS, language="yo")
    assert found == stock(image, candidate_labels=LABELS, hypothesis_template="{}")
    assert "no template in yo: only its labels are read" in caplog.text


# ---- Prompts ----


@pytest.mark.parametrize(
    ("language", "like"),
    [("pt-BR", "pt"), ("zh-TW", "zh-Hant"), ("zh-Hans", "zh"), ("sr-Latn", "sr-Latn"), ("fil", "tl"), ("EN", "en")],
)
def test_a_template_of_the_same_language_and_script(language, like):
    assert templates_of(language, PHOTO_TEMPLATES) == prompt_set("photo")[like]
