"""The three commands that `train` and `acquire` end with, and the width of what they print."""

import io
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from babelens.cli.acquire_work import _show_results
from babelens.cli.console import next_commands, show_next
from babelens.trainers.ridge_results import LanguageResult
from tests.support.documents import known_commands, mistakes


@pytest.mark.parametrize("searches", [True, False])
def test_the_commands_exist(searches):
    known = known_commands()
    for command, _ in next_commands(Path("runs/a b"), "uk", searches=searches):
        name, *arguments = shlex.split(command)
        assert name == "babelens" and "runs/a b" in arguments and not mistakes(arguments, known), command


def test_a_command_is_on_one_line_however_narrow_the_terminal():
    written = io.StringIO()
    commands = next_commands(Path("a-folder-with-a-name-that-is-longer-than-most") / "and-another-one", "uk")
    show_next(Console(file=written, width=40), commands)
    for command, _ in commands:
        assert f"  {command}\n" in written.getvalue()


def test_results_of_a_language_are_a_row_of_80_columns(tmp_path):
    written = io.StringIO()
    results = {"mi": LanguageResult(12_345, 1000, 75.8, 97.1, 96.0, 98.1, 1.0, 13.5, 1.0, 0.0, "mi")}
    run = SimpleNamespace(
        texts=None,
        model=SimpleNamespace(text_model=None),
        processor=SimpleNamespace(glossaries={}),
        teacher=None,
        results=results,
        languages=["mi"],
    )
    _show_results(run, tmp_path, Console(file=written, width=80))
    [row] = [line for line in written.getvalue().splitlines() if line.split()[:1] == ["mi"]]
    assert row.split() == ["mi", "12,345", "75.8", "97.1", "96.0–98.1", "1.0", "13.5"]
    assert f"babelens search {tmp_path}" in written.getvalue()
