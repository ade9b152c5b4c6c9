"""Recipe files: YAML 1.2, `extends`, `variants`, and the keys that `--set` replaces. PyYAML reads YAML 1.1, where `no`
is false and `1e-3` is text: Norwegian would not be a language, and many learning rates would not be numbers. Here only
`true` and `false` are booleans, as in the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema); the
merge key `<<` of 1.1 still works."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ..utils.errors import RecipeError, did_you_mean
from ..utils.files import wrong_encoding

RECIPES = Path(str(files("babelens.recipes")))


# ---- YAML ----


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema; refuses a key that appears twice in a mapping."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for key in dict.fromkeys(written) if written.count(key) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} appears twice", node.start_mark)
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
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # nested too deeply; a number of thousands of digits
        raise RecipeError(f"not YAML: {error}") from error


# ---- Files ----


def find_recipe(name: str | Path) -> Path:
    """Finds a recipe's file by its path, or by a name in the package, such as `emoji/mural` or `mural/base:large`."""
    return _located(name)[0]


def shipped_recipes() -> list[str]:
    """The names of the package's recipes, each followed by the names of its variants."""
    files = {str(path.relative_to(RECIPES).with_suffix("")): path for path in RECIPES.rglob("*.yaml")}
    return [each for name in sorted(files) for each in (name, *(f"{name}:{v}" for v in _variants(files[name])))]


def run_name(name: str | Path) -> str:
    """Returns the default name of a recipe's run: `mural-base-large` for `mural/base:large`, or the name of a file."""
    path, variant = _located(name)
    whole = path.relative_to(RECIPES) if path.is_relative_to(RECIPES) else Path(path.name)
    return "-".join([*whole.with_suffix("").parts, *filter(None, [variant])])


def _located(name: str | Path) -> tuple[Path, str | None]:
    if Path(name).is_file():
        return Path(name), None
    base, colon, variant = str(name).rpartition(":")
    if not colon:
        base = variant
    file = Path(base)
    if not file.is_file():
        file = RECIPES / f"{base.removeprefix('recipes/').removesuffix('.yaml')}.yaml"
    if file.is_file() and (not colon or variant in _variants(file)):
        return file, variant if colon else None
    known = [f"{base}:{each}" for each in _variants(file)] if colon and file.is_file() else shipped_recipes()
    raise RecipeError(f"there is no recipe {str(name)!r}{did_you_mean(name, known)}; there are {', '.join(known)}")


def _variants(file: Path) -> list[str]:
    variants = _content(file).get("variants") or {}
    return list(variants) if isinstance(variants, dict) else []


def _content(path: Path) -> dict[str, Any]:
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: {wrong_encoding(error)}") from error
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: a recipe is a mapping")
    return content


def read_recipe(name: str | Path) -> dict[str, Any]:
    """Reads a recipe or a variant, merged over the recipe that it extends; a task whose data are `null` is removed.
    `extends` names another recipe in the same folder. In a variant it names other variants of the same file, whose
    keys apply in that order; a variant is merged over the file's own recipe."""
    return _merged(*_located(name), ())


def _merged(path: Path, variant: str | None, above: tuple[tuple[Path, str | None], ...]) -> dict[str, Any]:
    from ..presets import merged  # imports transformers, which finding a recipe does not need

    above = (*above, (path.resolve(), variant))
    if above[-1] in above[:-1]:
        raise RecipeError(f"{path}: extends: {variant or path.stem!r} leads back to this file")
    content = _content(path)
    variants = content.pop("variants", None) or {}
    if variant is not None:
        content = merged(_merged(path, None, above), _variant_keys(path, variants, variant, ()))
    elif "extends" in content:
        file, _, of_file = str(content.pop("extends")).partition(":")
        try:
            start = _located(f"{path.parent / file}.yaml" + (f":{of_file}" if of_file else ""))
        except RecipeError as error:
            raise RecipeError(f"{path}: extends: {error}") from error
        content = merged(_merged(*start, above), content)
    if isinstance(content.get("train"), dict):
        content["train"] = {task: source for task, source in content["train"].items() if source is not None}
    return content


def _variant_keys(path: Path, variants: dict[str, Any], name: str, above: tuple[str, ...]) -> dict[str, Any]:
    """The keys of a variant and of those that it extends, without the recipe of the file."""
    from ..presets import merged

    if name in above:
        raise RecipeError(f"{path}: extends: {name!r} leads back to itself")
    if not isinstance(variants[name], dict):
        raise RecipeError(f"{path}: variants.{name} is not a mapping")
    own = dict(variants[name])
    parents = own.pop("extends", None) or []
    content: dict[str, Any] = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        if parent not in variants:
            raise RecipeError(f"{path}: variants.{name}.extends: there is no variant {parent!r}")
        content = merged(content, _variant_keys(path, variants, parent, (*above, name)))
    return merged(content, own)


def with_key(settings: dict[str, Any], dotted: str, value: Any, whole: str = "") -> dict[str, Any]:
    """Copies nested settings with another value at a dotted key, such as `training.max_steps`. In a list of named
    mappings, a part of the key is a name: `stages.layers.training.max_steps`. `whole` is the key that errors name."""
    whole = whole or dotted
    key, dot, below = dotted.partition(".")
    if not key:
        raise RecipeError(f"{whole!r} is not a key; keys look like training.max_steps")
    if dot:
        section = {} if settings.get(key) is None else settings[key]
        if isinstance(section, dict):
            value = with_key(section, below, value, whole)
        elif isinstance(section, list) and all(isinstance(item, dict) and "name" in item for item in section):
            name, _, rest = below.partition(".")
            names = [str(item["name"]) for item in section]
            if name not in names or not rest:
                raise RecipeError(f"{whole}: keys of {key} look like {key}.NAME.KEY; names: {', '.join(names)}")
            value = [with_key(item, rest, value, whole) if item["name"] == name else item for item in section]
        else:
            raise RecipeError(f"{whole}: {key} is not a mapping")
    return settings | {key: value}
