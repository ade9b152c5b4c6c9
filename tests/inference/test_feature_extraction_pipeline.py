"""The pipelines `feature-extraction` with languages and `image-feature-extraction`; the contracts of the methods run
them too, with the package and without it."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import pipeline
from transformers.pipelines.feature_extraction import FeatureExtractionPipeline

from babelens.inference.embedder import Embedder
from babelens.utils.errors import (
    ImageError,
    InputError,
    LanguageTagError,
    MissingLanguageError,
    ModelFolderError,
    ModelKindError,
    UnknownLanguageError,
)
from tests.contracts import LANGUAGES, TEXTS, drawn_images
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_text_encoders import saved_encoder


@pytest.fixture(scope="module")
def folder(make_mla, tmp_path_factory):
    where = tmp_path_factory.mktemp("mla") / "mla"
    for part in make_mla():
        part.save_pretrained(where)
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


def test_items_of_a_generator_name_their_language(embed, expected):
    items = ({"text": text, "language": tag} for text, tag in zip(TEXTS, LANGUAGES, strict=True))
    torch.testing.assert_close(torch.cat(list(embed(items, return_tensors=True))), expected)
    german = embed(({"text": text} for text in TEXTS[1:2]), language="DE", return_tensors=True)
    torch.testing.assert_close(next(iter(german)), expected[1:2])
    # A data set has None where an item names none. Before, such a text was read as one without a language.
    rows = Dataset.from_list([{"text": TEXTS[0], "language": LANGUAGES[0]}, {"text": TEXTS[1], "language": None}])
    found = embed(iter(rows), language=LANGUAGES[1], batch_size=2, return_tensors=True)
    torch.testing.assert_close(torch.cat(list(found)), expected[:2])


def test_the_processor_takes_settings(embed, folder):
    embedder = Embedder.from_pretrained(folder)
    inputs = embedder.processor(text=TEXTS[1], language="de", max_length=5, return_tensors="pt")
    with torch.no_grad():
        cut = embedder.model(**inputs).text_embeds
    given = {"language": "de", "tokenize_kwargs": {"max_length": 5}, "return_tensors": True}
    torch.testing.assert_close(embed(TEXTS[1], **given), cut)


def test_without_a_language_it_is_that_of_transformers_also_in_batches(embed, folder):
    stock = pipeline("feature-extraction", model=folder, pipeline_class=FeatureExtractionPipeline)
    assert embed(TEXTS) == stock(TEXTS)
    torch.testing.assert_close(torch.tensor(embed(TEXTS, batch_size=4)), torch.tensor(stock(TEXTS)))


def test_a_task_chooses_the_head_of_the_texts(make_mural, tmp_path):
    for part in make_mural():
        part.save_pretrained(tmp_path)
    embed, embedder = pipeline("feature-extraction", model=str(tmp_path)), Embedder.from_pretrained(tmp_path)
    expected = torch.from_numpy(embedder.encode_text(TEXTS, language=LANGUAGES, task="text_text"))
    assert (expected - torch.from_numpy(embedder.encode_text(TEXTS, language=LANGUAGES))).abs().max() > 0.1
    for batch_size in (1, 4):
        given = {"task": "text_text", "batch_size": batch_size, "return_tensors": True}
        torch.testing.assert_close(torch.cat(embed(TEXTS, language=LANGUAGES, **given)), expected)
        torch.testing.assert_close(torch.cat(embed(TEXTS, **given)), expected)  # by the tokenizer alone
    with pytest.raises(ModelKindError, match=r"no head for 'triplet'; its tasks are image_text, text_text"):
        embed(TEXTS, language="de", task="triplet")


def test_a_task_of_a_model_with_one_head(embed, tmp_path):
    with pytest.raises(ModelKindError, match="MlaModel has no head for each task"):
        embed("a car", language="en", task="text_text")
    saved_encoder("bert", tmp_path)
    with pytest.raises(ModelKindError, match="BertModel has no head for each task"):
        pipeline("feature-extraction", model=str(tmp_path))("a car", task="text_text")


def test_wrong_calls(embed):
    with pytest.raises(UnknownLanguageError, match="'uk'"):
        embed("a car", language="uk")
    with pytest.raises(LanguageTagError, match="names no registered language"):
        embed("a car", language="jp")
    with pytest.raises(InputError, match="2 texts came with 1 language tags"):
        embed(["a car", "a dog"], language=["en"])
    with pytest.raises(InputError, match="a list of languages needs a list of texts"):
        embed("a car", language=["en"])


def test_a_model_of_words_needs_the_language(make_smalr, tmp_path):
    for part in make_smalr():
        part.save_pretrained(tmp_path)
    image = drawn_images(1)[0]
    with pytest.raises(MissingLanguageError, match="give language='de'"):
        pipeline("feature-extraction", model=str(tmp_path))("a car")
    with pytest.raises(MissingLanguageError, match="give language='de'"):
        pipeline("zero-shot-image-classification", model=str(tmp_path))(image, candidate_labels=["a car"])


def test_a_clip_of_transformers_stays_what_it_is(tmp_path):
    folder = str(saved(tiny_clip(), tmp_path / "clip"))
    embed = pipeline("image-feature-extraction", model=folder)
    assert embed.processor is not None  # of transformers, which reads no language
    with pytest.raises(ModelFolderError, match="needs the tokenizer or the processor"):
        pipeline("feature-extraction", model=embed.model)


def test_transparency_lies_on_white_as_in_training(folder, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "seen_through.png")
    path = str(tmp_path / "seen_through.png")
    found = pipeline("image-feature-extraction", model=folder)([path, path], batch_size=2)
    expected = torch.from_numpy(Embedder.from_pretrained(folder).encode_image([path]))
    torch.testing.assert_close(torch.tensor(found[1]), expected)


def test_images_that_cannot_be_read(folder, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    embed = pipeline("image-feature-extraction", model=folder)
    for path in ("broken.png", "missing.png"):
        with pytest.raises(ImageError, match=path):
            embed(str(tmp_path / path))
    with pytest.raises(ImageError, match=r"http://127\.0\.0\.1:9/x\.png"):
        embed("http://127.0.0.1:9/x.png")
