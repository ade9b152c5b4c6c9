"""What README.md and docs/ hold: their fenced blocks, commands and links."""

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import write_shapes

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# After the prompt of a shell, or after what starts Python in several processes.
_COMMAND = re.compile(r"^(?:babelens|.* -m babelens) (.*)$")

# With the title of a block that is a file: ```yaml title="recipe.yaml".
TITLED_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, what stands in it, and where it begins."""

    language: str
    text: str
    place: str


def blocks(document: Path) -> list[Block]:
    """The fenced blocks of a document."""
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
    """The fenced blocks of all documents in a language."""
    return [block for document in DOCUMENTS for block in blocks(document) if block.language == language]


def commands(text: str) -> list[list[str]]:
    """The arguments of each `babelens` command in a block of a shell."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(match[1], comments=True) for line in lines if (match := _COMMAND.match(line.strip()))]


def known_commands() -> dict[str, Any]:
    """The commands of `babelens` by name, as the program that pyproject.toml names has them."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group: Any = get_command(import_module(project["scripts"]["babelens"].partition(":")[0]).app)
    context = group.context_class(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def mistakes(arguments: list[str], known: dict[str, Any], *, is_whole: bool = True) -> list[str]:
    """What is wrong with a command: its name, an option, a missing or surplus argument.

    Args:
        arguments: the words after `babelens`.
        known: the commands.
        is_whole: whether what is needed must be there, and not just what is there be known.
    """
    name, *words = arguments
    if name.startswith("-"):  # of the program itself
        return [] if name in ("--help", "--version") else [f"no option {name}"]
    if name not in known:
        return [f"no command {name}"]
    command = known[name]
    while hasattr(command, "commands"):  # a group
        job, *words = words or ["--help"]
        if job == "--help":
            return []
        if job not in command.commands:
            return [f"{name} has no command {job}"]
        command, name = command.commands[job], f"{name} {job}"
    parameters = command.params
    options = {opt: each for each in parameters for opt in (*each.opts, *each.secondary_opts) if opt.startswith("-")}
    needed = [each for each in parameters if each.param_type_name == "argument"]
    given, positional, found = set(), [], []
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            positional.append(word)
            continue
        option, has_value, _ = word.partition("=")
        given.add(option)
        if option == "--help":
            return found
        if option not in options:
            found.append(f"{name} has no option {option}")
        elif not options[option].is_flag and not has_value:
            if is_whole and not words:
                found.append(f"{option} has no value")
            words = words[1:]
    if is_whole:
        found += [
            f"{name} needs {'/'.join(each.opts)}"
            for each in parameters
            if each.param_type_name == "option" and each.required and not given & set(each.opts)
        ]
        least = sum(each.required for each in needed)
        most = len(needed) if all(each.nargs == 1 for each in needed) else float("inf")
        if not least <= len(positional) <= most:
            found.append(f"{name} takes {least} to {most} arguments, not {positional}")
    return found


def pages(folder: str) -> dict[str, str]:
    """The pages of a folder, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((CHECKOUT / "docs" / folder).glob("*.md"))}


def write_example_data(folder: Path) -> None:
    """What the examples read: `photos`, `pairs.tsv` and a CLIP."""
    photos = folder / "photos"
    photos.mkdir()
    write_shapes(photos)
    (photos / "pairs.tsv").rename(folder / "pairs.tsv")
    saved(tiny_clip(), folder / "clip")
