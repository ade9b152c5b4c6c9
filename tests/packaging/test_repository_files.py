"""What files of the repository say of others holds: SECURITY.md of tests, the hooks for pre-commit of versions."""

import ast
import re
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).parents[2]
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8"))


def test_what_shows_a_promise_is_there():
    assert TESTS
    for file, test in TESTS:
        nodes = ast.walk(ast.parse((CHECKOUT / file).read_text(encoding="utf-8")))
        assert test in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}, (file, test)


def test_commits_are_checked_with_the_versions_of_make_check():
    hooks = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    pins = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for repository in hooks:
        tool = repository["repo"].rpartition("/")[2].removesuffix("-pre-commit")
        assert f"{tool}=={repository['rev'].removeprefix('v')}" in pins
