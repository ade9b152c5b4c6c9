import json

import pytest

from tests.support.image_sources import write_parquet


@pytest.fixture
def index(run, model, images, tmp_path):
    run("embed", model, "--images", images, "--output", tmp_path / "embedded")
    run("index", tmp_path / "embedded", "--output", tmp_path / "index")
    return tmp_path / "index"


def found(run, model, *arguments):
    return json.loads(run("search", model, *arguments, "--json").stdout)["results"]


def test_an_index_of_images(run, index, model, images):
    some = sorted(images.rglob("*.png"))[1]
    searched = found(run, model, "--index", index, "--image", some, "--top", 2)
    assert len(searched) == 2 and searched[0]["id"] == some.relative_to(images).as_posix()
    assert searched[0]["score"] == pytest.approx(1, abs=1e-3)
    text = ("a dog", "--language", "en", "--index", index)
    assert found(run, model, *text, "--where", "id = 'none'") == []
    both = found(run, model, *text, "--image", some)
    assert len(both) == 3 and both[0]["id"] == searched[0]["id"]
    shown = run("search", model, *text).output
    assert "plain.png" in shown and "a dog [en]" in shown and "3 images" in shown
    similar = found(run, model, "--images", images, "--image", some)
    assert similar[0]["file"] == str(some)


def test_metadata_of_shards_are_searched(run, model, tmp_path):
    write_parquet(tmp_path / "images.parquet", range(6))
    options = ("--images", tmp_path / "images.parquet", "--columns", "width", "--output", tmp_path / "embedded")
    run("embed", model, *options)
    assert "6 vectors" in run("index", tmp_path / "embedded", "--output", tmp_path / "index").stdout
    hits = found(run, model, "a dog", "--language", "en", "--index", tmp_path / "index", "--where", "width > 3")
    assert {hit["id"]: hit["metadata"] for hit in hits} == {"0004": {"width": 4}, "0005": {"width": 5}}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["search", "m/n", "--index", "i"], "--image"),
        (["search", "m/n", "a", "--images", ".", "--where", "width > 8"], "--index"),
    ],
)
def test_wrong_options_are_refused(run, arguments, word):
    assert word in run(*arguments, code=2).output
