"""What the guides of the methods show works: their examples run, and the defaults that they state are the code's. The
scripts that the results name exist."""

import ast
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import babelens
from babelens.cli.main import app
from babelens.workflows.recipe_file import find_recipe
from tests.support.documents import CHECKOUT, TITLED_BLOCK, commands, pages, write_example_data

METHODS = ["mural", "align", "etcl", "mla", "mla-student", "rc3", "smalr", "liwe", "consistency"]
TEXTS = pages("methods")
CLIP = "openai/clip-vit-base-patch32"  # which a test has no network for
# The recipe's base and vocabulary are on the Hub.
OFFLINE = "--set model.from_pretrained=clip --set 'multilingual_tokenizer={vocab_size: 200}'"
TABLE = re.compile(r"^### `([A-Z]\w+)`\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
DEFAULT = re.compile(r"^\| `(\w+)` \| `(.+?)` \|", re.MULTILINE)


def section(guide: str, heading: str) -> str:
    """The part of a guide under a heading of the second level."""
    return TEXTS[guide].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.fixture
def photos(tmp_path, monkeypatch, make_mural):
    """The working directory of an example: `photos` and `pairs.tsv`, a CLIP, and a MURAL's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", tmp_path / "cache")
    write_example_data(tmp_path)
    for part in make_mural():
        part.save_pretrained("runs/start")
    return tmp_path


def test_every_method_has_a_guide():
    assert {*METHODS, "index", "options"} == TEXTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("guide", METHODS)
def test_the_example_runs(guide, photos):
    example = section(guide, "Example").replace(CLIP, "clip")
    example = example.replace("train mla/adapter", f"train mla/adapter {OFFLINE}")
    if guide != "mural":
        example = example.replace("runs/mural", "runs/start")  # another guide's result
    names = {}
    for language, title, code in TITLED_BLOCK.findall(example):
        if title:
            Path(title).write_text(code, encoding="utf-8")
        elif language == "bash":
            for words in commands(code):
                done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, f"{words}: {done.output}\n{done.exception!r}"
        elif language == "python":
            exec(compile(code, f"{guide}.md", "exec"), names)


@pytest.mark.parametrize("folder", ["results", "how-to", "methods"])
def test_benchmarks_exist(folder):
    for text in pages(folder).values():
        for script in re.findall(r"python (benchmarks/\w+\.py)", text):
            assert (CHECKOUT / script).is_file()


@pytest.mark.parametrize("guide", TEXTS)
def test_recipes_exist(guide):
    for row in re.findall(
        r"^\| (`(?:mural|mla|etcl|rc3|smalr|emoji)/.+?) \|", section(guide, "Recipes"), re.MULTILINE
    ):
        first, *others = re.findall(r"`(.+?)`", row.partition("(")[0])
        for name in (first, *others):
            path = name if "/" in name else f"{first.rpartition('/')[0]}/{name}"
            assert find_recipe(path).is_file()


@pytest.mark.parametrize("guide", TEXTS)
def test_defaults_are_those_of_the_code(guide):
    for name, table in TABLE.findall(TEXTS[guide]):
        fields = getattr(babelens, name).__dataclass_fields__
        rows = DEFAULT.findall(table)
        assert rows
        for field, stated in rows:
            assert field in fields, f"{name}.{field}"
            default = fields[field].default
            assert _plain(ast.literal_eval(stated)) == _plain(default), f"{name}.{field}: {default!r}"


def _plain(value):
    return json.loads(json.dumps(value, default=str))
