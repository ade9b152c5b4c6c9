"""`babelens search` for a second time: the same answer without the model, as long as nothing has changed."""

import json
import os
import subprocess
import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from babelens.cli.jobs import models
from babelens.cli.main import app
from babelens.configuration.errors import UnknownLanguageError
from babelens.inference.embedder import Embedder

pytestmark = pytest.mark.live
COLORS = {"rot": "red", "grün": "green", "blau": "blue", "weiß": "white"}


@pytest.fixture(scope="module")
def model(make_mla, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    for part in make_mla():
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for name, color in COLORS.items():
        Image.new("RGB", (20, 20), color).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def search(model, images, cache, monkeypatch):
    """Searches; returns what was found, and whether the model was loaded."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(cache))
    loaded = []
    load = models.load_embedder
    monkeypatch.setattr(models, "load_embedder", lambda *a, **k: loaded.append(a) or load(*a, **k))

    def run(query="ein rotes Auto", language="de", *options):
        loaded.clear()
        arguments = ["search", str(model), query, "--images", str(images), "--language", language, "--json", *options]
        result = CliRunner().invoke(app, arguments)
        if result.exception:
            raise result.exception
        return json.loads(result.stdout)["results"], bool(loaded)

    return run


def equal(one, other):
    assert [found["file"] for found in one] == [found["file"] for found in other]
    assert [found["score"] for found in one] == pytest.approx([found["score"] for found in other], abs=1e-5)


def test_the_second_search_loads_no_model(search, images):
    first, loaded = search()
    assert loaded and len(first) == 4
    second, loaded = search()
    assert not loaded
    equal(first, second)
    other, loaded = search("a car", "en", "--top", "2")
    assert not loaded and len(other) == 2
    assert other != first[:2]


@pytest.mark.parametrize("change", ["image", "new image", "broken image", "model"])
def test_what_has_changed_is_searched_anew(search, images, model, change):
    search()
    if change == "model":
        os.utime(model / "config.json", ns=(0, 0))
    elif change == "broken image":
        (images / "broken.png").write_bytes(b"none")
    else:
        Image.new("RGB", (20, 20), "gray").save(images / ("rot.png" if change == "image" else "grau.png"))
    options = ("--skip-bad-images",) if change == "broken image" else ()
    found, loaded = search("ein rotes Auto", "de", *options)
    assert loaded and len(found) == (5 if change == "new image" else 4)
    again, loaded = search("ein rotes Auto", "de", *options)
    assert loaded is (change == "broken image")  # left to the full search, which names it
    equal(found, again)


def test_a_model_that_changes_while_it_is_at_work(search, model, monkeypatch):
    search()
    encode = Embedder.encode_image

    def overtaken(*arguments, **options):
        os.utime(model / "config.json", ns=(0, 2))
        return encode(*arguments, **options)

    os.utime(model / "config.json", ns=(0, 1))
    with monkeypatch.context() as patched:
        patched.setattr(Embedder, "encode_image", overtaken)
        assert search()[1]
    assert search()[1]  # and not by the text tower of the earlier one
    assert not search()[1]


def test_a_refused_query_has_its_reason(search):
    search()
    with pytest.raises(UnknownLanguageError):
        search("a car", "sw")
    assert not search()[1]


def test_a_damaged_cache_is_made_again(search, cache):
    first, _ = search()
    (graph,) = cache.rglob("*.onnx")
    graph.write_bytes(b"none")
    found, loaded = search()
    assert loaded
    equal(first, found)
    found, loaded = search()
    assert not loaded
    equal(first, found)


def test_without_torch(search, model, images, cache):
    search()
    code = (
        "import sys; sys.argv = ['babelens', *sys.argv[1:]]\n"
        "from babelens.cli.main import main\n"
        "try: main()\n"
        "finally: print([name for name in ('torch', 'transformers') if name in sys.modules], file=sys.stderr)"
    )
    arguments = ["search", str(model), "ein rotes Auto", "--images", str(images), "--language", "de"]
    environment = os.environ | {"HF_DATASETS_CACHE": str(cache)}
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[-1] == "[]" and "rot.png" in run.stdout
