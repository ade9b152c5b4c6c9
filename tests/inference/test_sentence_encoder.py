import json

import numpy as np
import pytest
from typer.testing import CliRunner

from babelens import Embedder
from babelens.cli.main import app
from babelens.inference.image_index import ImageIndex
from babelens.serving.service import ImageService
from babelens.utils.identity import model_identity
from tests.contracts import drawn_images
from tests.support.served import serving
from tests.support.tiny_embedders import tiny_embedder
from tests.support.tiny_training import write_shapes

sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_embedder(tmp_path_factory.mktemp("llava"))


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


def test_an_index_and_a_server_take_it(folder, tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    monkeypatch.setattr("babelens.inference.image_index.IMAGE_CACHE", tmp_path / "cache")
    shapes, index = tmp_path / "shapes", str(tmp_path / "index")
    shapes.mkdir()
    write_shapes(shapes)
    runner, embedded = CliRunner(), str(tmp_path / "embedded")
    for command in (
        ["embed", str(folder), "--images", str(shapes), "--output", embedded],
        ["index", embedded, "--output", index],
    ):
        done = runner.invoke(app, command)
        assert done.exit_code == 0, done.output
    asked = runner.invoke(app, ["search", str(folder), "a red dot", "--index", index, "--top", "3", "--json"])
    assert asked.exit_code == 0, asked.output
    embedder = Embedder.from_pretrained(folder)
    expected = [
        each.path.name
        for each in ImageIndex.of_folder(embedder, shapes).search(embedder.encode_text("a red dot")[0], 3)
    ]
    assert [each["id"] for each in json.loads(asked.stdout)["results"]] == expected
    with serving(ImageService(embedder, shapes, model=str(folder))) as server:
        answer = server.ask("/api/search?q=a%20red%20dot&top=3")
        assert answer.status == 200 and [each["file"] for each in answer.json["results"]] == expected
        assert server.ask("/api/info").json["needs_language"] is False
