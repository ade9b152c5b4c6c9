"""What babelens relies on inside of other libraries is still there, and listed (`private_hooks.toml`)."""

import ast
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import babelens

CHECKOUT = Path(__file__).parents[2]
PINS = dict(re.findall(r"^([\w-]+)==(\S+)", (CHECKOUT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
LIST = Path(__file__).with_name("private_hooks.toml").read_text(encoding="utf-8")
LIBRARIES: dict[str, list[dict[str, Any]]] = tomllib.loads(LIST)
HOOKS = [pytest.param(library, hook, id=hook["name"]) for library, hooks in LIBRARIES.items() for hook in hooks]


def find(library: str, name: str) -> Any:
    """A module, or what it holds, by its name below a library."""
    found, parts = import_module(library), name.split(".")
    for depth, part in enumerate(parts, 1):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            if not isinstance(found, ModuleType):
                raise
            try:
                found = import_module(".".join([library, *parts[:depth]]))
            except ModuleNotFoundError:
                raise error from None
    return found


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function.__init__ if isinstance(function, type) else function).parameters)


def holds_in_order(text: str, pieces: list[str]) -> bool:
    return re.search(".*".join(map(re.escape, pieces)), text, re.DOTALL) is not None


@pytest.mark.parametrize(("library", "hook"), HOOKS)
def test_a_hook_is_as_it_was(library, hook):
    changed = (
        f"{library} {version(library)} (the list was made with {PINS[library]}) changed {hook['name']}. Look at "
        f"{', '.join(hook['files'])}. {hook['why']} What to do: {hook['instead']} Then change private_hooks.toml"
    )
    if "where" in hook and not find(library, hook["where"])():
        pytest.skip(f"this build of {library} has no {hook['name']}")
    if hook.get("exists", True):
        try:
            found = find(library, hook["name"])
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{changed}: it is not there any more ({error})")
        if "parameters" in hook:
            assert parameters(found) == hook["parameters"], f"{changed}: it takes other parameters"
    for name, pieces in hook.get("source", {}).items():
        try:
            source = inspect.getsource(find(library, name))
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{changed}: {name} is not there any more ({error})")
        assert holds_in_order(source, pieces), f"{changed}: {name} does not have {' … '.join(pieces)} any more"


@pytest.mark.parametrize(("library", "hook"), HOOKS)
def test_the_files_that_are_named_rely_on_it(library, hook):
    mention = hook.get("mention", hook["name"].rpartition(".")[2])
    for file in hook["files"]:
        assert mention in (CHECKOUT / file).read_text(encoding="utf-8"), f"{file} does not mention {mention}"


# ---- Nothing is left out ----

# Methods that the guides of their libraries tell everybody to define: transformers' to pipelines
# (https://huggingface.co/docs/transformers/add_new_pipeline), and evaluate's to metrics
# (https://huggingface.co/docs/evaluate/creating_and_sharing).
DOCUMENTED = {"_forward", "_sanitize_parameters", "_compute", "_info"}
PYTHONS_OWN = {"_exit", "_replace", "_name_", "_value_", "_sort_order_"}  # of os, named tuples and enumerations


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The syntax of every module of babelens."""
    names = [found.name for found in pkgutil.walk_packages(babelens.__path__, "babelens.")]
    names.remove("babelens.__main__")  # which is the command line
    return {name: ast.parse(Path(str(import_module(name).__file__)).read_text(encoding="utf-8")) for name in names}


def defined(tree: ast.AST) -> Iterator[str]:
    """The names that a module, class or function gives to something, attributes of objects included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and ast.unparse(node).startswith("self.")
            and isinstance(node.ctx, ast.Store)
        ):
            yield node.attr


def overridden(name: str, tree: ast.Module) -> Iterator[str]:
    """What classes of a module define that they inherit from other libraries."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = getattr(import_module(name), node.name).__mro__
            foreign = [base for base in bases if not base.__module__.startswith("babelens")]
            yield from (own for own in defined(node) if any(own in vars(base) for base in foreign))


def test_every_private_hook_is_in_the_list(modules):
    listed = set(re.findall(r"\b_\w+", LIST)) | DOCUMENTED | PYTHONS_OWN
    own = {name for tree in modules.values() for name in defined(tree)}
    for module, tree in modules.items():
        nodes = list(ast.walk(tree))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)} - own
        used |= {
            alias.name for node in nodes if isinstance(node, ast.ImportFrom) and not node.level for alias in node.names
        }
        used |= set(overridden(module, tree))
        missing = sorted(name for name in used if is_private(name) and name not in listed)
        assert not missing, f"{module} relies on {missing}: enter them in tests/packaging/private_hooks.toml"
