"""SECURITY.md promises what tests show: each test that it names is there."""

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_shows_a_promise_is_there(file, test):
    nodes = ast.walk(ast.parse((CHECKOUT / file).read_text(encoding="utf-8")))
    assert test in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
