"""Checks the trainer's arguments in recipes: each must be known and have the type that its class states."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_type_hints

from huggingface_hub.errors import StrictDataclassError
from transformers import TrainingArguments

from ..utils.errors import ModelKindError, RecipeError, did_you_mean, nearest_first
from .recipe_file import check_known, validate

# Arguments that the run sets.
_NOT_GIVEN = ("output_dir", "resume_from_checkpoint", "do_train", "do_predict", "local_rank")


def training_arguments(
    arguments_class: type[TrainingArguments], given: Mapping[str, Any], where: str, **own: Any
) -> TrainingArguments:
    """Builds the trainer's arguments.

    Args:
        arguments_class: the trainer's class of arguments.
        given: the recipe's arguments.
        where: the recipe's key of the arguments, such as `training`.
        own: arguments that the run sets, such as `output_dir`.

    Raises:
        RecipeError: if the class does not have or refuses arguments; it lists all that are unknown or of a wrong type.
    """
    values = checked_arguments(arguments_class, given, where)
    try:
        return arguments_class(**own, **values)
    except (TypeError, ValueError, ImportError, NotImplementedError) as error:
        raise RecipeError(f"{where}: {' '.join(str(error).split())}") from error


def checked_arguments(
    arguments_class: type[TrainingArguments], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The recipe's arguments, converted to the types of the class; raises as `training_arguments` does."""
    hints = get_type_hints(arguments_class)  # `HfArgumentParser` may have changed `Field.type`
    names = (field.name for field in dataclasses.fields(arguments_class) if field.init)
    types = {name: hints[name] for name in names if name not in _NOT_GIVEN}
    values, wrong = {}, []
    for name, value in given.items():
        try:
            check_known(name, types, f"{where}.")
            values[name] = validate(types[name], value, f"{where}.{name}")
        except RecipeError as error:
            wrong.append(str(error))
    if wrong:
        raise RecipeError("; ".join(wrong))
    return values


def check_names(names: Iterable[str] | None, known: Iterable[str], key: str) -> None:
    """Raises a `RecipeError` for an unknown name, such as a task's."""
    for name in names or ():
        if name not in known:
            listed = ", ".join(nearest_first(name, known))
            raise RecipeError(f"{key}: there is no {name!r}{did_you_mean(name, known)}; there are: {listed}")


@contextmanager
def overrides_checked(key: str = "model.overrides") -> Iterator[None]:
    """Turns errors of a configuration into errors of the recipe's key."""
    try:
        yield
    except (TypeError, ValueError, StrictDataclassError) as error:
        if isinstance(error, RecipeError | ModelKindError):  # ModelKindError is about the model itself
            raise
        raise RecipeError(f"{key}: {' '.join(str(error).split())}") from error
