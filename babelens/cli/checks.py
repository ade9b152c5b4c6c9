"""Checks of what a command is given, before torch is imported: a typing mistake is told at once."""

import re
from importlib.resources import files
from pathlib import Path

from ..utils.errors import (
    CorpusError,
    ModelFolderError,
    RecipeError,
    UnknownLanguageError,
    did_you_mean,
    no_folder,
)

_TABLE = ".parquet"  # of vectors, given as a model
_FILES = (".tsv", ".csv", ".txt", ".json", ".jsonl", ".parquet", ".gz", ".zip")
_ADDRESS = ("://", "*", "?", "{", "[")


def checked_model(source: str | None) -> str | None:
    """A model as it was given.

    Raises:
        ModelFolderError: for a file, and a name that neither a folder here nor a repository of the Hub can have.
    """
    if source is None or Path(source).is_dir():
        return source
    if Path(source).is_file():
        if Path(source).suffix != _TABLE:
            raise ModelFolderError(f"{source} is a file: name the folder that holds the model")
    elif source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise ModelFolderError(no_folder(source))
    return source


def checked_source(source: str | None) -> str | None:
    """Data as they were given.

    Raises:
        CorpusError: for the name of a file that is not here.
    """
    path = Path(source or ".")
    if source is None or path.exists() or any(part in source for part in _ADDRESS):
        return source
    if path.suffix in _FILES or (path.suffix and path.parent.is_dir()) or source.startswith((".", "/", "~")):
        there = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        raise CorpusError(f"No file {source!r} here{did_you_mean(path.name, there)}")
    return source


def checked_recipe(recipe: str) -> str:
    """A recipe as it was given.

    Raises:
        RecipeError: for a file that is not here, and a name that no recipe of the package has.
    """
    if Path(recipe).is_file():
        return recipe
    name, _, variant = recipe.partition(":")
    path = Path(name)
    if not path.is_file():
        if path.suffix in (".yaml", ".yml") and not name.startswith("recipes/"):
            there = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
            raise RecipeError(f"No recipe {name!r} here{did_you_mean(path.name, there)}")
        shipped = Path(str(files("babelens.recipes")))
        names = [file.relative_to(shipped).with_suffix("").as_posix() for file in shipped.rglob("*.yaml")]
        name = name.removeprefix("recipes/").removesuffix(".yaml")
        if name not in names:
            raise RecipeError(f"No recipe {name!r} here or in the package{did_you_mean(name, names)}")
        path = shipped / f"{name}.yaml"
    variants = re.findall(r"^  ([\w.-]+):\s*$", path.read_text(encoding="utf-8").partition("\nvariants:")[2], re.M)
    if variant and variant not in variants:
        raise RecipeError(f"{name} has no variant {variant!r}{did_you_mean(variant, variants)}")
    return recipe


def check_columns(file: str, languages: list[str]) -> None:
    """Checks that a table whose header names languages has those that are wanted; other files are read later.

    Raises:
        UnknownLanguageError: for a language without a column.
    """
    from ..utils.languages import counts_as, normalize_language

    if Path(file).suffix != ".tsv" or not Path(file).is_file():
        return
    try:
        with Path(file).open(encoding="utf-8-sig") as lines:
            present = [normalize_language(cell.strip()) for cell in next(lines, "").rstrip("\n").split("\t")]
    except ValueError:  # other text than UTF-8, or a header of another kind
        return
    for tag in languages:
        if not any(counts_as(column, [tag]) for column in present):
            own = [each for each in present if each.partition("-")[0] == tag.partition("-")[0]]
            hint = f"; did you mean {own[0]!r}?" if own else did_you_mean(tag, present)
            raise UnknownLanguageError(f"{file} has no text in {tag!r}, only in {', '.join(present)}{hint}")


def checked_tags(languages: str | None) -> str | None:
    """Tags of languages, separated by commas, as they were given.

    Raises:
        LanguageTagError: for a tag that is none.
    """
    from ..utils.languages import normalize_languages

    if languages and languages != "all":
        normalize_languages(languages.split(","))
    return languages
