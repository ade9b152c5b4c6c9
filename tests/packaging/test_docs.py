"""What README.md and docs/ show is true of the program: commands and options, imported names, recipes, links."""

import ast
import json
import re
import shlex
from importlib import import_module
from itertools import pairwise

import pytest

from babelens.workflows.loading import load_recipe
from tests.support.documents import (
    CHECKOUT,
    DOCUMENTS,
    Block,
    anchors,
    blocks_in,
    commands,
    known_commands,
    links,
    mistakes,
)


@pytest.fixture(scope="module")
def known():
    return known_commands()


def by_place(blocks: list[Block]) -> list:
    return [pytest.param(block, id=block.place) for block in blocks]


def named_recipes(arguments: list[str]) -> list[str]:
    """Recipes of the package that a command names: `emoji/mural`, and not `recipe.yaml` or RECIPE."""
    named = arguments[1:2] if arguments[0] == "train" else []
    named += [value for option, value in pairwise(arguments) if option == "--recipe"]
    return [name for name in named if "/" in name and not name.endswith(".yaml")]


@pytest.mark.parametrize("block", by_place([block for block in blocks_in("bash") if commands(block.text)]))
def test_commands_exist_with_their_options_and_recipes(block, known):
    for arguments in commands(block.text):
        assert not mistakes(arguments, known), arguments
        for name in named_recipes(arguments):
            assert (CHECKOUT / "recipes" / f"{name}.yaml").is_file(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_commands_in_sentences_exist_with_their_options(document, known):
    shown = re.findall(r"`babelens ([a-z-][^`]*)`", document.read_text(encoding="utf-8"))
    for arguments in map(shlex.split, shown):
        assert not mistakes(arguments, known, is_whole=False), arguments


@pytest.mark.parametrize("block", by_place(blocks_in("python")))
def test_python_compiles_and_imports_what_is_public(block):
    tree = ast.parse(block.text)
    compile(tree, block.place, "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "babelens":
            for name in node.names:
                assert is_public(node.module, name.name), f"{node.module}.{name.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "babelens":
            assert is_public("babelens", node.attr), f"babelens.{node.attr}"


def is_public(module: str, name: str) -> bool:
    """Whether a module has this name, and lists it if it lists what it offers."""
    home = import_module(module)
    return hasattr(home, name) and not name.startswith("_") and name in getattr(home, "__all__", [name])


@pytest.mark.parametrize("block", by_place([block for block in blocks_in("yaml") if "method:" in block.text]))
def test_recipes_can_be_read(block, tmp_path):
    (tmp_path / "recipe.yaml").write_text(block.text, encoding="utf-8")
    load_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize("block", by_place(blocks_in("json")))
def test_json_is_a_value_in_every_line(block):
    for line in block.text.splitlines():
        json.loads(line)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_links_lead_to_files_and_headings_that_exist(document):
    for link in links(document):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = document.parent / target if target else document
        assert path.exists(), link
        # Headings of the reference are written when the site is built, which refuses links to others.
        assert not anchor or path.parent.name == "api" or anchor in anchors(path), link


def test_every_page_is_in_the_navigation():
    navigation = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    pages = [path.relative_to(CHECKOUT / "docs").as_posix() for path in (CHECKOUT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)
