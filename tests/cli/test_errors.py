"""Errors of the command line in real processes: one sentence and an exit status; a traceback for mistakes of ours."""

import os
import signal
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from babelens.cli.errors import _missing_package, packages_of_extras
from babelens.cli.main import app, with_options
from babelens.utils.errors import CorpusError

START = [sys.executable, "-m", "babelens"]
QUIET = os.environ | {"OMP_NUM_THREADS": "1"}  # without a word about a machine that is busy
# Runs the command line without one of the packages.
WITHOUT = """
import sys
package = sys.argv.pop(1)

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, Missing())
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
main()
"""


def ended(*arguments, program=START, **options):
    options = {"env": QUIET} | options
    return subprocess.run([*program, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def assert_one_sentence(done, *parts):
    assert done.returncode == 1, done.stderr
    error = done.stderr.strip()
    assert error.startswith("Error: ") and "Traceback" not in error
    for part in parts:
        assert part in " ".join(error.split())


def test_an_error_of_the_data(tmp_path):
    assert_one_sentence(ended("data", tmp_path), str(tmp_path.name))


@pytest.mark.slow
def test_an_error_of_the_settings(tmp_path):
    done = ended("train", "emoji/mural", "--set", "method=murl", "--output", tmp_path / "out")
    assert_one_sentence(done, "'murl'")


@pytest.mark.slow
def test_an_error_of_the_machine(tmp_path):
    (tmp_path / "texts").write_text("a\n")
    (tmp_path / "file").write_text("")
    with open("/dev/full", "w") as full:
        command = [*START, "info", "--environment"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert_one_sentence(done, "No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["--help", "acquire --help", "info --environment", "info mural-base"])
def test_a_closed_pipe_is_silent(output):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*START, *output.split()], stdout=writer, stderr=subprocess.PIPE, timeout=120, env=QUIET)
    os.close(writer)
    assert done.returncode == 141 and not done.stderr


@pytest.fixture
def blocked(model, tmp_path):
    """A command in the midst of its work: it waits for the texts of a pipe."""
    os.mkfifo(tmp_path / "texts")
    command = ["embed", model, "--texts", tmp_path / "texts", "--language", "en", "--output", tmp_path / "out.npy"]
    process = subprocess.Popen([*START, *map(str, command)], stderr=subprocess.PIPE, text=True, env=QUIET)
    with open(tmp_path / "texts", "w"):  # opens when the command has opened the other end
        yield process
    process.kill()


@pytest.mark.slow
def test_an_interrupt_of_work_is_silent(blocked, tmp_path):
    time.sleep(0.5)
    blocked.send_signal(signal.SIGINT)
    _, error = blocked.communicate(timeout=60)
    assert blocked.returncode == 130 and not error
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("inside", ["app()", "work()"])
def test_a_second_interrupt_does_not_wait_for_threads(inside):
    """Python would show where it waited, or abort. The first one is seen by typer, or by nobody."""
    program = f"""
import os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import typer

sys.argv = ["/usr/bin/babelens"]
from babelens.cli.errors import one_sentence_errors

app = typer.Typer()

def interrupt():
    for _ in range(2):
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

@app.command()
def work():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ThreadPoolExecutor().submit(time.sleep, 20)
    threading.Thread(target=interrupt, daemon=True).start()
    time.sleep(20)

with one_sentence_errors():
    {inside}
"""
    done = ended(program=[sys.executable, "-c", program])
    assert done.returncode == 130 and not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "torch", "transformers", "peft", "rich.table"])
def test_an_interrupt_during_the_imports_is_silent(module):
    """The first module is imported before the options are read, the last ones by the work of the command."""
    program = f"""
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
main()
"""
    done = ended("info", "mural-base", program=[sys.executable, "-c", program])
    assert done.returncode == 130 and not done.stderr and not done.stdout


@pytest.mark.slow
def test_a_missing_package_of_an_extra_is_named(tmp_path):
    done = ended(
        "sacrebleu", "train", "rc3/mmt", "--output", tmp_path / "out", program=[sys.executable, "-c", WITHOUT]
    )
    assert_one_sentence(done, "pip install sacrebleu")


@pytest.mark.slow
def test_any_other_missing_package_is_named():
    done = ended("jinja2", "train", "emoji/mural", program=[sys.executable, "-c", WITHOUT])
    assert_one_sentence(done, "the package jinja2 is not installed: pip install jinja2")


def test_which_imports_are_the_users_to_mend():
    missing = ModuleNotFoundError("No module named 'h5py'", name="h5py")
    assert _missing_package(missing) == "the package h5py is not installed: pip install h5py"
    assert _missing_package(ImportError("A needs B: pip install B")) == "A needs B: pip install B"
    assert _missing_package(ModuleNotFoundError("No module named 'babelens.x'", name="babelens.x")) is None
    assert _missing_package(ImportError("cannot import name 'a'", name="torch")) is None


def test_the_extras_are_those_of_the_installed_package():
    assert {"emoji", "regions", "segmenters", "translation"} <= set(packages_of_extras())
    assert packages_of_extras()["regions"] == ["h5py", "lmdb", "msgpack"]


@pytest.mark.slow
def test_a_mistake_of_ours_keeps_its_traceback():
    broken = "import babelens.configuration.presets as module\nmodule.list_presets = 3\n"
    program = WITHOUT.replace("from babelens.cli.main", f"{broken}from babelens.cli.main")
    done = ended("nothing", "info", "mural-base", program=[sys.executable, "-c", program])
    assert done.returncode == 1 and "Traceback" in done.stderr and "TypeError" in done.stderr


def test_errors_name_the_options_of_the_command():
    sentence = "choose a split, as in split='train', with trust_remote_code=True, top=3 and other='x'; a.split='b'"
    named = with_options(sentence, {"split": "--split", "trust_remote_code": "--trust-remote-code", "top": "--top"})
    assert named == (
        "choose a split, as in --split train, with --trust-remote-code, --top 3 and other='x'; a.split='b'"
    )


@pytest.mark.parametrize("error", [CorpusError, typer.BadParameter])
def test_errors_of_a_command_name_its_options(monkeypatch, error, tmp_path):
    def refuse(*arguments, **options):
        raise error("choose a split, as in split='train'")

    monkeypatch.setattr("babelens.cli.inputs.load_retrieval_embedder", refuse)
    found = CliRunner().invoke(
        app, ["evaluate", "captions", str(tmp_path), "--data", str(tmp_path)], env={"COLUMNS": "300"}
    )
    assert "--split train" in f"{found.output} {found.exception}"
