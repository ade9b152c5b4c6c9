import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
import typer

from babelens.cli.main import app, main
from babelens.utils.errors import ModelFolderError
from babelens.utils.pretrained import located
from tests.support.forked_programs import ForkedPrograms

HEAVY = {"torch", "transformers", "datasets", "peft", "accelerate", "mteb", "pyarrow", "numpy", "pandas", "PIL"}
IMPORTS = 'sys.argv[0] = "/usr/bin/babelens"\nfrom babelens.cli.main import main\n'  # a command registers no models
PROGRAM = """
import json, sys
from babelens.cli.main import main

commands, statuses = json.loads(sys.argv[1]), []
for words in commands:
    sys.argv = ["/usr/bin/babelens", *words]
    try:
        main()
    except SystemExit as ended:
        statuses.append(ended.code)
    print("====")
    print("====", file=sys.stderr)
print(json.dumps([statuses, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def leaves(command, words=()):
    if not hasattr(command, "commands"):
        return [list(words)]
    return [leaf for name, each in command.commands.items() for leaf in leaves(each, (*words, name))]


COMMANDS = leaves(typer.main.get_command(app))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    (folder / "pairs.tsv").write_text("en\tuk\na\tb\n")
    (folder / "pairs.csv").write_text("id,en,uk\n1,a,b\n")
    for name in ("photos", "clip", "taken", "mine"):
        (folder / name).mkdir()
    (folder / "mine" / "README.md").write_text("My project")
    (folder / "taken" / "model.safetensors").write_bytes(b"")
    (folder / "file.txt").write_text("a")
    return folder


@pytest.fixture(scope="module")
def answer(here):
    """Runs commands where only the command line is imported; returns statuses, outputs, and what is imported then."""
    with ForkedPrograms(sys.executable, IMPORTS, here) as programs:

        def answered(*commands, **environment):
            done = programs.run(PROGRAM, json.dumps(commands), **environment)
            *shown, end = done.stdout.split("====\n")
            statuses, packages = json.loads(end)
            return statuses, shown, done.stderr.split("====\n")[:-1], set(packages)

        yield answered


def test_help_imports_nothing_heavy(answer):
    asked = [[*command, "--help"] for command in ([], ["evaluate"], *COMMANDS)]
    statuses, shown, _, packages = answer(*asked, COLUMNS="100")
    assert statuses == [0] * len(asked) and not packages & HEAVY
    screens = {" ".join(words[:-1]): text.rstrip().splitlines() for words, text in zip(asked, shown, strict=True)}
    assert all("Usage:" in "".join(screen) for screen in screens.values())
    assert all(len(screen) <= 40 for screen in screens.values())


def test_version_and_completion_import_nothing_heavy(answer):
    statuses, shown, _, packages = answer(["--version"])
    assert statuses == [0] and re.fullmatch(r"babelens \d+\.\d+\.\d+\n", shown[0]) and not packages & HEAVY
    asked = {"_BABELENS_COMPLETE": "complete_bash", "COMP_WORDS": "babelens eva", "COMP_CWORD": "1"}
    _, shown, _, packages = answer([], **asked)
    assert shown[0].split() == ["evaluate"] and not packages & HEAVY


ACQUIRE = {"base": "clip", "language": "uk", "translations": "pairs.tsv", "output": "out"}
DICTIONARY = ["--base", "clip", "--dictionary", "pairs.tsv", "--output", "out"]


def acquire(**changes):
    return ["acquire", *(word for key, value in (ACQUIRE | changes).items() for word in (f"--{key}", value))]


WRONG = [
    (acquire(base="clp"), ["'clp'", "'clip'"]),
    (acquire(translations="paris.tsv"), ["paris.tsv", "pairs.tsv"]),
    (acquire(language="pl"), ["pl", "en, uk"]),
    (acquire(language="pl", translations="pairs.csv"), ["pl", "en, uk"]),
    (acquire(language="Ukrainian!"), ["Ukrainian!"]),
    (acquire(output="taken"), ["taken"]),
    (acquire(**{"native-language": "English!"}), ["English!"]),
    (acquire(output="mine"), ["mine", "README.md"]),
    (["acquire", *DICTIONARY, "--language", "pl"], ["pl", "en, uk"]),
    (["search", "clip", "a cat", "--images", "fotos"], ["fotos", "photos"]),
    (["search", "clip", "a cat", "--images", "file.txt"], ["file.txt is a file, not a folder"]),
    (["search", "clip", "a cat", "--index", "foto"], ["foto", "photos"]),
    (["push", "clip", "us//clip"], ["us//clip"]),
    (["serve", "clip", "--images", "photos", "--language", "ua"], ["'ua'", "'uk'"]),
    (["evaluate", "captions", "clip", "--data", "paris.tsv"], ["paris.tsv", "pairs.tsv"]),
    (["evaluate", "captions", "clip", "--data", "pairs.tsv", "--languages", "ua"], ["'ua'", "'uk'"]),
    (["embed", "clip", "--texts", "fil.txt", "--output", "out"], ["fil.txt", "file.txt"]),
    (["train", "emoji/murall"], ["emoji/murall", "'emoji/mural'"]),
    (["info", "photo.csv"], ["photo.csv"]),
]


def test_a_wrong_input_is_one_sentence_without_torch(answer, here):
    statuses, _, told, packages = answer(*(arguments for arguments, _ in WRONG))
    assert statuses == [1] * len(WRONG) and "torch" not in packages and not (here / "out").exists()
    for sentence, (_, named) in zip(told, WRONG, strict=True):
        sentence = " ".join(sentence.split())
        assert sentence.startswith("Error: ") and sentence.count("Error") == 1
        assert all(word in sentence for word in named), sentence


# What follows `babelens`, and what the error names.
USAGE = [
    ("nonsense", "nonsense"),
    ("evaluate clip --data photos", "clip"),
    ("search clip ' ' --images photos", "give a description"),
    ("search clip x --images photos --grid 3", "--grid"),
    ("search clip --index i", "--image"),
    ("search clip x --images photos --where 'width > 8'", "--index"),
    ("embed clip --output out", "either"),
    ("embed clip --output out --images photos --language de", "no language"),
    ("train emoji/mural --set steps", "steps"),
    ("acquire --base clip --output out", "--language"),
    ("acquire --base clip --output out --language de --language fr", "--language is given twice"),
    ("analyze distances clip --data photos --data file.txt", "--data is given twice"),
    ("export clip --output out --precision fp8", "fp8"),
    ("export clip --output out --language sw", "--language"),
    ("export clip --output out --format transformers --precision fp16", "--precision"),
    ("export clip --output out --format immich --precision fp16 --precision int8", "--precision"),
    ("evaluate captions clip --data photos --languages ,", "--languages"),
    ("evaluate captions clip --data photos --split test --consistency --fit test", "different captions"),
    ("evaluate captions clip --data photos --consistency --protocol wit", "search together"),
    ("evaluate classes clip --data photos --knn 1", "go together"),
    ("evaluate classes clip --data photos --knn 1 --train-data photos --languages de", "no labels"),
]


def test_wrong_usage_has_another_status_and_says_what_is_wrong(answer):
    statuses, _, told, packages = answer(*(shlex.split(words) for words, _ in USAGE))
    assert statuses == [2] * len(USAGE) and not packages & HEAVY
    for sentence, (_, named) in zip(told, USAGE, strict=True):
        assert sentence.startswith("Error: ") and named in " ".join(sentence.split()), sentence


@pytest.mark.parametrize("how", [["--debug"], []])
def test_debug_shows_the_traceback(monkeypatch, how):
    monkeypatch.setattr(sys, "argv", ["babelens", *how, *acquire(base="clp")])
    monkeypatch.setenv("BABELENS_DEBUG", "" if how else "1")
    with pytest.raises(ModelFolderError):
        main()


def test_the_hub_is_not_asked_for_a_name_that_it_cannot_have(monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: pytest.fail("it was asked"))
    with pytest.raises(ModelFolderError, match="clp"):
        located("clp")


INTERRUPTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it runs in the background ignore it

class Interrupting:
    def find_spec(self, name, *_):
        if name == "transformers":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
main()
"""


def test_an_interrupt_during_the_imports_is_silent():
    done = subprocess.run([sys.executable, "-c", INTERRUPTING, "info", "mural-base"], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGINT and not done.stderr and not done.stdout  # 130 in a shell


def test_a_closed_pipe_is_silent():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "babelens", "acquire", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert done.returncode and not done.stderr


def test_defects_of_babelens_keep_their_traceback(monkeypatch):
    monkeypatch.setattr("babelens.cli.main.app", lambda **_: [].missing)
    with pytest.raises(AttributeError):
        main()
