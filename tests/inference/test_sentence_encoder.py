"""Embedders of vision-language models, loaded by sentence-transformers, behind the interface of an `Embedder`."""

import numpy as np
import pytest
from contracts import drawn_images
from tiny_embedders import EMBEDDERS, tiny_embedder
from tiny_training import write_shapes
from typer.testing import CliRunner

from babelens import Embedder
from babelens.cli.main import app
from babelens.configuration.identity import model_identity
from babelens.workflows.teachers import SentenceTransformerTeacher, teacher_of

sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module", params=EMBEDDERS)
def folder(request, tmp_path_factory):
    return tiny_embedder(request.param, tmp_path_factory.mktemp(request.param))


def test_it_embeds_as_sentence_transformers_does(folder):
    own, embedder = (
        sentence_transformers.SentenceTransformer(str(folder), device="cpu"),
        Embedder.from_pretrained(folder),
    )
    texts, images = ["a red dot", "zwei", "a blue square in the rain"], drawn_images(3)
    wanted = own.encode_query(texts, normalize_embeddings=True), own.encode_document(images, normalize_embeddings=True)
    found = embedder.encode_text(texts), embedder.encode_image(images)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        assert np.abs(ours[0] - ours[1]).max() > 1e-3
    plain = Embedder.from_pretrained(folder, text_prompt="")
    np.testing.assert_allclose(plain.encode_text(texts), own.encode(texts, normalize_embeddings=True), atol=1e-5)
    assert model_identity(plain.model, plain.processor) != model_identity(embedder.model, embedder.processor)
    prepared = embedder.encode_prepared(embedder.prepared_images(images), ["a", "b", "c"])
    np.testing.assert_allclose(prepared, found[1], atol=1e-5)


def test_commands_take_it(folder, tmp_path):
    (tmp_path / "shapes").mkdir()
    write_shapes(tmp_path / "shapes")

    def run(*words):
        done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    data = ("--data", tmp_path / "shapes")
    assert "t2i_r10" in run("evaluate", folder, *data, "--languages", "en,de", "--json")
    assert ".png" in run("search", folder, "a red dot", "--images", tmp_path / "shapes")


def test_it_is_the_teacher_that_it_was(folder):
    teacher, embedder = teacher_of(str(folder)), Embedder.from_pretrained(folder, text_prompt="")
    assert isinstance(teacher, SentenceTransformerTeacher)
    np.testing.assert_allclose(teacher.encode(["a dot"]), embedder.encode_text("a dot"), atol=1e-5)
