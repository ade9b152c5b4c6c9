"""A vocabulary of a recipe's captions, for `babelens vocabulary`."""

import json
from pathlib import Path
from typing import Any

import typer

from ...configuration.errors import RecipeError
from ...configuration.files import atomic_folder
from ...processing.tokenizer_training import unknown_rate
from ...workflows.base import recipe_run
from ...workflows.loading import load_recipe
from ...workflows.recipe import DualEncoderRecipe
from ...workflows.recipe_file import parse

_RATED = 2_000  # texts in each language, from which the share of unknown tokens is computed


def write_vocabulary(
    name: str,
    overrides: dict[str, str],
    tokenizer: dict[str, Any],
    output: Path,
    *,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Trains the vocabulary `tokenizer` on a recipe's captions, writes it, and shows what it was trained on.

    Raises:
        RecipeError: for a recipe of a method without such a vocabulary, and too few pieces for the characters.
        CorpusError and its kin: as reading the data.
    """
    changes = {key: parse(value) for key, value in overrides.items()}
    recipe = load_recipe(name, changes | {"tokenizer": tokenizer})
    if not isinstance(recipe, DualEncoderRecipe):
        raise RecipeError(f"{name}: {recipe.method} has no vocabulary of word pieces for all languages")
    run = recipe_run(recipe, output, "", trust_remote_code=trust_remote_code)
    languages = [*run.data.image_languages, *run.data.pair_languages]
    trained = run.builder.new_tokenizer("tokenizer", languages, run.data.captions)
    with atomic_folder(output) as unfinished:
        trained.save_pretrained(unfinished)
    texts = run.data.texts(tokenizer["sample"])
    unknown = {
        tag: round(unknown_rate(trained, each[:: -(-len(each) // _RATED) or 1]), 3) for tag, each in texts.items()
    }
    facts: dict[str, Any] = {
        "folder": str(output),
        "pieces": len(trained),
        "captions": {tag: len(each) for tag, each in texts.items()},
        "unknown": unknown,
    }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{len(trained):,} word pieces: {output}")
    for tag, each in texts.items():
        typer.echo(f"{tag}: {len(each):,} captions, {unknown[tag]:.3f} % unknown")
