"""`babelens index`: from images and from files of embeddings to results."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelens.inference.embedding_shards import EmbeddingsInfo, shard_file, shard_table, write_info
from babelens.utils.errors import (
    BadImageError,
    CorpusError,
    ModelMismatchError,
    SaveError,
)
from tests.support.index_vectors import unit


@pytest.fixture
def index(run, model, images, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    run("index", "build", "--images", images, "--model", model, "--output", tmp_path / "index")
    return tmp_path / "index"


def found(run, *arguments):
    return json.loads(run("index", "search", *arguments, "--json").stdout)["results"]


def test_an_index_of_images(run, index, model, images):
    some = sorted(images.rglob("*.png"))[1]
    searched = found(run, index, "--model", model, "--image", some, "--top", 2)
    assert len(searched) == 2 and searched[0]["id"] == some.relative_to(images).as_posix()
    assert searched[0]["score"] == pytest.approx(1, abs=1e-3)
    assert searched[0]["metadata"] == {"width": 8, "height": 8}
    both = found(run, index, "ein Hund", "--query", "a dog", "--language", "de", "--language", "en", "--model", model)
    assert len(both) == 3
    highest = found(run, index, "a dog", "--language", "en", "--image", some, "--merge", "max", "--model", model)
    assert highest[0]["id"] == searched[0]["id"]
    assert found(run, index, "a dog", "--language", "en", "--model", model, "--where", "width > 8") == []
    shown = run("index", "search", index, "a dog", "--language", "en", "--model", model).output
    assert "plain.png" in shown and "a dog [en]" in shown and "3 vectors" in shown


def test_no_image_is_encoded_for_an_index_that_cannot_be_written(run, index, model, images, monkeypatch):
    monkeypatch.setattr("babelens.inference.image_index.ImageIndex.of_folder", None)
    given = ["--images", images, "--model", model]
    assert isinstance(run("index", "build", *given, "--output", index, code=1).exception, SaveError)


def test_images_that_are_left_out_turned_or_oddly_named(run, model, images, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    build = ("index", "build", "--images", images, "--model", model, "--output")
    (images / "broken.png").write_bytes(b"none")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (20, 10), "red").save(images / "turned.jpg", exif=turned)
    run(*build, tmp_path / "index")
    assert "skipped" in caplog.text and "broken.png" in caplog.text
    (hit,) = found(
        run, tmp_path / "index", "--model", model, "--image", images / "plain.png", "--where", "height == 20"
    )
    assert hit["id"] == "turned.jpg" and hit["metadata"] == {"width": 10, "height": 20}
    os.rename(images / "plain.png", os.fsencode(images) + b"/b\xff.png")
    run(*build, tmp_path / "odd")
    assert "not UTF-8" in caplog.text
    for path in filter(os.path.isfile, images.rglob("*.*")):
        path.write_bytes(b"none")
    assert isinstance(run(*build, tmp_path / "none", code=1).exception, BadImageError)


def test_another_model_is_refused(run, index, tmp_path, make_mural):
    for part in make_mural():
        part.save_pretrained(tmp_path / "other")
    error = run("index", "search", index, "a", "--language", "en", "--model", tmp_path / "other", code=1).exception
    assert isinstance(error, ModelMismatchError) and "not comparable" in str(error)


def test_shards_become_an_index(run, tmp_path):
    random, folder = np.random.default_rng(0), tmp_path / "embedded"
    folder.mkdir()
    write_info(folder, EmbeddingsInfo("runs/mural", "a" * 24, 16))
    for number in range(2):
        ids = [f"{number}-{row}.jpg" for row in range(50)]
        rows = shard_table(ids, unit(random, 50), pa.table({"width": list(range(50))}))
        pq.write_table(rows, shard_file(folder, number))
    built = run("index", "build", folder, "--output", tmp_path / "index", "--json").stdout
    stat = json.loads(built)
    assert stat["vectors"] == 100 and stat["model"] == "runs/mural"


def test_a_parquet_file_of_embed(run, model, images, tmp_path):
    run("embed", model, "--images", images, "--output", tmp_path / "images.parquet")
    run("index", "build", tmp_path / "images.parquet", "--model", model, "--output", tmp_path / "index")
    some = images / "a[" / "b].png"
    assert found(run, tmp_path / "index", "--model", model, "--image", some)[0]["id"] == "a[/b].png"
    (tmp_path / "texts.txt").write_text("a dog\n")
    run("embed", model, "--texts", tmp_path / "texts.txt", "--language", "en", "--output", tmp_path / "t.parquet")
    refused = run("index", "build", tmp_path / "t.parquet", "--model", model, "--output", tmp_path / "i", code=1)
    assert isinstance(refused.exception, CorpusError) and "embeddings of images have `file`" in str(refused.exception)
    (tmp_path / "empty").mkdir()
    refused = run("index", "build", tmp_path / "empty", "--output", tmp_path / "i", code=1)
    assert isinstance(refused.exception, CorpusError)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["build", "--output", "i"], "give either EMBEDDINGS or --images"),
        (["build", "--images", ".", "--output", "i"], "encoded by a model"),
        (["build", ".", "--model", "m", "--output", "i"], "states its model itself"),
        (["build", __file__, "--output", "i"], "does not state its model"),
        (["search", "i", "--model", "m"], "give a description or --image"),
        (["search", "i", " ", "--language", "de", "--model", "m"], "is empty"),
        (
            [
                "search",
                "i",
                "a",
                "--query",
                "b",
                "--query",
                "c",
                "--language",
                "de",
                "--language",
                "fr",
                "--model",
                "m",
            ],
            "2 languages for 3 descriptions",
        ),
        (["search", "i", "--image", __file__, "--language", "de", "--model", "m"], "no description whose language"),
    ],
)
def test_wrong_options_are_refused(run, arguments, why):
    assert why in " ".join(run("index", *arguments, code=2).output.split())
