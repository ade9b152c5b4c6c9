"""`babelens acquire`: a model learns one more language."""

import json
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from ..trainers.output_lock import locked
from ..trainers.precision import Precision
from ..workflows.acquiring import M_BERT, Acquisition
from .console import plain_console
from .options import TrustRemoteCode

_DATA, _MODEL, _TRAINING = "Data", "Model", "Training"


def acquire(
    base: Annotated[
        str,
        typer.Option(
            help="The model that learns: CLIP, SigLIP, ALIGN, MURAL or MLA, a folder or its name on the Hub."
        ),
    ],
    language: Annotated[str, typer.Option(help="The language to learn, a BCP-47 tag: `uk`.")],
    translations: Annotated[
        str,
        typer.Option(
            help="Sentences in that language and in the model's own: a `.tsv` file with a header such as `en⇥uk`, a "
            '`.jsonl` file of lines such as `{"en": "…", "uk": "…"}`, or a Hub data set.',
            rich_help_panel=_DATA,
        ),
    ],
    output: Annotated[Path, typer.Option(help="Folder for the adapter.")],
    captions: Annotated[
        str | None,
        typer.Option(
            help="Images with captions in that language, for a second stage, language exposure: a folder with a "
            "`metadata.jsonl`, parquet files, or a Hub data set.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    assemble: Annotated[
        bool,
        typer.Option(
            "--assemble", help="Write the whole model as well, to OUTPUT/model: what `AutoModel` and `search` take."
        ),
    ] = False,
    native_language: Annotated[
        str | None,
        typer.Option(
            help="What BASE reads, `en` by default. This option and the next four are for a BASE without acquired "
            "languages; the first one settles them for all.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    vocabulary: Annotated[
        str | None,
        typer.Option(
            help=f"A model or tokenizer whose word pieces all acquired languages share; by default {M_BERT}.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    new_vocabulary: Annotated[
        int | None,
        typer.Option(
            min=1, help="Train a vocabulary of that many pieces on the translations.", rich_help_panel=_MODEL
        ),
    ] = None,
    acquirer: Annotated[
        Literal["mlp", "linear"] | None,
        typer.Option(help="What follows each block, `mlp` by default.", rich_help_panel=_MODEL),
    ] = None,
    acquirer_size: Annotated[
        int | None,
        typer.Option(min=1, help="Width of the hidden layer of `mlp`, 256 by default.", rich_help_panel=_MODEL),
    ] = None,
    train_embedding: Annotated[
        bool | None,
        typer.Option(
            "--train-embedding/--freeze-embedding",
            help="Train the table that all acquired languages share, or keep it. By default it is trained for the "
            "first language only: training it later would change what the earlier ones read.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps on translations; by default 20 passes over them, from 500 to the paper's 117 150.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    exposure_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps on captions; by default a tenth of STEPS.", rich_help_panel=_TRAINING),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts in a step.", rich_help_panel=_TRAINING)] = 128,
    learning_rate: Annotated[
        float, typer.Option(min=0.0, help="Of the first stage; the second has 3 % of it.", rich_help_panel=_TRAINING)
    ] = 1e-4,
    precision: Annotated[
        Precision,
        typer.Option(
            help="What to compute in; `auto` is `bfloat16` where the hardware multiplies it, else `float32`.",
            rich_help_panel=_TRAINING,
        ),
    ] = "auto",
    bf16: Annotated[
        bool, typer.Option("--bf16", help="The same as `--precision bfloat16`.", rich_help_panel=_TRAINING)
    ] = False,
    license: Annotated[
        str, typer.Option(help="Of the adapter, as the Hub names it: `cc-by-4.0`.", rich_help_panel=_DATA)
    ] = "other",
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.", rich_help_panel=_TRAINING)
    ] = 42,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a run that broke off, on the same data.", rich_help_panel=_TRAINING),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Teach a model one more language from translations, and leave all that it knows bitwise as it was.

    `babelens acquire --base openai/clip-vit-base-patch32 --language uk --translations pairs.tsv --output clip-uk`

    The adapter's folder goes to PEFT's `PeftModel.from_pretrained`; with `--assemble`, the folder `model` in it to
    `AutoModel.from_pretrained`, `babelens search`, and as `--base` to this command for the next language.
    """
    console = plain_console(stderr=as_json)
    acquisition = Acquisition(
        base=base,
        language=language,
        translations=translations,
        output=output,
        captions=captions,
        native_language=native_language,
        vocabulary=vocabulary,
        new_vocabulary=new_vocabulary,
        acquirer=acquirer,
        acquirer_size=acquirer_size,
        train_embedding=train_embedding,
        steps=steps,
        exposure_steps=exposure_steps,
        license=license,
        trust_remote_code=trust_remote_code,
        training={
            "per_device_train_batch_size": batch_size,
            "learning_rate": learning_rate,
            "precision": precision,
            "bf16": bf16 or None,
            "seed": seed,
        },
    )
    acquisition.load()
    _show_samples(acquisition, console)
    with locked(output):
        with redirect_stdout(sys.stderr if as_json else sys.stdout):  # the trainer prints its log
            results = acquisition.run(resume=resume)
        folder = acquisition.assemble() if assemble else None
        acquisition.save(results, command=shlex.join(["babelens", *sys.argv[1:]]))
    if as_json:
        typer.echo(json.dumps({"adapter": str(output), "model": folder and str(folder), "held_out": results}))
        return
    if results:
        console.print(
            f"Of {results['pairs']} held-out texts, {results['r1']:.1f} % find their translation first, "
            f"{results['r10']:.1f} % among the first ten."
        )
    console.print(f"Adapter: {output}" + (f"\nModel: {folder}" if folder else ""))


def _show_samples(acquisition: Acquisition, console: Console) -> None:
    table = Table(title=f"{len(acquisition.pairs):,} translations, such as", box=None)
    for tag in (acquisition.language, acquisition.model.config.native_language):
        table.add_column(tag)
    for pair in acquisition.samples():
        table.add_row(*pair)
    console.print(table)
