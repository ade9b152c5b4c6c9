"""`babelens vocabulary`: the word pieces of a recipe's captions, trained once for several runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson, Settings, TrustRemoteCode, settings_of, split_tags


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
    overrides = settings_of(settings)
    from .jobs.vocabulary import write_vocabulary

    write_vocabulary(recipe, overrides, tokenizer, output, trust_remote_code=trust_remote_code, as_json=as_json)
