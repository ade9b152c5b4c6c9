import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelens.inference.embed import read_info
from babelens.inference.embedder import Embedder
from babelens.utils.errors import CorpusError, InputError, LanguageTagError
from tests.support.image_sources import write_tars


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, color in enumerate(("red", "green", "blue", "white")):
        Image.new("RGB", (20, 20), color).save(folder / f"{number}.png")
    return folder


def test_texts(run, model, tmp_path):
    texts = ["ein\u2028rotes auto", "ein\x0chaus"]  # lines end at line feeds alone
    (tmp_path / "texts.txt").write_bytes(("\ufeff" + "\r\n".join(texts)).encode())
    options = ("--texts", tmp_path / "texts.txt", "--language", "DE", "--output")
    run("embed", model, *options, tmp_path / "texts")
    table = pq.read_table(tmp_path / "texts" / "shard-000000.parquet")
    assert (table["text"].to_pylist(), table["language"].to_pylist()) == (texts, ["de", "de"])
    assert read_info(tmp_path / "texts").settings["language"] == "de"
    vectors = Embedder.from_pretrained(model).encode_text(texts, language="de").astype(np.float16)
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), vectors)
    run("embed", model, *options, tmp_path / "rounded", "--precision", "bfloat16")
    rounded = pq.read_table(tmp_path / "rounded" / "shard-000000.parquet")
    assert (np.stack(rounded["embedding"].to_numpy()) != vectors).any()


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
    changed = run("embed", model, "--images", tars, "--output", output, code=1).exception
    assert isinstance(changed, InputError)


def test_large_jpegs_are_decoded_as_drafts(run, model, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("babelens.serving.app.create_app", lambda service, **_: served.append(service))
    monkeypatch.setattr("babelens.serving.app.make_server", lambda *_: SimpleNamespace(run=lambda **_: None))
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.effect_noise((800, 600), 90).convert("RGB").save(photos / "a.jpg")
    embedder, other = (Embedder.from_pretrained(model, draft_jpegs=drafts) for drafts in (True, False))
    expected = embedder.encode_image(photos / "a.jpg")
    assert (expected.astype(np.float16) != other.encode_image(photos / "a.jpg").astype(np.float16)).any()
    run("embed", model, "--images", photos, "--output", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "shard-000000.parquet")
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected.astype(np.float16))
    found = json.loads(run("search", model, "ein auto", "--images", photos, "--json").stdout)["results"]
    [text] = embedder.encode_text("ein auto")
    assert found[0]["score"] == pytest.approx(float(expected[0] @ text), abs=1e-6)
    run("serve", model, "--images", photos, "--port", 0)
    np.testing.assert_array_equal(served[0].index.embeddings, expected)


def test_search(run, model, images, cache):
    embedder = Embedder.from_pretrained(model)
    scores = embedder.encode_image(sorted(images.iterdir())) @ embedder.encode_text("ein rotes auto", language="de")[0]
    best = np.argsort(-scores)[:3]
    arguments = ("search", model, "ein rotes auto", "--images", images, "--language", "de", "--top", 3)
    found = json.loads(run(*arguments, "--json").stdout)["results"]
    assert [each["file"] for each in found] == [str(images / f"{number}.png") for number in best]
    np.testing.assert_allclose([each["score"] for each in found], scores[best], atol=1e-6)
    assert list((cache / "image_index").iterdir())
    for name in ("x.png", "y.png"):
        shutil.copy(found[0]["file"], images / name)
    first, second, _ = json.loads(run(*arguments, "--json").stdout)["results"]
    assert {first["file"], *first["copies"]} == {found[0]["file"], str(images / "x.png"), str(images / "y.png")}
    assert (second["file"], second["copies"]) == (found[1]["file"], [])
    table = run(*arguments).stdout
    assert "(3 files)" in table and table.index("(3 files)") < table.index(Path(found[1]["file"]).name)


def test_images_and_languages_that_cannot_be_read(run, model, images, tmp_path, caplog):
    arguments = ("search", model, "auto", "--images", images, "--language")
    assert isinstance(run(*arguments, "klingonish", code=1).exception, LanguageTagError)
    (images / "broken.png").write_bytes(b"\x89PNG")
    run(*arguments, "de")
    assert "broken.png" in caplog.text
    for path in images.glob("[0-9].png"):
        path.unlink()
    output = tmp_path / "out"
    for words in (("embed", model, "--output", output), ("search", model, "auto", "--language", "de")):
        failed = run(*words, "--images", images, code=1).exception
        assert isinstance(failed, CorpusError) and "broken.png" in str(failed)


def found(run, model, *arguments):
    return json.loads(run("search", model, *arguments, "--json").stdout)["results"]


def test_an_index_of_images(run, model, images, tmp_path):
    index = tmp_path / "index"
    run("embed", model, "--images", images, "--output", tmp_path / "embedded")
    assert "4 vectors" in run("index", tmp_path / "embedded", "--output", index).stdout
    some = sorted(images.rglob("*.png"))[1]
    searched = found(run, model, "--index", index, "--image", some, "--top", 2)
    assert len(searched) == 2 and searched[0]["id"] == some.relative_to(images).as_posix()
    assert searched[0]["metadata"] == {}
    assert searched[0]["score"] == pytest.approx(1, abs=1e-3)
    text = ("a dog", "--language", "en", "--index", index)
    assert found(run, model, *text, "--where", "id = 'none'") == []
    both = found(run, model, *text, "--image", some)
    assert len(both) == 4 and both[0]["id"] == searched[0]["id"]
    shown = run("search", model, *text).output
    assert "3.png" in shown and "a dog [en]" in shown and "4 images" in shown
    assert found(run, model, "--images", images, "--image", some)[0]["file"] == str(some)


@pytest.mark.slow
def test_a_folder_of_graphs_is_written_and_described(run, model, tmp_path):
    shown = run("export", model, "--output", tmp_path / "small", "--precision", "int8").stdout
    size = (tmp_path / "small/onnx/text_model_quantized.onnx").stat().st_size
    assert str(tmp_path / "small") in shown and "text_model.onnx" not in shown and f"{size / 1e6:.1f}" in shown
    folder = {path.name for path in (tmp_path / "small").iterdir()}
    assert folder >= {"config.json", "tokenizer.json", "processor_config.json", "preprocessor_config.json", "onnx"}
    assert "exists" in str(run("export", model, "--output", tmp_path / "small", code=1).exception)
