import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from babelens.inference import ImageIndex
from babelens.inference.embedder import Embedder
from babelens.utils.errors import ModelKindError
from babelens.utils.identity import model_identity
from tests.contracts import drawn_images
from tests.support.tiny_embedders import tiny_embedder
from tests.support.tiny_text_encoders import TEXTS, saved_encoder

LONG = [*TEXTS, "a red square " * 20]


def saved(name, folder, pooling, *layers, **options):
    saved_encoder(name, folder / "encoder")
    torch.manual_seed(1)
    transformer = Transformer(str(folder / "encoder"), max_seq_length=12)
    model = SentenceTransformer(
        modules=[transformer, Pooling(16, pooling_mode=pooling), *layers], device="cpu", **options
    )
    model.save(str(folder / "whole"))
    return folder / "whole", SentenceTransformer(str(folder / "whole"), device="cpu")


@pytest.mark.parametrize(("name", "pooling"), [("bert", "cls"), ("mpnet", "mean")])
def test_embeddings_are_those_of_sentence_transformers(name, pooling, tmp_path):
    folder, reference = saved(name, tmp_path, pooling, Normalize())
    embedder = Embedder.from_pretrained(folder, batch_size=3)
    expected = reference.encode(LONG, normalize_embeddings=True)
    np.testing.assert_allclose(embedder.encode_text(LONG, language="en"), expected, atol=1e-6)


def test_prompts_are_those_of_the_folder_or_given(tmp_path):
    prompts = {"query": "query: ", "passage": "passage: "}
    folder, reference = saved("bert", tmp_path, "mean", prompts=prompts, default_prompt_name="query")
    embedder = Embedder.from_pretrained(folder)
    expected = reference.encode(TEXTS[:3], normalize_embeddings=True)
    np.testing.assert_allclose(embedder.encode_text(TEXTS[:3], language="en"), expected, atol=1e-6)
    given = Embedder.from_pretrained(folder, text_prompt="passage: ")
    expected = reference.encode(TEXTS[:3], prompt_name="passage", normalize_embeddings=True)
    np.testing.assert_allclose(given.encode_text(TEXTS[:3], language="en"), expected, atol=1e-6)


def test_images_and_heads_are_refused(tmp_path):
    saved_encoder("bert", tmp_path / "bert", "mean_tokens")
    embedder = Embedder.from_pretrained(tmp_path / "bert")
    assert not embedder.takes_images
    with pytest.raises(ModelKindError, match="a 'bert' text encoder sees no images"):
        embedder.encode_image(["a.png"])
    with pytest.raises(ModelKindError, match="sees no images"):
        ImageIndex.of_folder(embedder, tmp_path)
    with pytest.raises(ModelKindError, match="has no head for each task"):
        embedder.encode_text(["a"], language="en", task="text_text")


def test_a_folder_that_states_no_pooling_is_refused(tmp_path):
    saved_encoder("bert", tmp_path / "bert")
    with pytest.raises(ModelKindError, match="sentence-transformers"):
        Embedder.from_pretrained(tmp_path / "bert")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_embedder(tmp_path_factory.mktemp("llava"))


def test_it_embeds_as_sentence_transformers_does(folder):
    own, embedder = SentenceTransformer(str(folder), device="cpu"), Embedder.from_pretrained(folder)
    texts, images = ["a red dot", "zwei", "a blue square in the rain"], drawn_images(3)
    wanted = own.encode_query(texts, normalize_embeddings=True), own.encode_document(images, normalize_embeddings=True)
    found = embedder.encode_text(texts), embedder.encode_image(images)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        assert np.abs(ours[0] - ours[1]).max() > 1e-3
    plain = Embedder.from_pretrained(folder, text_prompt="")
    np.testing.assert_allclose(plain.encode_text(texts), own.encode(texts, normalize_embeddings=True), atol=1e-5)
    assert model_identity(plain.model, plain.processor) != model_identity(embedder.model, embedder.processor)
    prepared = embedder.encode_prepared(embedder.processor(images=images, return_tensors="pt"), ["a", "b", "c"])
    np.testing.assert_allclose(prepared, found[1], atol=1e-5)
