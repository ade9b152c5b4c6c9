"""Imports between the top-level folders point one way, as CONTRIBUTING.md says."""

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
MAY_IMPORT = {
    "configuration": set(),
    "modeling": {"configuration"},
    "processing": {"configuration"},
    "data": {"configuration", "processing"},
    "model_cards": {"configuration", "data"},
    "inference": {"configuration", "data", "modeling", "processing"},
    "evaluation": {"configuration", "data", "inference", "modeling", "processing"},
    "trainers": {"configuration", "data", "evaluation", "inference", "modeling", "processing"},
    "recipes": set(),
}


def imports(path: Path) -> list[tuple[str, int]]:
    """The imports of babelens' own modules in a file: what stands after the dots, and how many dots there are."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    absolute = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    absolute |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    assert not {name for name in absolute if name.partition(".")[0] in {"babelens", *MAY_IMPORT}}, path
    return [(node.module or "", node.level) for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_what_it_may(folder):
    for path in (CHECKOUT / folder).rglob("*.py"):
        depth = len(path.relative_to(CHECKOUT / folder).parts)  # dots that stay inside of the folder
        outside = {module.partition(".")[0] for module, level in imports(path) if level > depth}
        assert outside <= MAY_IMPORT[folder], path


def test_every_folder_has_its_place(folders):
    assert folders == sorted(MAY_IMPORT)


def test_nothing_imports_the_command_line():
    package = CHECKOUT / "babelens"
    for path in [*package.glob("*.py"), *(package / "workflows").rglob("*.py")]:
        if path.name != "__main__.py":
            assert not {module for module, _ in imports(path) if module.partition(".")[0] == "cli"}, path
