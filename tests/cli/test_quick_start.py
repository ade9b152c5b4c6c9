"""The command line answers help, completion and wrong arguments at once: without torch, transformers and datasets."""

import json
import sys

import pytest

from babelens.cli.analyze import analyze
from babelens.cli.evaluate import JOBS
from babelens.cli.main import app
from tests.support.forked_programs import forked_programs

COMMANDS = [command.callback.__name__ for command in app.registered_commands]
HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "peft",
    "accelerate",
    "evaluate",
    "mteb",
    "pyarrow",
    "numpy",
    "pandas",
    "PIL",
}
# `import babelens` registers models, but for the command line, which it knows by its name.
IMPORTS = """
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
"""
PROGRAM = """
import json, sys
from babelens.cli.main import main

sys.argv[0] = "/usr/bin/babelens"
try:
    main()
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """Runs the command line in a process that has imported it alone; returns the process, and the packages that it
    had imported at its end."""
    folder = tmp_path_factory.mktemp("programs")
    with forked_programs(sys.executable, IMPORTS, folder) as programs:

        def answered(*arguments, **environment):
            done = programs.run(PROGRAM, *arguments, **environment)
            return done, set(json.loads(done.stderr.splitlines()[-1]))

        yield answered


def test_all_commands_are_here():
    groups = [group.name for group in app.registered_groups]
    assert len(COMMANDS) == 14 and groups == ["evaluate", "analyze", "convert"]
    assert [job.__name__ for job in JOBS] == ["captions", "classes", "emoji", "benchmark", "mteb", "task"]


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([command] for command in COMMANDS),
        ["evaluate"],
        *(["evaluate", job.__name__] for job in JOBS),
        ["analyze"],
        *(["analyze", command.callback.__name__] for command in analyze.registered_commands),
        ["convert", "mla"],
        ["convert", "clip"],
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(answer, command):
    done, packages = answer(*command, "--help")
    assert done.returncode == 0 and "Usage:" in done.stdout
    assert not packages & HEAVY


def test_neither_do_version_and_completion(answer):
    done, packages = answer("--version")
    assert done.returncode == 0 and done.stdout.startswith("babelens ") and not packages & HEAVY
    _, packages = answer("--show-completion")  # which fails where no shell is among the parents of the process
    assert not packages & HEAVY
    asked = {"_BABELENS_COMPLETE": "complete_bash", "COMP_WORDS": "babelens eva", "COMP_CWORD": "1"}
    done, packages = answer(**asked)
    assert done.stdout.split() == ["evaluate"] and not packages & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["search", "MODEL"],
        ["search", "MODEL", " ", "--images", ".", "--language", "de"],
        ["search", "MODEL", "x"],
        ["train", "emoji/mural", "--set", "steps"],
        ["compare", "a-run-that-is-missing"],
        ["embed", "MODEL", "--output", "x.npy"],
        ["analyze", "languages", "MODEL", "--data", "photos", "--output", "x.pdf"],
        ["evaluate", "captions", "MODEL", "--data", "photos", "--languages", ","],
        ["evaluate", "benchmark", "MODEL", "--benchmark", "none", "--root", "."],
        ["index", "--output", "photos.index"],
        ["evaluate", "mteb", "MODEL", "--tasks", ","],
        ["evaluate", "classes", "MODEL", "--data", "."],
        ["demo", "--method", "nothing"],
        ["features", "MODEL", "--data", "photos", "--output", "out", "--crop", "1000"],
        ["trim", "MODEL", "--output", "out"],
        ["export", "MODEL", "--output", "out", "--precision", "fp8"],
        ["info"],
        ["acquire", "--base", "MODEL", "--output", "out"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_import_nothing_heavy(answer, arguments):
    done, packages = answer(*arguments)
    assert done.returncode in (1, 2) and "Error" in done.stderr
    assert not packages & HEAVY
