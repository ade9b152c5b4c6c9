"""`babelens vocabulary`: the word pieces of a recipe's captions, trained once for several runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..configuration.errors import RecipeError
from ..configuration.locks import new_folder
from .console import print_json
from .options import AsJson, Settings, TrustRemoteCode, settings_of, split_tags
from .starting import begin_work

_RATED = 2_000  # texts in each language, from which the share of unknown tokens is computed


def vocabulary(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="The recipe whose captions are read: a file, or the name of one that comes with babelens, such as "
            "`mural/base`.",
        ),
    ],
    output: Annotated[Path, typer.Option(help="A new folder for the tokenizer.", file_okay=False)],
    size: Annotated[int, typer.Option(help="Number of word pieces.", min=1)] = 250_000,
    lowercase: Annotated[bool, typer.Option("--lowercase/--cased", help="Fold case.")] = True,
    languages: Annotated[
        str | None,
        typer.Option(
            help="The languages on whose captions the pieces are trained: tags separated by commas. Without this "
            "option, those that the recipe trains on. The characters of all captions become pieces in any case."
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(help="Number of rows of each stream that are read, spread evenly over its shards.", min=1)
    ] = 1_000_000,
    settings: Settings = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a vocabulary of word pieces on the captions of a recipe.

    `babelens vocabulary mural/base --cased --output runs/vocabulary`

    `tokenizer.from_pretrained` in a recipe names the folder. Runs that are compared should share one. Of a stream, a
    sample of its captions is read, so that the memory that is needed does not grow with the data.
    """
    if output.exists():
        raise typer.BadParameter(f"{output} exists already", param_hint="--output")
    tokenizer: dict[str, Any] = {"vocab_size": size, "lowercase": lowercase, "sample": sample}
    if languages is not None:
        tokenizer["languages"] = split_tags(languages)
    begin_work()
    from ..processing.tokenizer_training import unknown_rate
    from ..workflows.base import RecipeRun
    from ..workflows.loading import load_recipe
    from ..workflows.recipe import DualEncoderRecipe
    from ..workflows.recipe_file import parse

    changes = {key: parse(value) for key, value in settings_of(settings).items()}
    loaded = load_recipe(recipe, changes | {"tokenizer": tokenizer})
    if not isinstance(loaded, DualEncoderRecipe):
        raise RecipeError(f"{recipe}: {loaded.method} has no vocabulary of word pieces for all languages")
    run = RecipeRun(loaded, output, "", trust_remote_code=trust_remote_code)
    trained_on = [*run.data.image_languages, *run.data.pair_languages]
    trained = run.builder.new_tokenizer("tokenizer", trained_on, run.data.captions)
    with new_folder(output) as unfinished:
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
        print_json(facts)
        return
    typer.echo(f"{len(trained):,} word pieces: {output}")
    for tag, each in texts.items():
        typer.echo(f"{tag}: {len(each):,} captions, {unknown[tag]:.3f} % unknown")
