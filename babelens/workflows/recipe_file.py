"""Recipe files as they are written: YAML 1.2, `extends`, and single keys that are set beside the file.

PyYAML reads YAML 1.1, where `no` is false and `1e-3` a text: Norwegian would not be a language, and many a learning
rate no number. Here only `true` and `false` are booleans, as in the core schema of YAML 1.2
(https://yaml.org/spec/1.2.2/#103-core-schema); of 1.1 the merge key `<<` stays.
"""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ..configuration.errors import RecipeError, did_you_mean, nearest_first, wrong_encoding
from ..configuration.merging import merged

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
