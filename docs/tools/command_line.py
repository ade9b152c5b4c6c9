"""Hooks of mkdocs: the page of the command line is written from its help when the site is built."""

import inspect
import re
from typing import Any

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

COMMAND_LINE = "api/command-line.md"
PLACEHOLDER = "<!-- the commands, written by docs/tools/command_line.py -->"


def command_line_reference(app: typer.Typer, name: str = "babelens") -> str:
    """The help of a command line as Markdown: a section for each command, with its arguments and options."""
    command = get_command(app)
    written = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name=name), name=name)
    without_title = re.sub(r"\A# .*\n+", "", inspect.cleandoc(written))
    # The list of commands has their descriptions cut short; the page's table of contents names them.
    return re.sub(r"^\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", without_title, flags=re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Writes the commands into their page."""
    if page.file.src_uri != COMMAND_LINE:
        return markdown
    from babelens.cli.main import app

    return markdown.replace(PLACEHOLDER, command_line_reference(app))
