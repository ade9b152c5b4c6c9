"""The hooks for pre-commit have the versions that `make check` uses."""

from pathlib import Path

import yaml

CHECKOUT = Path(__file__).parents[2]


def test_commits_are_checked_with_the_versions_of_make_check():
    hooks = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    pins = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for repository in hooks:
        tool = repository["repo"].rpartition("/")[2].removesuffix("-pre-commit")
        assert f"{tool}=={repository['rev'].removeprefix('v')}" in pins
