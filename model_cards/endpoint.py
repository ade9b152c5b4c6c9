"""The files that an Inference Endpoint needs beside a model: `handler.py` and `requirements.txt`.

https://huggingface.co/docs/inference-endpoints/guides/custom_handler
"""

import ast
import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

_HANDLER = Path(__file__).with_name("endpoint_handler.py")


def write_endpoint(folder: str | Path) -> None:
    """Puts `handler.py`, and the `requirements.txt` of all Python files of the folder, into a model's folder."""
    shutil.copyfile(_HANDLER, Path(folder) / "handler.py")
    lines = "".join(f"{requirement}\n" for requirement in requirements(folder))
    (Path(folder) / "requirements.txt").write_text(lines, encoding="utf-8")


def requirements(folder: str | Path) -> list[str]:
    """What the folder's Python files import, as pip names with the versions that babelens itself asks for."""
    imported: set[str] = set()
    for path in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    distributions = importlib.metadata.packages_distributions()
    needed = {name for module in imported - sys.stdlib_module_names for name in distributions.get(module, [module])}
    asked_for = {_normalized(line): line for line in importlib.metadata.requires("babelens") or [] if ";" not in line}
    return sorted(asked_for.get(_normalized(name), name) for name in needed)


def _normalized(requirement: str) -> str:
    """The name in a requirement, as PEP 503 compares names."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
