import ast
import pkgutil
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import babelens

LIBRARIES: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("private_hooks.toml").read_text(encoding="utf-8")
)
HOOKS = [(library, hook) for library, hooks in LIBRARIES.items() for hook in hooks]
# Methods that the guides of their libraries tell everybody to define: transformers' for pipelines
# (https://huggingface.co/docs/transformers/add_new_pipeline), and evaluate's for metrics
# (https://huggingface.co/docs/evaluate/creating_and_sharing).
DOCUMENTED = {"_forward", "_sanitize_parameters", "_compute", "_info"}
PYTHONS_OWN = {"_exit", "_replace", "_name_", "_value_", "_sort_order_"}  # of os, named tuples and enumerations


def find(library: str, name: str) -> Any:
    found, path = import_module(library), library
    for part in filter(None, name.split(".")):
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else import_module(path)
    return found


def test_every_hook_is_there():
    for library, hook in HOOKS:
        if "on" in hook:
            assert [name for name in hook["names"] if not hasattr(find(library, hook["on"]), name)] == [], hook["why"]


def test_there_are_few():
    assert len(HOOKS) <= 20 and sum(len(hook["names"]) for _, hook in HOOKS) <= 40
    assert all(hook["why"] for _, hook in HOOKS)


def defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def overridden(name: str, tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = getattr(import_module(name), node.name).__mro__
            foreign = [base for base in bases if not base.__module__.startswith("babelens")]
            yield from (own for own in defined(node) if any(own in vars(base) for base in foreign))


def test_every_private_hook_is_in_the_list():
    names = [found.name for found in pkgutil.walk_packages(babelens.__path__, "babelens.")]
    names.remove("babelens.__main__")  # which is the command line
    modules = {name: ast.parse(Path(str(import_module(name).__file__)).read_text(encoding="utf-8")) for name in names}
    listed = {name for _, hook in HOOKS for name in hook["names"]} | DOCUMENTED | PYTHONS_OWN
    own = {name for tree in modules.values() for name in defined(tree)}
    for module, tree in modules.items():
        nodes = list(ast.walk(tree))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)} - own
        used |= {
            alias.name for node in nodes if isinstance(node, ast.ImportFrom) and not node.level for alias in node.names
        }
        used |= set(overridden(module, tree))
        private = {name for name in used if name.startswith("_") and not name.startswith("__")}
        assert private <= listed, f"{module} relies on {private - listed}: enter them in private_hooks.toml"
