"""A language may be left out where embeddings do not depend on it, in the embedder, pipelines, commands and server."""

import json
import logging

import numpy as np
import pytest
import torch
from transformers import pipeline
from typer.testing import CliRunner

from babelens import Embedder
from babelens.cli.main import app
from babelens.processing import text_inputs
from babelens.serving.service import ImageService
from babelens.utils.errors import MissingLanguageError
from tests.contracts import drawn_images
from tests.support.served import serving

TEXTS = ["a red car", "ein roter Wagen im Schnee"]
INDEPENDENT = ["mural", "etcl", "liwe"]


@pytest.fixture(scope="module")
def folders(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")

    def folder(name):
        if not (root / name).exists():
            for part in request.getfixturevalue(f"make_{name}")():
                part.save_pretrained(root / name)
        return str(root / name)

    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for index, image in enumerate(drawn_images(3)):
        image.save(folder / f"{index}.png")
    return folder


@pytest.fixture(autouse=True)
def unwarned():
    text_inputs._warn_once.cache_clear()


@pytest.mark.parametrize("name", INDEPENDENT)
def test_where_nothing_depends_on_it(folders, name):
    embedder = Embedder.from_pretrained(folders(name), device="cpu")
    expected = embedder.encode_text(TEXTS, language="de")
    assert np.array_equal(embedder.encode_text(TEXTS), expected)
    embed = pipeline("feature-extraction", model=folders(name))
    torch.testing.assert_close(torch.tensor(embed(TEXTS))[:, 0], torch.from_numpy(expected))
    classify = pipeline("zero-shot-image-classification", model=folders(name))
    labels = {"candidate_labels": ["car", "dog"]}
    assert classify(drawn_images(1)[0], **labels) == classify(drawn_images(1)[0], **labels, language="en")


@pytest.mark.parametrize("name", ["mla", "mla_student"])
def test_a_native_language_is_taken_and_said_once(folders, name, caplog):
    embedder = Embedder.from_pretrained(folders(name), device="cpu")
    embedder.processor.native_texts = "native"  # which a student chooses; MLA always reads them so
    with caplog.at_level(logging.WARNING):
        found = [embedder.encode_text(TEXTS), embedder.encode_text(TEXTS)]
    assert all(np.array_equal(each, embedder.encode_text(TEXTS, language="en")) for each in found)
    assert len([record for record in caplog.records if "native language" in record.message]) == 1


def test_a_model_of_several_languages_needs_it(folders):
    with pytest.raises(MissingLanguageError, match="the model has en, de, fr"):
        Embedder.from_pretrained(folders("smalr"), device="cpu").encode_text(TEXTS)


@pytest.mark.parametrize("text", ["红色的汽车", "빨간 자동차", "سيارة حمراء", "รถสีแดง"])
def test_liwe_needs_it_for_scripts_that_a_language_reads(folders, text):
    with pytest.raises(MissingLanguageError, match="came without its language"):
        Embedder.from_pretrained(folders("liwe"), device="cpu").encode_text(["a car", text])


def test_commands(folders, images, tmp_path):
    def run(*arguments):
        found = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    search = ("search", folders("mural"), TEXTS[0], "--images", images, "--json")
    with_one, without = (json.loads(run(*search, *more)) for more in (["--language", "en"], []))
    assert without["results"] == with_one["results"] and without["language"] is None
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    embed = ("embed", folders("mural"), "--texts", tmp_path / "texts.txt", "--output")
    run(*embed, tmp_path / "with.npy", "--language", "en")
    run(*embed, tmp_path / "without.npy")
    assert np.array_equal(np.load(tmp_path / "with.npy"), np.load(tmp_path / "without.npy"))
    run(*embed, tmp_path / "shards")
    run("index", "build", "--images", images, "--model", folders("mural"), "--output", tmp_path / "found.index")
    index = ("index", "search", tmp_path / "found.index", TEXTS[0], "--model", folders("mural"), "--json")
    assert json.loads(run(*index))["results"] == json.loads(run(*index, "--language", "en"))["results"]


@pytest.mark.parametrize(("name", "needed"), [("mural", False), ("liwe", False), ("mla", True), ("smalr", True)])
def test_the_server(folders, images, name, needed):
    embedder = Embedder.from_pretrained(folders(name), device="cpu")
    with serving(ImageService.of_folder(embedder, images, model=folders(name))) as server:
        assert server.ask("/api/info").json["needs_language"] is needed
        found = server.ask("/api/search?q=a%20red%20car")
        if name == "smalr":
            assert found.status == 400 and "language" in found.json["error"]
        else:
            expected = server.ask("/api/search?q=a%20red%20car&language=en").json
            assert found.json == expected | {"language": "en" if needed else None}
