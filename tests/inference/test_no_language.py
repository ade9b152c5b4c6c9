import logging

import numpy as np
import pytest
import torch
from transformers import pipeline

from babelens import Embedder
from babelens.inference.texts import languages_of, warn_of_language
from babelens.processing import processing_dual_encoder
from babelens.utils.errors import InputError, LanguageTagError
from tests.contracts import drawn_images
from tests.support.tiny_native import saved, tiny_clip

TEXTS = ["a red car", "ein roter Wagen im Schnee"]


@pytest.fixture(autouse=True)
def unwarned():
    processing_dual_encoder.logger.warning_once.cache_clear()


@pytest.mark.parametrize("name", ["mural", "etcl", "liwe"])
def test_where_nothing_depends_on_it(folder_of, name):
    embedder = Embedder.from_pretrained(folder_of(name), device="cpu")
    expected = embedder.encode_text(TEXTS, language="de")
    assert np.array_equal(embedder.encode_text(TEXTS), expected)
    embed = pipeline("feature-extraction", model=str(folder_of(name)))
    torch.testing.assert_close(torch.tensor(embed(TEXTS))[:, 0], torch.from_numpy(expected))
    classify = pipeline("zero-shot-image-classification", model=str(folder_of(name)))
    labels = {"candidate_labels": ["car", "dog"]}
    assert classify(drawn_images(1)[0], **labels) == classify(drawn_images(1)[0], **labels, language="en")


@pytest.mark.parametrize("name", ["mla", "mla_student"])
def test_a_native_language_is_taken_and_said_once(folder_of, name, caplog):
    embedder = Embedder.from_pretrained(folder_of(name), device="cpu")
    embedder.processor.native_texts = "native"  # which a student chooses; MLA always reads them so
    with caplog.at_level(logging.WARNING):
        found = [embedder.encode_text(TEXTS), embedder.encode_text(TEXTS)]
    assert all(np.array_equal(each, embedder.encode_text(TEXTS, language="en")) for each in found)
    assert len([record for record in caplog.records if "native language" in record.message]) == 1


def test_a_model_of_several_languages_needs_it(folder_of):
    with pytest.raises(InputError, match="the model has en, de, fr"):
        Embedder.from_pretrained(folder_of("smalr"), device="cpu").encode_text(TEXTS)


@pytest.mark.parametrize(
    ("card", "warned"), [(None, {"uk", "de"}), ("ja\n- uk-Cyrl", {"de"}), ("multilingual", set()), ("de\n- uk", set())]
)
def test_a_language_that_the_model_does_not_state_is_told_once(card, warned, tmp_path, caplog):
    folder = saved(tiny_clip(), tmp_path / "clip")
    if card:
        (folder / "README.md").write_text(f"---\nlanguage:\n- {card}\n---\n# A model\n")
    for language in ("de", "uk", "und", "de", "uk"):
        warn_of_language(language, *languages_of(None, str(folder)), str(folder))
    assert len(caplog.messages) == len(warned)
    assert all(any(tag in message for message in caplog.messages) for tag in warned)


@pytest.mark.parametrize("factory", ["make_mla", "make_ridge", "make_smalr"])
def test_a_language_goes_by_several_tags(factory, request):
    _, processor = request.getfixturevalue(factory)()
    learned = processor.languages[-1]
    one, other = (processor(text="ein Hund", language=tag, return_tensors="pt") for tag in (learned, f"{learned}-AT"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(LanguageTagError, match="'mi'"):
        processor(text="ein Hund", language="mi")


def test_native_texts_of_any_country_are_native(make_mla, make_mla_student, make_ridge):
    for model, processor in (make_mla(), make_ridge(), make_mla_student(native_texts="native")):
        embedder = Embedder(model, processor)
        found = embedder.encode_text(["a red dog"] * 3, language=["en", "en-GB", "en-Latn-US"])
        assert (found == found[0]).all()
