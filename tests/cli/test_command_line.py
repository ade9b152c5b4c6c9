"""What every command does: errors in one sentence, users' text as it is, no code that nobody allowed, no waiting."""

import http.server
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from babelens import __version__
from babelens.cli.console import plain_console
from babelens.cli.evaluate import JOBS
from babelens.cli.main import main
from babelens.utils.errors import BadImageError

MARKUP = "[/b] [bold]:cat:"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def babelens(*arguments, **environment):
    """`python -m babelens …` as a process of its own."""
    command = [sys.executable, "-m", "babelens", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=os.environ | environment, input=b"y\n", timeout=120)


# ---- Text of the user's ----


def test_search_prints_queries_and_names_as_they_are(run, model, images):
    shown = run("search", model, f"see {MARKUP}", "--images", images, "--language", "en").output
    assert f"see {MARKUP} [en]" in shown
    assert "a[/b].png" in shown and "pic[bold]:cat:.png" in shown


def test_a_refusal_shows_the_text_as_it_is(run, tmp_path):
    shown = str(run("info", tmp_path / MARKUP, code=1).exception)
    assert "[/b]" in re.sub(r"\s*│\n│\s*", "", shown)
    assert MARKUP in run("data", str(tmp_path), "--language", MARKUP, code=1).exception.args[0]


def test_no_command_has_a_console_that_reads_markup():
    """Of rich, every console in the package is `plain_console`, and nothing is printed in its markup."""
    root = Path(main.__code__.co_filename).parent
    for file in (*root.glob("*.py"), *root.glob("*/*.py")):
        source = file.read_text(encoding="utf-8")
        if file.name != "console.py":
            assert not re.search(r"\bConsole\(|rich import print|rich\.print|\[/\]|from_markup", source), file
    assert plain_console(stderr=True).stderr


@pytest.mark.parametrize(
    "command",
    ["info", "acquire", "trim", "train", "search", "embed", "features", *(f"evaluate {job.__name__}" for job in JOBS)],
)
def test_every_command_that_loads_a_model_can_be_told_to_run_its_code(run, command):
    assert "--trust-remote-code" in run(*command.split(), "--help").output


def test_defaults_stand_in_the_help(run):
    assert "[default: 10]" in run("search", "--help").output


# ---- Arguments ----


def test_the_version(run):
    assert run("--version").output == f"babelens {__version__}\n"


@pytest.mark.parametrize("query", ["", "  "])
def test_an_empty_description_is_refused(run, model, images, query):
    assert "give a description" in run("search", model, query, "--images", images, "--language", "en", code=2).output


@pytest.mark.parametrize("languages", [",", "", " , "])
def test_no_language_is_refused(run, model, images, languages):
    shown = run("evaluate", "captions", model, "--data", images, "--languages", languages, code=2).output
    assert "names no language" in shown


def test_names_that_are_no_utf8(run, model, images, tmp_path, caplog):
    os.rename(os.fsencode(images / "plain.png"), os.fsencode(images) + b"/caf\xe9.png")
    run("embed", model, "--images", images, "--output", tmp_path / "v.parquet")
    assert "not UTF-8" in caplog.text
    run("embed", model, "--images", images, "--output", tmp_path / "v.npy")
    done = babelens("search", model, "car", "--images", images, "--language", "en", "--json")
    assert done.returncode == 0, done.stderr
    files = [os.path.basename(os.fsencode(each["file"])) for each in json.loads(done.stdout)["results"]]
    assert b"caf\xe9.png" in files
    (told,) = [line for line in done.stderr.splitlines() if b"cores busy" not in line]  # no bar of transformers
    assert b"states no languages" in told


def test_an_error_in_a_process_of_a_data_loader_is_one_sentence(monkeypatch, capsys):
    def fail():
        raise BadImageError(
            "Caught BadImageError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "x.py", line 1\nbabelens.data.errors.BadImageError: a.png: truncated\n'
        )

    monkeypatch.setattr("babelens.cli.main.app", fail)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "Error: a.png: truncated\n"


# ---- Code ----


@pytest.fixture
def evil(model, tmp_path):
    """A model whose configuration needs code, which leaves a mark when it runs."""
    folder = shutil.copytree(model, tmp_path / "evil")
    (folder / "evil.py").write_text(
        f"open({str(tmp_path / 'it-ran')!r}, 'w')\nfrom transformers import CLIPConfig\n"
        "class EvilConfig(CLIPConfig):\n    model_type = 'evil'\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_nobody_is_asked_whether_code_may_run(evil, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["babelens", "info", str(evil)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    # A handler that a library made within an earlier test writes to what was captured there, which is closed.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 1 and "--trust-remote-code" in told and "Traceback" not in told
    assert sys.stdin.read() == "y\n" and not (tmp_path / "it-ran").exists()


def test_the_code_of_a_base_a_recipe_or_a_checkpoint_does_not_run(run, evil, tmp_path):
    (tmp_path / "pairs.tsv").write_text("en\tde\ncat\tKatze\n")
    (tmp_path / "texts").write_text("cat\n")
    recipe = {
        "method": "mla",
        "model": {"from_pretrained": str(evil)},
        "train": {"text_text": {"source": str(tmp_path / "pairs.tsv"), "pairs": [["de", "en"]], "license": "mit"}},
        "multilingual_tokenizer": {"vocab_size": 60},
        "training": {"max_steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    pairs = ["--language", "de", "--translations", tmp_path / "pairs.tsv"]
    for command in (
        ["acquire", "--base", evil, *pairs, "--output", tmp_path / "o"],
        ["trim", evil, "--texts", tmp_path / "texts", "--output", tmp_path / "o"],
        ["train", tmp_path / "recipe.yaml", "--output", tmp_path / "o"],
    ):
        error = run(*command, code=1).exception
        assert "--trust-remote-code" in str(error), error
        assert not (tmp_path / "it-ran").exists()


def test_nor_does_that_of_a_model_that_a_recipe_goes_on_from(run, evil, tmp_path):
    recipe = {
        "method": "mural",
        "model": {"from_pretrained": str(evil)},
        "train": {"image_text": {"source": str(tmp_path)}},
        "training": {"max_steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    error = run("train", tmp_path / "recipe.yaml", "--output", tmp_path / "o", code=1).exception
    assert "--trust-remote-code" in str(error), error
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize(
    "model",
    [{"attn_implementation": "evil/kernel"}, {"overrides": {"text_config": {"attn_implementation": "evil/kernel"}}}],
)
def test_a_recipe_fetches_no_kernel(run, tmp_path, images, model):
    rows = [
        {"file_name": path.name, "captions": {"en": [f"thing {number}"]}}
        for number, path in enumerate(sorted(images.glob("*.png")))
    ]
    (images / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = {
        "method": "mural",
        "model": {"preset": "mural-tiny"} | model,
        "tokenizer": {"vocab_size": 60},
        "train": {"image_text": {"source": str(images), "license": "mit"}},
        "training": {"max_steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    error = run("train", tmp_path / "recipe.yaml", "--output", tmp_path / "o", code=1).exception
    assert "'evil/kernel' is code from the Hub" in str(error), error


# ---- The Hub ----


class PlayedHub(http.server.BaseHTTPRequestHandler):
    """Answers as the first part of an address says: what stands between a machine and the Hub may say anything."""

    def do_GET(self):
        behaviour = self.path.split("/")[1]
        if behaviour == "silence":
            time.sleep(20)
        if behaviour == "nonsense":
            self.wfile.write(b"\x00\x01 nonsense\r\n\r\n")
            return
        self.send_response({"an-error": 503, "no-such-repository": 404}.get(behaviour, 200))
        if behaviour == "no-such-repository":
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"<html>log in</html>")

    do_HEAD = do_POST = do_GET

    def log_message(self, *args):
        pass


@contextmanager
def served(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def played_hub():
    with served(PlayedHub) as address:
        yield address


@pytest.fixture
def hub_at(monkeypatch, tmp_path):
    """Has the Hub at another address, as HF_ENDPOINT does, and nothing fetched."""

    def move(address):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("transformers.utils.hub._hf_api", None)  # which keeps the address that it was made with

    return move


@pytest.mark.parametrize("hub", ["refused", "a page", "nonsense", "an error", "silence", "offline"])
@pytest.mark.parametrize("command", ["search", "evaluate", "info"])
def test_a_hub_that_does_not_answer_is_one_sentence_at_once(
    run, hub_at, command, hub, images, played_hub, monkeypatch
):
    monkeypatch.setattr("babelens.utils.pretrained._HUB_ANSWERS_WITHIN", 0.5)
    if hub == "offline":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub_at("http://127.0.0.1:1" if hub == "refused" else f"{played_hub}/{hub.replace(' ', '-')}")
    arguments = {
        "search": ["some/model", "car", "--images", images, "--language", "en"],
        "evaluate": ["some/model", "--data", images],
        "info": ["some/model"],
    }[command]
    shown = str(run(command, *arguments, code=1).exception)
    assert "No folder 'some/model'" in shown, shown
    assert ("HF_HUB_OFFLINE is set" if hub == "offline" else "did not answer as the Hub does") in shown


def test_a_name_that_the_hub_does_not_have(run, hub_at, played_hub):
    hub_at(f"{played_hub}/no-such-repository")
    shown = str(run("info", "runs/mistyped", code=1).exception)
    assert "No folder 'runs/mistyped' here, and no repository of that name on the Hub" in shown


class ServingHub(PlayedHub):
    """Has one repository, `some/model`, as the Hub serves its files."""

    folder: Path

    def do_GET(self):
        place, _, name = self.path.partition("/resolve/main/")
        file = self.folder / name
        found = place == "/some/model" and file.is_file()
        self.send_response(200 if found else 404)
        self.send_header("X-Repo-Commit", "0" * 40)
        content = file.read_bytes() if found else b""
        self.send_header("Content-Length", str(len(content)))
        self.send_header(*(("ETag", f'"{name}"') if found else ("X-Error-Code", "EntryNotFound")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET


def test_a_model_is_fetched_once_and_then_found_without_the_hub(
    run, hub_at, model, images, tmp_path, monkeypatch, caplog
):
    search = ["search", "some/model", "car", "--images", images, "--language", "en", "--json"]
    with served(type("Hub", (ServingHub,), {"folder": model})) as address:
        hub_at(address)
        fetched = run(*search).stdout
    assert run(*search).stdout == fetched
    assert "the copy that was downloaded before is used" in caplog.text


# ---- Ctrl-C ----


def test_an_interrupt_while_starting_is_quiet():
    code = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it runs in the background ignore it

class Interrupting:
    def find_spec(self, name, *_):
        if name == "transformers":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = [sys.argv[1], "--version"]
from babelens.cli.starting import begin_work
begin_work()
"""
    for program, status in (("/usr/bin/babelens", 130), ("/usr/bin/other", -signal.SIGINT)):
        done = subprocess.run([sys.executable, "-c", code, program], capture_output=True, timeout=60)
        assert done.returncode == status
        assert bool(done.stderr) == (program != "/usr/bin/babelens")  # a library leaves interrupts to its program
