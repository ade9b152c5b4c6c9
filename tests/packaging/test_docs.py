"""Commands, options, recipes and imported names in README.md and docs/ exist. `mkdocs --strict` checks links."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import yaml
from typer.main import get_command

from babelens.cli.main import app
from babelens.training.recipe_file import find_recipe
from babelens.training.schema import load_recipe
from babelens.utils.errors import BabelensError
from tests.support.documents import BLOCK, CHECKOUT, commands

KNOWN = get_command(app).commands
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])


def blocks_in(language: str) -> Iterator[tuple[str, str]]:
    """Text and place."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match[2] == language:
                line = text.count("\n", 0, match.start()) + 1
                yield match[4], f"{document.relative_to(CHECKOUT)}:{line}"


def mistakes(arguments: list[str], *, is_whole: bool = True) -> list[str]:
    """The command line's errors for the words after `babelens`; of incomplete commands, for options only."""
    name, *words = arguments
    if name in ("--help", "--version"):
        return []
    if name not in KNOWN:
        return [f"no command {name}"]
    command = KNOWN[name]
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    if "--help" in words or not (words or is_whole):
        return []
    if hasattr(command, "commands"):
        return [f"no command {name} {words}"]
    try:
        command.make_context(name, words)
    except BabelensError:  # a file of the reader's
        return []
    except Exception as error:
        return [f"{name}: {error!r}"] if is_whole or type(error).__name__ == "NoSuchOption" else []
    return []


def test_commands_in_blocks_exist_with_their_options_and_recipes():
    shown = {(place, *arguments) for text, place in blocks_in("bash") for arguments in commands(text)}
    assert len(shown) > 50
    assert {(place, *arguments) for place, *arguments in shown if mistakes(arguments)} == set()
    for _, *arguments in shown:
        named = arguments[1:2] if arguments[0] == "train" else []
        for name in named + [value for option, value in pairwise(arguments) if option == "--recipe"]:
            assert "/" not in name or name.endswith(".yaml") or find_recipe(name).is_file(), name


def test_commands_in_sentences_exist_with_their_options():
    for document in DOCUMENTS:
        for shown in re.findall(r"`babelens ([a-z-][^`]*)`", document.read_text(encoding="utf-8")):
            assert not mistakes(shlex.split(shown), is_whole=False), (document.name, shown)


def test_python_imports_what_is_public():
    for text, place in blocks_in("python"):
        for node in ast.walk(compile(text, place, "exec", ast.PyCF_ONLY_AST)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "babelens":
                for name in node.names:
                    assert is_public(node.module, name.name), (place, node.module, name.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "babelens":
                assert is_public("babelens", node.attr), (place, node.attr)


def is_public(module: str, name: str) -> bool:
    home = import_module(module)
    return hasattr(home, name) and not name.startswith("_") and name in getattr(home, "__all__", [name])


def test_recipes_can_be_read(tmp_path):
    for text, _ in blocks_in("yaml"):
        if "method:" in text:
            (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
            load_recipe(tmp_path / "recipe.yaml")


def test_messages_of_troubleshooting_exist():
    """Each literal part of a message in the page's tables is somewhere in the package's sources."""
    page = (CHECKOUT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
    package = [CHECKOUT / "babelens", *(link.resolve() for link in (CHECKOUT / "babelens").iterdir() if link.is_dir())]
    files = {file for folder in package for file in folder.rglob("*.py")}
    # Strings that continue on the next line are joined.
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(file.read_text(encoding="utf-8") for file in sorted(files)))
    messages = re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)
    assert len(messages) > 20
    for message in messages:
        for part in (each.strip(" :,;") for each in re.split("…|, ", message)):
            assert part in code, (message, part)


def test_files_and_tests_that_pages_name_exist():
    """Except readers' data in `data/`, and the method `toy`, which readers write."""
    named = re.compile(
        r"(?<![\w/.-])((?:benchmarks|docs|examples|metrics|tests|utils|recipes)/[\w./-]+\.\w+)(?:::(\w+))?"
    )
    found = {pair for document in DOCUMENTS for pair in named.findall(document.read_text(encoding="utf-8"))}
    assert len(found) > 60
    for file, test in found:
        assert (CHECKOUT / file).is_file() or "toy" in file, file
        assert not test or f"def {test}(" in (CHECKOUT / file).read_text(encoding="utf-8"), (file, test)


PACKAGES = ("data", "evaluation", "inference", "inference.onnx", "search", "serving")


def test_public_names_are_those_that_the_api_pages_list():
    """A removed name breaks programs, and a new one is a promise: either changes these pages, too."""
    pages = [path.read_text(encoding="utf-8") for path in (CHECKOUT / "docs/api").glob("*.md")]
    entries = [path for text in pages for path in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)]
    assert len(entries) == len(set(entries))
    assert [path for path in entries if not is_public(*path.rpartition(".")[::2])] == []
    packages = [import_module(name) for name in ("babelens", *(f"babelens.{each}" for each in PACKAGES))]
    public = {name for package in packages for name in package.__all__}
    assert public <= {path.rpartition(".")[2] for path in entries}


def test_every_command_is_shown():
    shown = {words[0] for text, place in blocks_in("bash") if "docs/api/" in place for words in commands(text)}
    assert shown == set(KNOWN)


def test_pages_are_plain_english():
    """The worst patterns of earlier pages: "X is no Y", "beside" for "compared with", "stands"."""
    worn = re.compile(
        r"\b(?:is|are) no (?!longer|better|more|data|recipe)\w+|\bbeside the\b|\bin the place of\b"
        r"|\bstands? (?:in|for)\b"
    )
    found = {
        (document.name, match[0])
        for document in DOCUMENTS
        if document.name not in ("CHANGELOG.md", "published-experiments.md", "SECURITY.md", "RESULTS.md")
        for match in worn.finditer(document.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_hooks_for_pre_commit_have_the_versions_of_make_check():
    hooks = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    pins = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for repository in hooks:
        tool = repository["repo"].rpartition("/")[2].removesuffix("-pre-commit")
        assert f"{tool}=={repository['rev'].removeprefix('v')}" in pins


_ENDINGS = (".py", ".md", ".jinja", ".toml", ".yml", ".yaml", ".txt", ".html", ".js", ".pyi", "Makefile", "Dockerfile")
_INSTALLS = re.compile(r"pip3? install (?:[^&|;]*['\" ])?babelens\b(?![/.])|pypi\.org/project/babelens")
_EXTRA = re.compile(r"\bbabelens\[")  # which pyproject.toml alone names
_REQUIRES = re.compile(r"babelens\b")


def _wrong(file):
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        is_extra = _EXTRA.search(line) and file.name != "pyproject.toml"
        is_required = file.name.endswith("requirements.txt") and _REQUIRES.match(line)
        if _INSTALLS.search(line) or is_extra or is_required:
            yield f"{file.relative_to(CHECKOUT)}: {line.strip()}"


def test_nothing_is_installed_from_the_index_by_our_name():
    """Nobody has the name `babelens` there yet: whoever registers it would run code on every machine that does."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    files = [CHECKOUT / name for name in listed.split("\0") if name.endswith(_ENDINGS)]
    files = [file for file in files if file.is_file() and file != Path(__file__)]
    assert len(files) > 300
    assert [line for file in files for line in _wrong(file)] == []
