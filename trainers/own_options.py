"""Which methods read which of the training arguments that babelens adds to those of transformers.

The training arguments of a method share fields with those of other methods. A class of arguments declares which
methods it belongs to, and which of its fields their trainers do not read; a value for such a field is refused.
"""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from transformers import TrainingArguments

from ..configuration.errors import TrainingSetupError


def own_options(arguments_class: type) -> dict[str, Any]:
    """Option -> default value of the training arguments that babelens adds to those of transformers."""
    inherited = {field.name for field in fields(TrainingArguments)}
    own = [field for field in fields(arguments_class) if field.name not in inherited]
    return {
        field.name: field.default if field.default_factory is MISSING else field.default_factory() for field in own
    }


def methods_that_read(option: str, root: type) -> list[str]:
    """The names of the methods that read an option.

    Args:
        option: name of an own option.
        root: the class from which the training arguments of all methods are derived.
    """
    return [
        method
        for kind in _with_subclasses(root)
        if option in own_options(kind) and option not in kind.unread
        for method in kind.__dict__.get("methods", ())
    ]


def check_read(arguments: Any, root: type) -> None:
    """Refuses options that the method of the arguments does not read.

    Args:
        arguments: training arguments.
        root: the class from which the training arguments of all methods are derived.

    Raises:
        TrainingSetupError: for such an option that has another value than its default. The message names the methods
            that read it.
    """
    defaults = own_options(type(arguments))
    for option, reason in arguments.unread.items():
        if getattr(arguments, option) != defaults[option]:
            raise TrainingSetupError(
                f"{option} is not an option of {' or '.join(arguments.methods) or type(arguments).__name__}: "
                f"{reason}. It is read by {', '.join(methods_that_read(option, root))}"
            )


def _with_subclasses(kind: type) -> Iterator[Any]:
    yield kind
    subclasses: list[type] = kind.__subclasses__()
    for subclass in subclasses:
        yield from _with_subclasses(subclass)
