"""Recipe files as they are written: YAML 1.2, `extends`, and single keys that are set beside the file.

PyYAML reads YAML 1.1, where `no` is false and `1e-3` a text: Norwegian would not be a language, and many a learning
rate no number. Here only `true` and `false` are booleans, as in the core schema of YAML 1.2
(https://yaml.org/spec/1.2.2/#103-core-schema); of 1.1 the merge key `<<` stays.
"""

import dataclasses
import math
import re
import types
from collections.abc import Collection
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from ..configuration.errors import CorpusError, RecipeError, did_you_mean, nearest_first, wrong_encoding
from ..configuration.presets import merged

RECIPES = Path(str(files("babelens.recipes")))


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema; a key that stands twice in a mapping is refused."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for key in dict.fromkeys(written) if written.count(key) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} stands there twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_scalar(node)
        if node.tag.endswith("int"):
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"(?:{_pattern})\\Z"), _first)
for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def parse(text: str) -> Any:
    """The value that a text in YAML 1.2 describes, such as that of a key.

    Raises:
        RecipeError: for a text that is not YAML.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"not YAML: {error}") from error
    except RecursionError as error:
        raise RecipeError("not YAML that can be read: it is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise RecipeError(f"not YAML that can be read: {error}") from error


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe.

    Args:
        name: its path, or its name among the recipes of the package, such as `emoji/mural`.

    Raises:
        RecipeError: when there is no such file and no such recipe.
    """
    if Path(name).is_file():
        return Path(name)
    shipped = RECIPES / f"{str(name).removeprefix('recipes/').removesuffix('.yaml')}.yaml"
    if shipped.is_file():
        return shipped
    known = sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.rglob("*.yaml"))
    listed = ", ".join(nearest_first(name, known))
    raise RecipeError(f"there is no recipe {str(name)!r}{did_you_mean(name, known)}; the package has {listed}")


def read_recipe(path: Path) -> dict[str, Any]:
    """The content of a recipe's file, on top of that of the recipe beside it that `extends` names; `null` takes the
    data of one of its tasks away.

    Raises:
        RecipeError: for a file that is not a recipe.
    """
    return _read_extended(path, ())


def _read_extended(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Reads a recipe as `read_recipe` does.

    Args:
        path: the recipe's file.
        above: the files that extend this one, directly or not.
    """
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: {wrong_encoding(error)}") from error
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: the recipe must be a mapping, not {abbreviated(content)}")
    if "extends" not in content:
        return content
    name = content.pop("extends")
    if not isinstance(name, str) or not name:
        raise RecipeError(f"{path}: extends must be the name of a recipe, not {abbreviated(name)}")
    above = (*above, path.resolve())
    try:
        start = find_recipe(path.parent / f"{name}.yaml")
    except RecipeError as error:
        raise RecipeError(f"{path}: extends: {error}") from error
    if start.resolve() in above:
        raise RecipeError(f"{path}: extends: {name!r} comes back to {start.name}, which extends it")
    below = _read_extended(start, above)
    joined, given = merged(below, content), content.get("train")
    if isinstance(given, dict):
        away = {task for task, source in given.items() if source is None and task in (below.get("train") or {})}
        joined["train"] = {task: source for task, source in joined["train"].items() if task not in away}
    return joined


def with_key(settings: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """A copy of nested settings with another value at a dotted key, such as `training.max_steps`.

    In a list of mappings with names, a part of the key is the name of one: `stages.layers.training.max_steps`.

    Raises:
        RecipeError: when a part of the key names a value that is not a mapping, or nothing in such a list.
    """
    return _with_keys(settings, dotted.split("."), value, dotted)


def _with_keys(settings: dict[str, Any], keys: list[str], value: Any, dotted: str) -> dict[str, Any]:
    key, *below = keys
    if not key:
        raise RecipeError(f"{dotted!r} is no key of a recipe; keys look like training.max_steps")
    if below:
        section = {} if settings.get(key) is None else settings[key]
        place = dotted.removesuffix("." + ".".join(below))
        if isinstance(section, dict):
            value = _with_keys(section, below, value, dotted)
        elif names := _names(section):
            name, *rest = below
            if name not in names or not rest:
                example = f"{place}.{names[0]}.KEY"
                raise RecipeError(
                    f"{dotted}: the keys of {place} look like {example}; known names: {', '.join(names)}"
                )
            value = [_with_keys(item, rest, value, dotted) if item["name"] == name else item for item in section]
        else:
            raise RecipeError(f"{dotted}: {place} is {abbreviated(section)}, which has no keys")
    return settings | {key: value}


def _names(section: Any) -> list[str]:
    """The names of a list of mappings that have one each, such as a recipe's stages; of anything else, none."""
    if not isinstance(section, list) or not all(isinstance(item, dict) for item in section):
        return []
    names = [item.get("name") for item in section]
    return names if all(isinstance(name, str) for name in names) else []


def in_one_line(error: BaseException) -> str:
    """The message of another library's error, whose lines would stand apart from the recipe's file and key."""
    return " ".join(str(error).split())


def abbreviated(value: Any) -> str:
    """A value for an error message, cut after 77 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- Building recipes as dataclasses: every key is a field, and every value has the type of its field ----

# Words that stand for true and false where nothing else can be meant. YAML 1.2, which recipes are written in, reads
# them as texts, so that `no` may be Norwegian.
_SWITCHES = {"on": True, "yes": True, "off": False, "no": False}

_NAMES = {
    str: "a text",
    Path: "a text",
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
    except (CorpusError, RecipeError) as error:
        raise RecipeError(f"{where}: {error}" if where else str(error)) from error


def check_known(key: object, known: Collection[str], place: str = "") -> None:
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
        strict(dataclasses.make_dataclass("Value", [("value", _widened(kind))]))(value)
    except StrictDataclassError:
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
