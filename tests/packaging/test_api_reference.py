"""docs/api holds every public name, under a path that exists, and its examples run."""

import importlib
import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

import babelens
from babelens import Rc3ForImageTextRetrieval
from babelens.cli.main import app
from tests.support.documents import TITLED_BLOCK, pages, write_example_data
from tests.support.tiny_rc3_tasks import save_pretrained_rc3

PAGES = pages("api")
SECTIONS = dict(part.partition("\n")[::2] for part in PAGES["python"].split("\n## ")[1:])
DIRECTIVES = [path for text in PAGES.values() for path in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_mural, make_mla, make_smalr, make_liwe):
    """Where the examples run: images with captions, translations, and a tiny model of each kind in `runs`."""
    folder = tmp_path_factory.mktemp("api")
    write_example_data(folder)
    for name, make in {"mural": make_mural, "mla": make_mla, "smalr": make_smalr, "liwe": make_liwe}.items():
        for part in make():
            part.save_pretrained(folder / "runs" / name)
    save_pretrained_rc3(folder / "runs/rc3", visual="patches")
    judge = Rc3ForImageTextRetrieval.from_pretrained(folder / "runs/rc3")
    for part in (judge, babelens.Rc3Processor.from_pretrained(folder / "runs/rc3")):
        part.save_pretrained(folder / "runs/itr")
    return folder


def test_public_names_are_those_that_are_listed():
    """A name that goes breaks programs, and one that comes is a promise: either is a change of the list, too."""
    listed = json.loads(Path(__file__).with_name("public_names.json").read_text(encoding="utf-8"))
    assert {package: sorted(importlib.import_module(package).__all__) for package in listed} == listed


def test_every_public_name_has_one_entry():
    listed = json.loads(Path(__file__).with_name("public_names.json").read_text(encoding="utf-8"))
    entries = [path.rpartition(".")[2] for path in DIRECTIVES]
    assert {name for names in listed.values() for name in names} - set(entries) == set()
    assert len(DIRECTIVES) == len(set(DIRECTIVES))


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_examples_run(section, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", tmp_path / "cache")
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)  # trainers write into `runs`
    names = {}
    for language, title, code in TITLED_BLOCK.findall(SECTIONS[section]):
        if language == "python" and not title:  # the title says what a test does not have
            exec(compile(code, f"docs/api/python.md, {section}", "exec"), names)


def test_every_command_is_written():
    path = Path(__file__).parents[2] / "docs/tools/command_line.py"
    spec = importlib.util.spec_from_file_location("docs_hooks", path)
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    written = hooks.command_line_reference(app)
    assert hooks.PLACEHOLDER in PAGES["command-line"]
    for name, command in get_command(app).commands.items():
        section = written.partition(f"\n## `babelens {name}`\n")[2].partition("\n## ")[0]
        shown = [each.opts[0] if each.opts[0].startswith("-") else each.opts[0].upper() for each in command.params]
        assert [each for each in shown if f"`{each}" not in section] == [], name
