"""Nobody has the name `babelens` in the package index yet: whoever registers it would run code on every machine where
a page says to install it from there."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ENDINGS = (".py", ".md", ".jinja", ".toml", ".yml", ".yaml", ".txt", ".html", ".js", ".pyi", "Makefile", "Dockerfile")
_INSTALLS = re.compile(r"pip3? install (?:[^&|;]*['\" ])?babelens\b(?![/.])|pypi\.org/project/babelens")
_EXTRA = re.compile(r"\bbabelens\[")  # which pyproject.toml alone names
_REQUIRES = re.compile(r"babelens\b")


def _wrong(file):
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        is_extra = _EXTRA.search(line) and file.name != "pyproject.toml"
        is_required = file.name.endswith("requirements.txt") and _REQUIRES.match(line)
        if _INSTALLS.search(line) or is_extra or is_required:
            yield f"{file.relative_to(ROOT)}: {line.strip()}"


def test_nothing_is_installed_from_the_index_by_our_name():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name.endswith(_ENDINGS)]
    files = [file for file in files if file.is_file() and file != Path(__file__)]
    assert len(files) > 300
    assert [line for file in files for line in _wrong(file)] == []
