"""`babelens index` and `babelens search --index`: from images and from files of embeddings to results."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelens.inference.embedding_shards import EmbeddingsInfo, shard_file, shard_table, write_info
from babelens.utils.errors import CorpusError, InputError
from tests.support.index_vectors import unit


@pytest.fixture
def index(run, model, images, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    run("index", "--images", images, "--model", model, "--output", tmp_path / "index")
    return tmp_path / "index"


def found(run, model, *arguments):
    return json.loads(run("search", model, *arguments, "--json").stdout)["results"]


def test_an_index_of_images(run, index, model, images):
    some = sorted(images.rglob("*.png"))[1]
    searched = found(run, model, "--index", index, "--image", some, "--top", 2)
    assert len(searched) == 2 and searched[0]["id"] == some.relative_to(images).as_posix()
    assert searched[0]["score"] == pytest.approx(1, abs=1e-3)
    assert searched[0]["metadata"] == {"width": 8, "height": 8}
    text = ("a dog", "--language", "en", "--index", index)
    assert found(run, model, *text, "--where", "width > 8") == []
    both = found(run, model, *text, "--image", some)
    assert len(both) == 3 and both[0]["id"] == searched[0]["id"]
    shown = run("search", model, *text).output
    assert "plain.png" in shown and "a dog [en]" in shown and "3 images" in shown
    similar = found(run, model, "--images", images, "--image", some)
    assert similar[0]["file"] == str(some)


def test_images_that_are_left_out_turned_or_oddly_named(run, model, images, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    build = ("index", "--images", images, "--model", model, "--output")
    (images / "broken.png").write_bytes(b"none")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (20, 10), "red").save(images / "turned.jpg", exif=turned)
    run(*build, tmp_path / "index")
    assert "broken.png" in caplog.text
    options = ("--index", tmp_path / "index", "--image", images / "plain.png", "--where", "height == 20")
    (hit,) = found(run, model, *options)
    assert hit["id"] == "turned.jpg" and hit["metadata"] == {"width": 10, "height": 20}
    os.rename(images / "plain.png", os.fsencode(images) + b"/b\xff.png")
    run(*build, tmp_path / "odd")
    assert "not UTF-8" in caplog.text
    for path in filter(os.path.isfile, images.rglob("*.*")):
        path.write_bytes(b"none")
    assert isinstance(run(*build, tmp_path / "none", code=1).exception, CorpusError)


def test_another_model_is_refused(run, index, tmp_path, make_mural):
    for part in make_mural():
        part.save_pretrained(tmp_path / "other")
    refused = run("search", tmp_path / "other", "a", "--language", "en", "--index", index, code=1)
    assert isinstance(refused.exception, InputError)


def test_shards_become_an_index(run, tmp_path):
    random, folder = np.random.default_rng(0), tmp_path / "embedded"
    folder.mkdir()
    write_info(folder, EmbeddingsInfo("runs/mural", "a" * 24, 16))
    for number in range(2):
        ids = [f"{number}-{row}.jpg" for row in range(50)]
        rows = shard_table(ids, unit(random, 50), pa.table({"width": list(range(50))}))
        pq.write_table(rows, shard_file(folder, number))
    assert "100 vectors of runs/mural" in run("index", folder, "--output", tmp_path / "index").stdout


def test_a_parquet_file_of_embed(run, model, images, tmp_path):
    run("embed", model, "--images", images, "--output", tmp_path / "images.parquet")
    run("index", tmp_path / "images.parquet", "--model", model, "--output", tmp_path / "index")
    options = ("--index", tmp_path / "index", "--image", images / "a[" / "b].png")
    assert found(run, model, *options)[0]["id"] == "a[/b].png"
    (tmp_path / "texts.txt").write_text("a dog\n")
    run("embed", model, "--texts", tmp_path / "texts.txt", "--output", tmp_path / "t.parquet")
    refused = run("index", tmp_path / "t.parquet", "--model", model, "--output", tmp_path / "i", code=1)
    assert isinstance(refused.exception, CorpusError) and "`file`" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["index", "--output", "i"], "either"),
        (["index", "--images", ".", "--output", "i"], "model"),
        (["index", ".", "--model", "m", "--output", "i"], "states its model"),
        (["search", "m/n", "--index", "i"], "--image"),
        (["search", "m/n", " ", "--index", "i"], "description"),
        (["search", "m/n", "a"], "--index"),
        (["search", "m/n", "a", "--images", ".", "--where", "width > 8"], "metadata"),
    ],
)
def test_wrong_options_are_refused(run, arguments, word):
    assert word in run(*arguments, code=2).output
