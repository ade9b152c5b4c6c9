"""Typing mistakes are refused before torch is imported, by one exit status; `--debug` shows where an error is from."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.utils.errors import HubUnreachableError, ModelFolderError
from babelens.utils.pretrained import located

PROGRAM = """
import atexit, json, sys
heavy = ("torch", "transformers", "datasets")
atexit.register(lambda: print("imported:", json.dumps([name for name in heavy if name in sys.modules])))
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    (folder / "pairs.tsv").write_text("en\tuk\na\tb\n")
    (folder / "photos").mkdir()
    (folder / "clip").mkdir()
    (folder / "taken").mkdir()
    (folder / "taken" / "model.safetensors").write_bytes(b"")
    (folder / "file.txt").write_text("a")
    return folder


def run(here, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


ACQUIRE = {"base": "clip", "language": "uk", "translations": "pairs.tsv", "output": "out"}


def acquire(**changes):
    return ["acquire", *(word for key, value in (ACQUIRE | changes).items() for word in (f"--{key}", value))]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (acquire(base="clp"), ["'clp'", "'clip'"]),
        (acquire(base="file.txt"), ["file.txt"]),
        (acquire(translations="paris.tsv"), ["paris.tsv", "pairs.tsv"]),
        (acquire(translations="data/pairs.tsv"), ["data/pairs.tsv"]),
        (acquire(dictionary="words.tsv"), ["words.tsv"]),
        (acquire(language="pl"), ["pl", "en, uk"]),
        (acquire(output="taken"), ["taken"]),
        (["search", "clp", "a cat", "--images", "photos"], ["'clp'"]),
        (["search", "clip", "a cat", "--images", "fotos"], ["fotos"]),
        (["embed", "./clp", "--images", "photos", "--output", "out.npy"], ["clp"]),
        (["serve", "clp", "--images", "photos"], ["'clp'"]),
        (["evaluate", "captions", "clp", "--data", "photos"], ["'clp'"]),
        (["export", "clp", "--output", "out"], ["'clp'"]),
        (["trim", "clp", "--texts", "file.txt", "--output", "out"], ["'clp'"]),
        (["train", "recipe.yaml"], ["recipe.yaml"]),
        (["train", "emoji/murall"], ["emoji/murall", "'emoji/mural'"]),
        (["train", "emoji/mural", "--output", "taken"], ["taken"]),
        (["push", "clp", "owner/clip"], ["clp"]),
    ],
    ids=lambda value: " ".join(value) if value and len(value) > 2 else "",
)
def test_a_wrong_input_is_one_sentence_before_torch_is_imported(here, arguments, named):
    done = run(here, *arguments)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout.splitlines()[-1].removeprefix("imported:")) == []
    told = " ".join(done.stderr.split())
    assert told.startswith("Error: ") and told.count("Error") == 1 and "Traceback" not in told
    assert all(word in told for word in named), told
    assert not (here / "out").exists()


def test_a_wrong_tag_is_refused_without_torch(here):
    done = run(here, *acquire(language="Ukrainian!"))
    assert done.returncode == 1 and "Ukrainian!" in done.stderr and '"torch"' not in done.stdout


def test_wrong_usage_has_another_status(here):
    for arguments in (["search"], ["acquire", "--no-such", "clip"], ["train", "emoji/mural", "--set", "no value"]):
        assert run(here, *arguments).returncode == 2


@pytest.mark.parametrize("how", [{"BABELENS_DEBUG": "1"}, {}])
def test_debug_shows_the_traceback(here, how):
    arguments = acquire(base="clp") if how else ["--debug", *acquire(base="clp")]
    done = run(here, *arguments, **how)
    assert done.returncode == 1 and "Traceback" in done.stderr and "ModelFolderError" in done.stderr


def test_one_mistake_is_one_error_wherever_it_is_made(here, monkeypatch):
    monkeypatch.chdir(here)
    for command in (["search", "clp", "x", "--images", "photos"], ["info", "clp"], acquire(base="clp")):
        assert CliRunner().invoke(app, command).exit_code == 1


def test_the_hub_is_not_asked_for_a_name_that_it_cannot_have(monkeypatch):
    monkeypatch.setattr("babelens.utils.pretrained._why_not_on_hub", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(ModelFolderError, match="clp") as found:
        located("clp")
    assert not isinstance(found.value, HubUnreachableError)
