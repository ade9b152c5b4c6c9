"""The recipe of an acquisition: what `babelens acquire` was told, as a file that it can be told again.

    way: ridge
    base: openai/clip-vit-base-patch32
    language: uk
    translations: pairs.tsv
    text_encoder: intfloat/multilingual-e5-small

Its keys are the arguments of `RidgeAcquisition`, `Acquisition` and `StudentAcquisition`, without those of the machine
at hand: where the result goes, and whether code that comes with models is trusted.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..configuration.errors import RecipeError, did_you_mean
from .acquiring import Acquisition
from .acquisition_choices import OF_MACHINE, Way
from .recipe_file import build, check_known, parse, read_recipe, with_key
from .ridge_acquisition import RidgeAcquisition
from .student_acquisition import StudentAcquisition

WAYS: dict[Way, type[RidgeAcquisition | Acquisition | StudentAcquisition]] = {
    "ridge": RidgeAcquisition,
    "adapter": Acquisition,
    "student": StudentAcquisition,
}


def acquisition_recipe(file: Path | None, given: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """A recipe with changes.

    Args:
        file: of the recipe; None begins with nothing.
        given: keys with their values.
        settings: dotted keys with their values in YAML.

    Raises:
        RecipeError: for a file that is no recipe, a value that is not YAML, an unknown key, and one of the machine at
            hand.
    """
    recipe = {} if file is None else read_recipe(file)
    recipe |= given
    for key, value in settings.items():
        recipe = with_key(recipe, key, parse(value))
    tower = recipe.get("text_tower")
    if isinstance(tower, str):  # as in `--set text_tower=path=text_model,blocks=layers`
        recipe["text_tower"] = dict(part.partition("=")[::2] for part in tower.split(","))
    for key in OF_MACHINE:
        if key in recipe:
            raise RecipeError(f"{key}: is an option of the command, and no key of a recipe")
    _class_of(recipe)
    known = dict.fromkeys(each.name for kind in WAYS.values() for each in fields(kind) if each.name not in OF_MACHINE)
    for key in recipe:  # which of them a way has is known when it is made
        check_known(key, ["way", *known])
    return recipe


def _class_of(recipe: Mapping[str, Any]) -> type[RidgeAcquisition | Acquisition | StudentAcquisition]:
    way = recipe.get("way", "ridge")
    if not isinstance(way, str) or way not in WAYS:
        raise RecipeError(f"way={way!r}{did_you_mean(str(way), WAYS)}: there are {', '.join(WAYS)}")
    return WAYS[way]


def acquisition(
    recipe: Mapping[str, Any], *, output: Path, trust_remote_code: bool = False
) -> RidgeAcquisition | Acquisition | StudentAcquisition:
    """The acquisition of a recipe.

    Raises:
        RecipeError: for a key that the way does not have, or a value of another type.
        BabelensError: the errors of the classes.
    """
    kind = _class_of(recipe)
    own = {each.name for each in fields(kind)}
    keys = {name: value for name, value in recipe.items() if name != "way" and value is not None}
    for name, value in keys.items():
        others = [way for way, other in WAYS.items() if name in {each.name for each in fields(other)}]
        if name not in own and others:
            raise RecipeError(f"{name}={value!r}: a choice of --way {' and --way '.join(others)} alone")
    placed = {"output": output, "trust_remote_code": trust_remote_code}
    if "texts" in keys:
        keys = {"language": "", "translations": ""} | keys
    return build(kind, keys | placed)
