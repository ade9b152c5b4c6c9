"""What benchmarks, examples and the tools of the documentation import from babelens is there.

These scripts are not run by the tests, and some need libraries that are not installed.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
SCRIPTS = sorted(
    file for folder in ("benchmarks", "docs/tools", "examples") for file in (CHECKOUT / folder).rglob("*.py")
)


def imported(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """(module, name) of each import of babelens; the name is None if the module itself is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def exists(module: str, name: str | None) -> bool:
    try:
        return hasattr(import_module(module), name) if name else bool(import_module(module))
    except ModuleNotFoundError:
        return False


def is_there(module: str, name: str | None) -> bool:
    return exists(module, name) or (name is not None and exists(f"{module}.{name}", None))


def test_what_scripts_import_is_there():
    named = {
        (script.name, module, name)
        for script in SCRIPTS
        for module, name in imported(ast.parse(script.read_text(encoding="utf-8")))
        if module.partition(".")[0] == "babelens"
    }
    assert {each for each in named if not is_there(*each[1:])} == set()
