"""`babelens embed` into a file and into a folder of shards."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from babelens.inference.embedder import Embedder
from babelens.inference.embedding_shards import read_info
from babelens.search import open_index
from babelens.utils.errors import InputError
from tests.support.image_sources import contents, write_tars


def test_tars_to_shards_and_again(run, model, tmp_path):
    tars = write_tars(tmp_path / "tars", 3, 4, broken=(5,))
    output = tmp_path / "out"
    options = ("--images", tars, "--output", output, "--columns", "url,width:int,license", "--batch-size", 4)
    for _ in range(2):  # the second finds everything done
        told = run("embed", model, *options).stderr
        assert f"11 of 12 images embedded; left out: 1 with unreadable image: {output}" in told
        assert "11 of them have no license" in told
    table = pq.read_table(output / "shard-000002.parquet")
    assert table.column_names == ["id", "embedding", "url", "width", "license"]
    assert table["id"].to_pylist() == ["0008", "0009", "0010", "0011"] and table["width"].to_pylist() == [8, 9, 10, 11]
    before = contents(output)
    changed = run("embed", model, "--images", tars, "--output", output, code=1).exception
    assert isinstance(changed, InputError)
    (output / "shard-000001.parquet").unlink()
    run("embed", model, *options)
    assert contents(output) == before


def test_texts(run, model, tmp_path):
    (tmp_path / "texts.txt").write_text("ein auto\nein haus\n")
    options = ("--texts", tmp_path / "texts.txt", "--language", "DE", "--output")
    run("embed", model, *options, tmp_path / "texts", "--shard-size", 1)
    table = pq.read_table(tmp_path / "texts" / "shard-000001.parquet")
    assert (table["text"].to_pylist(), table["language"].to_pylist()) == (["ein haus"], ["de"])
    assert read_info(tmp_path / "texts").settings["language"] == "de"
    run("embed", model, *options, tmp_path / "texts.parquet")
    run("embed", model, *options, tmp_path / "rounded.npy", "--precision", "bfloat16")
    table = pq.read_table(tmp_path / "texts.parquet")
    assert table.column_names == ["text", "language", "embedding"] and table["language"].to_pylist() == ["de"] * 2
    embedder, texts = Embedder.from_pretrained(model), ["ein auto", "ein haus"]
    vectors = embedder.encode_text(texts, language="de")
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), vectors)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = embedder.encode_text(texts, language="de")
    np.testing.assert_array_equal(np.load(tmp_path / "rounded.npy"), rounded)
    assert (rounded != vectors).any()


def test_large_jpegs_are_decoded_as_drafts(run, model, tmp_path, monkeypatch):
    """In a file, in shards, in an index, in a search and by the server."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    served = []
    monkeypatch.setattr("babelens.serving.app.create_app", lambda service, **_: served.append(service))
    monkeypatch.setattr("babelens.serving.app.make_server", lambda _, ready: SimpleNamespace(run=lambda **_: ready()))
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.effect_noise((800, 600), 90).convert("RGB").save(photos / "a.jpg")
    embedder, other = (Embedder.from_pretrained(model, draft_jpegs=drafts) for drafts in (True, False))
    expected = embedder.encode_image(photos / "a.jpg")
    assert (expected.astype(np.float16) != other.encode_image(photos / "a.jpg").astype(np.float16)).any()
    run("embed", model, "--images", photos, "--output", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["file"].to_pylist() == ["a.jpg"]
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected)
    run("embed", model, "--images", photos, "--output", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "shard-000000.parquet")
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected.astype(np.float16))
    run("index", "--images", photos, "--model", model, "--output", tmp_path / "index")
    indexed = open_index(tmp_path / "index").table.to_arrow()["embedding"].to_pylist()
    np.testing.assert_array_equal(indexed, expected.astype(np.float16))
    found = json.loads(run("search", model, "ein auto", "--images", photos, "--json").stdout)["results"]
    [text] = embedder.encode_text("ein auto")
    assert found[0]["score"] == pytest.approx(float(expected[0] @ text), abs=1e-6)
    run("serve", model, "--images", photos, "--port", 0)
    np.testing.assert_array_equal(served[0].index.embeddings, expected)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--output", "v.npy", "--columns", "url"], "--columns"),
        (["--output", "v.txt"], ".npy"),
        (["--output", "out", "--language", "de"], "no language"),
        (["--output", "out", "--texts", "t.txt"], "either"),
    ],
)
def test_options_that_do_not_fit(run, model, images, options, word):
    assert word in run("embed", model, "--images", images, *options, code=2).output


def test_wrong_columns_and_sources(run, model, images, tmp_path):
    options = ("--output", tmp_path / "out")
    assert "int" in run("embed", model, "--images", images, *options, "--columns", "width:number", code=2).output
    assert "no.tar" in run("embed", model, "--images", tmp_path / "no.tar", *options, code=2).output
