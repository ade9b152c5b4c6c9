"""`babelens embed`, `search` and `evaluate` on a tiny real model and real files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.data.corpus.loading import load_captions
from babelens.evaluation import emoji
from babelens.evaluation.retrieval import evaluate_retrieval
from babelens.inference.embedder import Embedder
from babelens.utils.errors import CorpusError, LanguageTagError, ModelFolderError
from tests.support.full_disk import full_disk
from tests.support.results import metrics_of, numbers_of

NAMES = [f"{word} {n}" for word in ("number", "nummer", "bild") for n in range(4)]


@pytest.fixture
def run():
    def invoke(*arguments: object):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})

    return invoke


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, color in enumerate(("red", "green", "blue", "white")):
        Image.new("RGB", (20, 20), color).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def captioned(images):
    lines = [
        {"file_name": f"{n}.png", "captions": {"en": [f"number {n}"], "de": [f"nummer {n}", f"bild {n}"]}}
        for n in range(4)
    ]
    (images / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return images


def test_embed_images(run, clip_folder, images, tmp_path):
    result = run("embed", clip_folder, "--images", images, "--output", tmp_path / "out" / "p.parquet")
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out" / "p.parquet")
    assert table["file"].to_pylist() == ["0.png", "1.png", "2.png", "3.png"]
    expected = Embedder.from_pretrained(clip_folder).encode_image(sorted(images.iterdir()))
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), expected, atol=1e-6)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["p.parquet"]


def test_embed_texts(run, clip_folder, tmp_path):
    (tmp_path / "texts").write_text("ein rotes auto\nein haus\n", "utf-8")
    for name in ("t.npy", "t.parquet"):
        result = run(
            "embed", clip_folder, "--texts", tmp_path / "texts", "--language", "DE", "--output", tmp_path / name
        )
        assert result.exit_code == 0, result.output
    expected = Embedder.from_pretrained(clip_folder).encode_text(["ein rotes auto", "ein haus"], language="de")
    np.testing.assert_allclose(np.load(tmp_path / "t.npy"), expected, atol=1e-6)
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["text"], row["language"]) for row in rows] == [("ein rotes auto", "de"), ("ein haus", "de")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "x.npy"], "either --images or --texts"),
        (
            ["--output", "x.csv", "--texts", "TEXTS", "--language", "de"],
            "must end in .npy or .parquet, or have no extension",
        ),
    ],
)
def test_embed_says_what_is_missing(run, clip_folder, tmp_path, arguments, message):
    (tmp_path / "texts").write_text("text\n")
    result = run("embed", clip_folder, *[tmp_path / "texts" if a == "TEXTS" else a for a in arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_embed_leaves_nothing_behind_when_a_line_is_empty(run, clip_folder, tmp_path):
    (tmp_path / "texts").write_text("a\n\nb\n")
    result = run(
        "embed", clip_folder, "--texts", tmp_path / "texts", "--language", "de", "--output", tmp_path / "t.npy"
    )
    assert isinstance(result.exception, CorpusError)
    assert "line 2: the line is empty" in str(result.exception)
    assert not (tmp_path / "t.npy").exists()


def test_embed_cuts_texts_at_the_ends_of_lines_alone(run, clip_folder, tmp_path):
    texts = ["ein\u2028rotes auto", "ein\x0chaus", "ein\x85baum"]
    (tmp_path / "texts").write_bytes(("\ufeff" + "\r\n".join(texts)).encode())
    output = tmp_path / "t.parquet"
    result = run("embed", clip_folder, "--texts", tmp_path / "texts", "--language", "de", "--output", output)
    assert result.exit_code == 0, result.output
    assert pq.read_table(output)["text"].to_pylist() == texts


def test_embed_names_the_line_of_a_text_in_another_encoding(run, clip_folder, tmp_path):
    (tmp_path / "texts").write_bytes("ein auto\nein tür\n".encode("latin-1"))
    output = tmp_path / "t.npy"
    result = run("embed", clip_folder, "--texts", tmp_path / "texts", "--language", "de", "--output", output)
    assert isinstance(result.exception, CorpusError)
    assert "texts line 2: not UTF-8" in str(result.exception)


def test_no_image_that_can_be_read_is_an_error(run, clip_folder, tmp_path, own_cache):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number:02}.png").write_bytes(b"\x89PNG")
    output = tmp_path / "p.npy"
    for arguments in (("embed", clip_folder, "--output", output), ("search", clip_folder, "auto", "--language", "de")):
        result = run(*arguments, "--images", folder)
        assert isinstance(result.exception, CorpusError), result.output
        assert "02.png" in str(result.exception)
    assert not output.exists()


@pytest.mark.parametrize("name", ["t.npy", "t.parquet"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(run, clip_folder, tmp_path, name):
    (tmp_path / "texts").write_text("".join(f"ein auto {number}\n" for number in range(200)))
    output = tmp_path / "out" / name
    with full_disk(2000):
        result = run("embed", clip_folder, "--texts", tmp_path / "texts", "--language", "de", "--output", output)
    assert isinstance(result.exception, OSError)
    assert str(result.exception).startswith(f"{output} could not be written, and nothing was left there: ")
    assert "File too large" in str(result.exception)
    assert not output.exists()


def test_a_model_that_is_not_there(run, images, tmp_path):
    result = run("search", tmp_path / "nothing", "auto", "--images", images, "--language", "de")
    assert isinstance(result.exception, ModelFolderError) and "nothing" in str(result.exception)


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    return tmp_path / "babelens" / "image_index"


def test_search(run, clip_folder, images, tmp_path, own_cache):
    embedder = Embedder.from_pretrained(clip_folder)
    scores = embedder.encode_image(sorted(images.iterdir())) @ embedder.encode_text("ein rotes auto", language="de")[0]
    best = np.argsort(-scores)[:3]
    arguments = ("search", clip_folder, "ein rotes auto", "--images", images, "--language", "de", "--top", 3)
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert [found["file"] for found in answer["results"]] == [str(images / f"{number}.png") for number in best]
    np.testing.assert_allclose([found["score"] for found in answer["results"]], scores[best], atol=1e-6)
    assert list(own_cache.iterdir())
    table = run(*arguments).stdout
    assert table.index(f"{best[0]}.png") < table.index(f"{best[1]}.png")


def test_one_picture_in_several_files_is_shown_once(run, clip_folder, images, own_cache):
    arguments = ("search", clip_folder, "ein rotes auto", "--images", images, "--language", "de", "--top", 2)
    before = json.loads(run(*arguments, "--json").stdout)["results"]
    first = Path(before[0]["file"])
    for name in ("x.png", "y.png"):
        shutil.copy(first, images / name)
    after = json.loads(run(*arguments, "--json").stdout)["results"]
    assert {after[0]["file"], *after[0]["copies"]} == {str(first), str(images / "x.png"), str(images / "y.png")}
    assert [after[1]["file"], after[1]["copies"]] == [before[1]["file"], []]
    assert "(3 files)" in run(*arguments).stdout


def test_search_with_bad_input(run, clip_folder, images, own_cache, caplog):
    arguments = ("search", clip_folder, "auto", "--images", images, "--language")
    assert isinstance(run(*arguments, "klingonish").exception, LanguageTagError)
    (images / "broken.png").write_bytes(b"\x89PNG")
    skipped = run(*arguments, "de")
    assert skipped.exit_code == 0
    assert "broken.png" in caplog.text


@pytest.mark.parametrize("protocol", ["standard", "mla"])
def test_evaluate_captioned_images(run, clip_folder, captioned, tmp_path, protocol):
    expected = evaluate_retrieval(
        Embedder.from_pretrained(clip_folder), load_captions(str(captioned)), ["de", "en"], protocol=protocol
    )
    output = tmp_path / "results.json"
    result = run(
        "evaluate", "captions", clip_folder, "--data", captioned, "--protocol", protocol, "--json", "--output", output
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == expected and numbers_of(output) == metrics_of(expected)
    table = run("evaluate", "captions", clip_folder, "--data", captioned, "--languages", "en").stdout
    assert f"{expected['en']['t2i_r1']:.1f}" in table
    assert not [line for line in table.splitlines() if line.split()[:1] == ["de"]]


def test_evaluate_on_the_emoji_benchmark(run, clip_folder, emoji_corpus, tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(emoji, "load_emoji", lambda **options: asked.update(options) or emoji_corpus)
    groups = ("--image-languages", "en,de", "--pair-languages", "es", "--unseen-languages", "ar")
    result = run("evaluate", "emoji", clip_folder, *groups, "--json", "--output", tmp_path / "emoji.json")
    assert result.exit_code == 0, result.output
    assert asked == {"vendors": ["twemoji", "noto"], "languages": ["en", "de", "es", "ar", "en"]}
    report = json.loads(result.stdout)
    assert list(report["unseen_vendor"]["groups"]["pair"]["languages"]) == ["es"]
    assert "Unseen concepts" in run("evaluate", "emoji", clip_folder, *groups).stdout


def test_evaluate_refuses_options_that_would_do_nothing(run, clip_folder, captioned):
    assert run("evaluate", "captions", clip_folder, "--languages", "en").exit_code == 2
    assert run("evaluate", "captions", clip_folder, "--data", captioned, "--test-vendor", "noto").exit_code == 2
    assert isinstance(
        run("evaluate", "captions", clip_folder, "--data", captioned, "--languages", "fr").exception, CorpusError
    )


def test_evaluate_refuses_a_language_in_two_groups(run, clip_folder):
    result = run("evaluate", "emoji", clip_folder, "--image-languages", "en,de", "--unseen-languages", "de,ar")
    assert result.exit_code == 2 and "de is in two" in result.output


@pytest.mark.slow
def test_the_real_command_line(clip_folder, images, tmp_path):
    def babelens(*arguments):
        command = [sys.executable, "-m", "babelens.cli.main", *map(str, arguments)]
        environment = {**os.environ, "HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    arguments = ("search", clip_folder, "ein rotes auto", "--images", images, "--language")
    found = babelens(*arguments, "de", "--json")
    assert found.returncode == 0, found.stderr
    assert len(json.loads(found.stdout)["results"]) == 4
    refused = babelens(*arguments, "klingonish")
    assert refused.returncode == 1
    assert "Error: 'klingonish' is not a language tag" in refused.stderr
    assert "Traceback" not in refused.stderr
