"""Building recipes as dataclasses: every key is a field, and every value has the type of its field."""

import dataclasses
import math
import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from huggingface_hub.dataclasses import type_validator

from ..configuration.errors import RecipeError, did_you_mean, nearest_first
from .recipe_file import abbreviated

# Words that stand for true and false where nothing else can be meant. YAML 1.2, which recipes are written in, reads
# them as texts, so that `no` may be Norwegian.
_SWITCHES = {"on": True, "yes": True, "off": False, "no": False}

_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
    type(None): "nothing",
}


def build(cls: type, content: Any, where: str = "") -> Any:
    """A dataclass from a mapping, the dataclasses in its fields built in turn.

    Args:
        cls: the dataclass.
        content: the mapping.
        where: the key of the mapping, such as `train.image_text`; empty for a recipe itself.

    Raises:
        RecipeError: for an unknown or missing key, and a value of another type.
    """
    place = f"{where}." if where else ""
    if not isinstance(content, dict):
        raise RecipeError(f"{where or 'the recipe'} must be a mapping, not {abbreviated(content)}")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    for key in content:
        check_known(key, fields, place)
    for name, f in fields.items():
        if name not in content and f.default is f.default_factory is dataclasses.MISSING:
            raise RecipeError(f"{place}{name} is missing")
    values = {key: value_of(fields[key].type, value, f"{place}{key}") for key, value in content.items()}
    try:
        return cls(**values)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}" if where else str(error)) from error


def check_known(key: object, known: Any, place: str = "") -> None:
    """Raises a `RecipeError`, with the nearest known key, for a key that is not among those known."""
    if key not in known:
        raise RecipeError(
            f"unknown key {place}{key}{did_you_mean(key, known)}; there are: {', '.join(nearest_first(key, known))}"
        )


def value_of(kind: Any, value: Any, where: str) -> Any:
    """A value as a field of a type has it: its dataclasses built, `on` and `off` as true and false.

    Raises:
        RecipeError: for a value of another type, and a number that is not finite.
    """
    value = as_meant(kind, value)
    part = _dataclass_in(kind)
    if part is not None and not (value is None and type(None) in get_args(kind)):
        if get_origin(kind) is list and isinstance(value, list):
            return [build(part, entry, f"{where}[{index}]") for index, entry in enumerate(value)]
        if get_origin(kind) is dict and isinstance(value, dict):
            for name in value:
                value_of(str, name, f"a name in {where}")
            return {name: build(part, entry, f"{where}.{name}") for name, entry in value.items()}
        if get_origin(kind) not in (list, dict):
            return build(part, value, where)
    if not _is_of(kind, value):
        raise RecipeError(f"{where} must be {_described(kind)}, not {abbreviated(value)}")
    check_finite(value, where)
    return value


def as_meant(kind: Any, value: Any) -> Any:
    """A value, or true or false for `on`, `yes`, `off` or `no` where the type has truth values and no texts."""
    kinds = get_args(kind) or (kind,)
    is_switch = bool in kinds and str not in kinds and isinstance(value, str)
    return _SWITCHES.get(value, value) if is_switch else value


def check_finite(value: Any, where: str) -> None:
    """Raises a `RecipeError` for a number in a value, at any depth, that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{where} must be a finite number, not {value}")
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        check_finite(entry, f"{where}.{name}" if isinstance(value, dict) else f"{where}[{name}]")


def _dataclass_in(kind: Any) -> type | None:
    """The dataclass that values of a type are made of: of `X`, `X | None`, `list[X]`, `dict[str, X]`."""
    if dataclasses.is_dataclass(kind):
        return kind if isinstance(kind, type) else None
    parts = [part for part in get_args(kind) if dataclasses.is_dataclass(part) and isinstance(part, type)]
    return parts[0] if parts else None


def _is_of(kind: Any, value: Any) -> bool:
    try:
        type_validator("value", value, _widened(kind))
    except TypeError:
        return False
    return True


def _widened(kind: Any) -> Any:
    """The type with whole numbers wherever it has numbers."""
    if kind is float:
        return int | float
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return Union[tuple(_widened(part) for part in parts)]  # noqa: UP007
    return origin[tuple(_widened(part) for part in parts)] if origin in (list, dict) else kind


def _described(kind: Any) -> str:
    """The description of a type for an error message, such as `a list of texts`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        words = [_described(part) for part in parts if part is not type(None) and not _is_enumeration(part)]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if origin is list:
        return f"a list of {_described(parts[0]).removeprefix('a ')}s".replace("textss", "texts")
    if origin is dict:
        plain = parts[1] is Any or _dataclass_in(parts[1]) is not None
        return "a mapping" if plain else f"a mapping of names to {_plural(parts[1])}"
    return _NAMES.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _plural(kind: Any) -> str:
    words = _described(kind)
    return (
        f"{words.removeprefix('a ')}s"
        if words.startswith("a ") and " of " not in words
        else f"values that are {words}"
    )


def _is_enumeration(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
