"""Checking the trainer's arguments in recipes and commands: each is known, of its type and within its range.

transformers' `TrainingArguments` take what they are given: a learning rate that is a text, batches of 0 examples, a
seed below zero are errors in the middle of a run, or of no effect at all. Here each is refused beforehand, by name.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, get_args, get_type_hints

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import TrainingArguments, get_scheduler
from transformers.integrations import get_available_reporting_integrations
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from ..configuration.errors import ModelKindError, RecipeError, did_you_mean, nearest_first
from ..processing.image_augmentation import ImageAugmentation
from ..processing.text_augmentation import TextAugmentation
from ..trainers.arguments import ADAMAX, LAMB, ContrastiveTrainingArguments
from .recipe import check_languages
from .recipe_file import as_meant, check_known, in_one_line, value_of

# transformers' own; what babelens adds is checked by its classes.
_POSITIVE = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "num_train_epochs",
    "gradient_accumulation_steps",
    "save_steps",
    "eval_steps",
    "eval_accumulation_steps",
    "torch_empty_cache_steps",
    "dataloader_prefetch_factor",
)
_NOT_NEGATIVE = (
    "learning_rate",
    "weight_decay",
    "warmup_steps",
    "adam_epsilon",
    "max_grad_norm",
    "logging_steps",
    "eval_delay",
    "save_total_limit",
    "seed",
    "data_seed",
    "dataloader_num_workers",
)
_BELOW_ONE = ("adam_beta1", "adam_beta2", "label_smoothing_factor")
_SEEDS = ("seed", "data_seed")
# Arguments of the run itself.
_NOT_GIVEN = ("output_dir", "resume_from_checkpoint", "do_train", "do_predict", "local_rank")


def check_arguments(arguments_class: type[TrainingArguments], given: Mapping[str, Any], where: str) -> None:
    """Checks each argument by itself.

    Args:
        arguments_class: the trainer's class of arguments.
        given: some of its arguments.
        where: the recipe's key that they stand under, such as `training`.

    Raises:
        RecipeError: for an argument that the class does not have or cannot use.
    """
    types = _types_of(arguments_class)
    for name, value in _with_switches(arguments_class, given).items():
        key = f"{where}.{name}"
        check_known(name, types, f"{where}.")
        value_of(types[name], value, key)
        if value is not None:
            _check_range(name, value, key)
            _check_choice(arguments_class, types[name], name, value, key)
    for name in ("languages", "eval_languages"):
        _checked(check_languages, given.get(name), name, where=where)
    for pattern in given.get("learning_rate_mapping") or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise RecipeError(
                f"{where}.learning_rate_mapping: {pattern!r} is no regular expression: {error}"
            ) from error
    _check_augmentation(given, where)


def made_arguments(
    arguments_class: type[TrainingArguments], given: Mapping[str, Any], where: str, **own: Any
) -> TrainingArguments:
    """The trainer's arguments, checked one by one and together.

    Args:
        arguments_class: the trainer's class of arguments.
        given: the recipe's arguments.
        where: the recipe's key that they stand under.
        own: arguments of the run itself, such as `output_dir`.

    Raises:
        RecipeError: for arguments that cannot be had, or contradict each other.
    """
    check_arguments(arguments_class, given, where)
    try:
        arguments = arguments_class(**own, **_with_switches(arguments_class, given))
    except (TypeError, ValueError, ImportError, NotImplementedError) as error:
        raise RecipeError(f"{where}: {in_one_line(error)}") from error
    if arguments.dataloader_persistent_workers and not arguments.dataloader_num_workers:
        raise RecipeError(f"{where}.dataloader_persistent_workers: there are none; set dataloader_num_workers as well")
    _check_scheduler(arguments, where)
    return arguments


def _types_of(arguments_class: type[TrainingArguments]) -> dict[str, Any]:
    """The annotated types of a class's arguments, by name; `HfArgumentParser` may have changed `Field.type`."""
    hints = get_type_hints(arguments_class)
    names = (field.name for field in dataclasses.fields(arguments_class) if field.init)
    return {name: hints[name] for name in names if name not in _NOT_GIVEN}


def _with_switches(arguments_class: type[TrainingArguments], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the words `on`, `off`, `yes` and `no` as each argument means them: true or false, and for
    what has a name for nothing, that name."""
    meant = dict(given)
    types = _types_of(arguments_class)
    for name, value in given.items():
        if name.endswith("_strategy") and value == "off":
            meant[name] = "no"
        elif name == "report_to" and value in ("off", "no"):
            meant[name] = "none"
        elif name in types:
            meant[name] = as_meant(types[name], value)
    return meant


def _check_range(name: str, value: Any, key: str) -> None:
    wanted = None
    if name in _POSITIVE and not value > 0:
        wanted = "positive"
    elif name in _NOT_NEGATIVE and not value >= 0:
        wanted = "0 or more"
    elif name in _BELOW_ONE and not 0 <= value < 1:
        wanted = "at least 0 and below 1"
    elif name in _SEEDS and value >= 2**32:
        wanted = "below 2**32"
    elif name == "max_steps" and value < 1 and value != -1:
        wanted = "positive, or -1, with which num_train_epochs decides"
    if wanted:
        raise RecipeError(f"{key}={value} must be {wanted}")


def _check_choice(arguments_class: type, kind: Any, name: str, value: Any, key: str) -> None:
    """Of arguments that have a list of values to choose from, such as the names of optimisers."""
    choices = [choice.value for part in get_args(kind) if _is_enumeration(part) for choice in part]
    if name == "optim" and issubclass(arguments_class, ContrastiveTrainingArguments):
        choices += [LAMB, ADAMAX]
    if name == "report_to":
        choices = ["none", "all", *INTEGRATION_TO_CALLBACK]
        value = [value] if isinstance(value, str) else value
        for choice in value:
            if choice in INTEGRATION_TO_CALLBACK and choice not in get_available_reporting_integrations():
                raise RecipeError(f"{key}: {choice} is not installed here")
    if name == "debug" or not choices:
        return
    for choice in value if isinstance(value, list) else [value]:
        if choice not in choices:
            listed = ", ".join(nearest_first(choice, choices))
            raise RecipeError(f"{key}: there is no {choice!r}{did_you_mean(choice, choices)}; there are: {listed}")


def _is_enumeration(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _check_augmentation(given: Mapping[str, Any], where: str) -> None:
    """Checks the settings of image and text augmentation, which are mappings of their own, with lists for tuples."""
    for name, augmentation in (("image_augmentation", ImageAugmentation), ("text_augmentation", TextAugmentation)):
        settings = given.get(name)
        if settings is None:
            continue
        key = f"{where}.{name}"
        as_lists = {
            f.name: list[str] | None if f.name == "tasks" else list[float] if f.name == "scale" else float
            for f in dataclasses.fields(augmentation)
        }
        for setting, value in settings.items():
            check_known(setting, as_lists, f"{key}.")
            value_of(as_lists[setting], value, f"{key}.{setting}")
        if len(settings.get("scale", (1, 1))) != 2:
            raise RecipeError(f"{key}.scale: {settings['scale']} is no range; a range looks like [0.8, 1.2]")
        try:
            augmentation(**settings)
        except ValueError as error:
            raise RecipeError(f"{key}: {error}") from error


def _check_scheduler(arguments: TrainingArguments, where: str) -> None:
    """Makes the schedule for a weight of its own, to see whether its arguments fit: some schedules need arguments, and
    others take none."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    try:
        get_scheduler(
            arguments.lr_scheduler_type,
            optimizer,
            num_warmup_steps=1,
            num_training_steps=10,
            scheduler_specific_kwargs=dict(arguments.lr_scheduler_kwargs or {}),
        )
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}.lr_scheduler_kwargs: {arguments.lr_scheduler_type} {error}") from error


def _checked(check: Callable[[Any, str], object], value: Any, name: str, *, where: str) -> None:
    try:
        check(value, name)
    except RecipeError as error:
        raise RecipeError(f"{where}.{error}") from error


def check_names(names: Iterable[str] | None, known: Iterable[str], key: str) -> None:
    """Raises a `RecipeError` for a name that is none of those known, such as a task's."""
    for name in names or ():
        if name not in known:
            listed = ", ".join(nearest_first(name, known))
            raise RecipeError(f"{key}: there is no {name!r}{did_you_mean(name, known)}; there are: {listed}")


@contextmanager
def overrides_checked(key: str = "model.overrides") -> Iterator[None]:
    """What a configuration refuses, as an error of the recipe's key."""
    try:
        yield
    except (TypeError, ValueError, StrictDataclassError) as error:
        if isinstance(error, RecipeError | ModelKindError):  # the latter is about the model that is configured
            raise
        raise RecipeError(f"{key}: {in_one_line(error)}") from error
