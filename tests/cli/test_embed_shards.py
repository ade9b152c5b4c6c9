"""`babelens embed` into a folder of shards."""

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
from babelens.trainers.precision import ChosenPrecision
from babelens.utils.errors import ChangedRunError, InputError
from tests.support.image_sources import contents, write_tars


def test_tars_to_shards_and_again(run, model, tmp_path):
    tars = write_tars(tmp_path / "tars", 3, 4, broken=(5,))
    output = tmp_path / "out"
    options = ("--images", tars, "--output", output, "--columns", "url,width:int,license", "--batch-size", 4)
    for workers in (0, 2):  # the second finds everything done
        told = run("embed", model, *options, "--workers", workers).stderr
        assert f"11 of 12 images embedded; left out: 1 with unreadable image: {output}" in told
        assert "11 of them have no license" in told
    table = pq.read_table(output / "shard-000002.parquet")
    assert table.column_names == ["id", "embedding", "url", "width", "license"]
    assert table["id"].to_pylist() == ["0008", "0009", "0010", "0011"] and table["width"].to_pylist() == [8, 9, 10, 11]
    before = contents(output)
    changed = run("embed", model, "--images", tars, "--output", output, code=1).exception
    assert isinstance(changed, ChangedRunError)
    (output / "shard-000001.parquet").unlink()
    run("embed", model, *options)
    assert contents(output) == before


def test_a_folder_of_images_and_texts(run, model, images, tmp_path):
    told = run("embed", model, "--images", images, "--output", tmp_path / "out", "--dtype", "float32").stderr
    assert "3 of 3 images embedded" in told
    table = pq.read_table(tmp_path / "out" / "shard-000000.parquet")
    vectors = Embedder.from_pretrained(model).encode_image([images / name for name in table["id"].to_pylist()])
    np.testing.assert_allclose(np.stack(table["embedding"].to_numpy()), vectors, atol=1e-6)
    (tmp_path / "texts.txt").write_text("ein auto\nein haus\n")
    options = ("--texts", tmp_path / "texts.txt", "--output", tmp_path / "texts", "--shard-size", 1)
    run("embed", model, *options, "--language", "DE")
    table = pq.read_table(tmp_path / "texts" / "shard-000001.parquet")
    assert (table["text"].to_pylist(), table["language"].to_pylist()) == (["ein haus"], ["de"])
    assert read_info(tmp_path / "texts").settings["language"] == "de"
    assert json.loads((tmp_path / "texts" / "counts.json").read_text())["shards"] == 2


def test_precision(run, model, images, tmp_path, monkeypatch):
    """`auto` is what the hardware multiplies, also of one file."""
    chosen = ChosenPrecision("bfloat16", "because this is a test")
    monkeypatch.setattr("babelens.trainers.precision.fastest_precision", lambda device: chosen)
    vectors = {}
    for precision in ("float32", "bfloat16", "auto"):
        run("embed", model, "--images", images, "--output", tmp_path / "out.npy", "--precision", precision)
        vectors[precision] = np.load(tmp_path / "out.npy")
    assert (vectors["bfloat16"] != vectors["float32"]).any()
    np.testing.assert_array_equal(vectors["auto"], vectors["bfloat16"])
    run("embed", model, "--images", images, "--output", tmp_path / "shards", "--precision", "auto")
    assert read_info(tmp_path / "shards").settings["precision"] == "bfloat16"
    (tmp_path / "texts.txt").write_text("ein auto\n")
    options = ("--texts", tmp_path / "texts.txt", "--language", "de", "--output")
    run("embed", model, *options, tmp_path / "exact.npy")
    run("embed", model, *options, tmp_path / "rounded.npy", "--precision", "bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        rounded = Embedder.from_pretrained(model).encode_text("ein auto", language="de")
    np.testing.assert_array_equal(np.load(tmp_path / "rounded.npy"), rounded)
    assert (np.load(tmp_path / "exact.npy") != rounded).any()


def test_large_jpegs_are_decoded_as_drafts(run, model, tmp_path, monkeypatch):
    """In a file, in shards, in an index, in a search and by the server."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    served = []
    monkeypatch.setattr("babelens.serving.app.create_app", lambda service, **_: served.append(service))
    monkeypatch.setattr("babelens.serving.app.make_server", lambda app: SimpleNamespace(run=lambda **_: None))
    (tmp_path / "photos").mkdir()
    photo = tmp_path / "photos" / "a.jpg"
    Image.effect_noise((800, 600), 90).convert("RGB").save(photo)
    embedder, other = (Embedder.from_pretrained(model, draft_jpegs=drafts) for drafts in (True, False))
    expected = embedder.encode_image(photo)
    assert (expected.astype(np.float16) != other.encode_image(photo).astype(np.float16)).any()
    run("embed", model, "--images", tmp_path / "photos", "--output", tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    run("embed", model, "--images", tmp_path / "photos", "--output", tmp_path / "out", "--dtype", "float32")
    table = pq.read_table(tmp_path / "out" / "shard-000000.parquet")
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected)
    command = ["index", "build", "--images", tmp_path / "photos", "--model", model]
    run(*command, "--output", tmp_path / "index")
    indexed = open_index(tmp_path / "index").table.to_arrow()["embedding"].to_pylist()
    np.testing.assert_array_equal(indexed, expected.astype(np.float16))
    search = ["search", model, "ein auto", "--language", "de", "--images", tmp_path / "photos", "--json"]
    found = json.loads(run(*search).stdout)["results"]
    [text] = embedder.encode_text("ein auto", language="de")
    assert found[0]["score"] == pytest.approx(float(expected[0] @ text), abs=1e-6)
    run("serve", model, "--images", tmp_path / "photos", "--port", 0)
    np.testing.assert_array_equal(served[0].index.embeddings, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "v.npy", "--columns", "url"], "for folders of shards"),
        (["--output", "v.parquet", "--engine", "ray"], "for folders of shards"),
        (["--output", "out", "--address", "auto"], "with --engine ray alone"),
        (["--output", "out", "--language", "de"], "images have no language"),
        (["--output", "out", "--engine", "ray", "--precision", "auto"], "its machines may differ"),
    ],
)
def test_options_that_do_not_fit(run, model, images, tmp_path, options, message):
    options = [tmp_path / each if each in ("v.npy", "v.parquet", "out") else each for each in options]
    assert message in run("embed", model, "--images", images, *options, code=2).output


def test_wrong_columns_and_sources(run, model, images, tmp_path):
    options = ("--output", tmp_path / "out")
    refused = run("embed", model, "--images", images, *options, "--columns", "width:number", code=1).exception
    assert isinstance(refused, InputError) and "there are text, int, float, bool" in str(refused)
    missing = run("embed", model, "--images", tmp_path / "no.tar", *options, code=1).exception
    assert "no.tar" in str(missing) and "No such file" in str(missing)
    file = run("embed", model, "--images", tmp_path / "no", "--output", tmp_path / "v.npy", code=2)
    assert "there is no folder" in file.output
