"""Errors of the package name arguments of Python, such as `split='train'`; those of a command name its options."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from ..configuration.errors import BabelensError

_QUOTES = "'\""
_ARGUMENT = re.compile(r"(?<![\w.-])(?P<name>[a-z_]+)=(?P<value>True\b|'[^']*'|\"[^\"]*\"|\d+\b)")


class CommandGroup(TyperGroup):
    """The command line: in errors, `split='train'` becomes `--split train` where the command has such an option."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was given."""
        try:
            return super().invoke(ctx)
        except BabelensError as error:
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (self._with_options(ctx, error.args[0]),)
            raise
        except typer.BadParameter as error:
            error.message = self._with_options(
                ctx, error.message
            )  # a missing option is an error of a class of its own
            raise

    def _with_options(self, ctx: Any, sentence: str) -> str:
        command = self.commands.get(ctx.invoked_subcommand or "")
        return with_options(sentence, dict(_options(command))) if command else sentence


def with_options(sentence: str, options: dict[str, str]) -> str:
    """Writes arguments with a value as options.

    Args:
        sentence: the message of an error.
        options: the options by the names of their arguments, such as `--skip-bad-images` by `skip_bad_images`.
    """

    def option(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if name not in options:
            return match[0]
        return options[name] if value == "True" else f"{options[name]} {shlex.quote(value.strip(_QUOTES))}"

    return _ARGUMENT.sub(option, sentence)


def _options(command: Any) -> Iterator[tuple[str, str]]:
    """The options of a command, or of all commands of a group, by the names of their arguments."""
    for each in getattr(command, "commands", {"": command}).values():
        for parameter in each.params:
            for name in parameter.opts if parameter.param_type_name == "option" else []:
                if name.startswith("--"):
                    yield name.removeprefix("--").replace("-", "_"), name
