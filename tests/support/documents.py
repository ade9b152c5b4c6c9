"""The fenced blocks, commands and links of README.md and docs/."""

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from babelens.utils.errors import BabelensError
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import write_shapes

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# After the prompt of a shell, or after a launcher of several processes.
_COMMAND = re.compile(r"^(?:babelens|.* -m babelens) (.*)$")

# With the title of a block that is a file: ```yaml title="recipe.yaml".
TITLED_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str
    place: str


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    return [
        Block(
            match[2].split(" ")[0],
            match[3],
            f"{document.relative_to(CHECKOUT)}:{text.count(chr(10), 0, match.start()) + 1}",
        )
        for match in _BLOCK.finditer(text)
    ]


def blocks_in(language: str) -> list[Block]:
    return [block for document in DOCUMENTS for block in blocks(document) if block.language == language]


def commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(match[1], comments=True) for line in lines if (match := _COMMAND.match(line.strip()))]


def known_commands() -> dict[str, Any]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group: Any = get_command(import_module(project["scripts"]["babelens"].partition(":")[0]).app)
    context = group.context_class(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def mistakes(arguments: list[str], known: dict[str, Any], *, is_whole: bool = True) -> list[str]:
    """The command line's errors for the words after `babelens`; of incomplete commands, for options only."""
    name, *words = arguments
    if name in ("--help", "--version"):
        return []
    if name not in known:
        return [f"no command {name}"]
    command = known[name]
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


def pages(folder: str) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((CHECKOUT / "docs" / folder).glob("*.md"))}


def write_example_data(folder: Path) -> None:
    photos = folder / "photos"
    photos.mkdir()
    write_shapes(photos)
    (photos / "pairs.tsv").rename(folder / "pairs.tsv")
    saved(tiny_clip(), folder / "clip")
