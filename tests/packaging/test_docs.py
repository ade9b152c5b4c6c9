"""Commands, options, recipes and imported names in README.md and docs/ exist. `mkdocs --strict` checks links."""

import ast
import re
import shlex
from importlib import import_module
from itertools import pairwise

from babelens.training.loading import load_recipe
from babelens.training.recipe_file import find_recipe
from tests.support.documents import DOCUMENTS, blocks_in, commands, known_commands, mistakes


def named_recipes(arguments: list[str]) -> list[str]:
    """Recipes of the package that a command names: `emoji/mural`, and not `recipe.yaml` or RECIPE."""
    named = arguments[1:2] if arguments[0] == "train" else []
    named += [value for option, value in pairwise(arguments) if option == "--recipe"]
    return [name for name in named if "/" in name and not name.endswith(".yaml")]


def test_commands_in_blocks_exist_with_their_options_and_recipes():
    known = known_commands()
    shown = {(block.place, *arguments) for block in blocks_in("bash") for arguments in commands(block.text)}
    assert len(shown) > 50
    assert {(place, *arguments) for place, *arguments in shown if mistakes(arguments, known)} == set()
    for _, *arguments in shown:
        for name in named_recipes(arguments):
            assert find_recipe(name).is_file(), name


def test_commands_in_sentences_exist_with_their_options():
    known = known_commands()
    for document in DOCUMENTS:
        for shown in re.findall(r"`babelens ([a-z-][^`]*)`", document.read_text(encoding="utf-8")):
            assert not mistakes(shlex.split(shown), known, is_whole=False), (document.name, shown)


def test_python_imports_what_is_public():
    for block in blocks_in("python"):
        for node in ast.walk(compile(block.text, block.place, "exec", ast.PyCF_ONLY_AST)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "babelens":
                for name in node.names:
                    assert is_public(node.module, name.name), (block.place, node.module, name.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "babelens":
                assert is_public("babelens", node.attr), (block.place, node.attr)


def is_public(module: str, name: str) -> bool:
    """Whether a module has this name, and lists it if it lists what it offers."""
    home = import_module(module)
    return hasattr(home, name) and not name.startswith("_") and name in getattr(home, "__all__", [name])


def test_recipes_can_be_read(tmp_path):
    for block in blocks_in("yaml"):
        if "method:" in block.text:
            (tmp_path / "recipe.yaml").write_text(block.text, encoding="utf-8")
            load_recipe(tmp_path / "recipe.yaml")
