import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
MAY_IMPORT = {
    "utils": set(),
    "configuration": {"utils"},
    "modeling": {"configuration", "utils"},
    "processing": {"configuration", "utils"},
    "data": {"configuration", "processing", "utils"},
    "model_cards": {"utils"},
    "inference": {"configuration", "data", "modeling", "processing", "utils"},
    "search": {"configuration", "data", "inference", "processing", "utils"},
    "metrics": set(),
    "evaluation": {"configuration", "data", "inference", "metrics", "modeling", "processing", "utils"},
    "trainers": {"configuration", "data", "evaluation", "inference", "modeling", "processing", "utils"},
    "recipes": set(),
}


def imports(path: Path) -> list[tuple[str, int]]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    absolute = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    absolute |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    assert not {name for name in absolute if name.partition(".")[0] in {"babelens", *MAY_IMPORT}}, path
    return [(node.module or "", node.level) for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


def test_folders_import_what_they_may():
    for folder, allowed in MAY_IMPORT.items():
        for path in (CHECKOUT / folder).rglob("*.py"):
            depth = len(path.relative_to(CHECKOUT / folder).parts)  # dots that stay inside the folder
            outside = {module.partition(".")[0] for module, level in imports(path) if level > depth}
            assert outside <= allowed, path


def modules_of(path: Path) -> set[str]:
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            target = [*parts[: -node.level], *(node.module.split(".") if node.module else ())]
            for name in [[*target, alias.name] for alias in node.names] + [target, [*target, "__init__"]]:
                if CHECKOUT.joinpath(*name).with_suffix(".py").is_file():
                    found.add("/".join(name))
                    break
    return found


def test_there_is_no_circle_of_imports():
    """Imports inside functions count: a module can be read before those that import it."""
    files = [path for folder in MAY_IMPORT for path in (CHECKOUT / folder).rglob("*.py")]
    package = CHECKOUT / "babelens"
    files += package.glob("*.py")
    files += [path for name in ("training", "serving", "cli") for path in (package / name).rglob("*.py")]
    graph = {"/".join(path.relative_to(CHECKOUT).with_suffix("").parts): modules_of(path) for path in files}
    assert "modeling/losses/contrastive" in graph["modeling/modeling_etcl"]
    assert {"babelens/training/schema", "babelens/trainers/checkpoints"} <= graph["babelens/training/run"]
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_folder_has_its_place(folders):
    assert folders == sorted(MAY_IMPORT)


def test_nothing_imports_the_command_line():
    package = CHECKOUT / "babelens"
    rooms = [path for name in ("training", "serving") for path in (package / name).rglob("*.py")]
    for path in [*package.glob("*.py"), *rooms]:
        if path.name != "__main__.py":
            assert not {module for module, _ in imports(path) if module.partition(".")[0] == "cli"}, path
