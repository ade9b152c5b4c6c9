"""`babelens convert`: checkpoints of other code, as folders that `AutoModel` loads."""

from pathlib import Path
from typing import Annotated

import typer

convert = typer.Typer(
    help="Convert checkpoints of the code of others to folders that every command takes as a model.",
    no_args_is_help=True,
)

_CLIP = "openai/clip-vit-base-patch32"
_M_BERT = "google-bert/bert-base-multilingual-cased"

Checkpoint = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="The file of weights, `….pt`.", exists=True, dir_okay=False)
]
Output = Annotated[Path, typer.Option(help="A new folder for the model with its processor.", file_okay=False)]
Tokenizer = Annotated[
    str, typer.Option(help="A CLIP whose tokenizer reads English, a folder or Hub id: it is the same in every CLIP.")
]


@convert.command()
def mla(
    checkpoint: Checkpoint,
    output: Output,
    tokenizer: Tokenizer = _CLIP,
    multilingual_tokenizer: Annotated[
        str, typer.Option(help="The tokenizer of the acquired languages, a folder or Hub id: M-BERT's in MLA.")
    ] = _M_BERT,
) -> None:
    """Convert a checkpoint of the MLA authors' code, on any CLIP: ViT-B/32, ViT-B/16, RN50, RN101, ….

    `babelens convert mla mla_clip.pt --output runs/mla-published`

    Sizes, languages and the size of images follow from the weights. The folder holds the model with CLIP's image
    processor, CLIP's tokenizer and M-BERT's, for `evaluate`, `search` and further training.
    """
    from .jobs.convert import convert_mla

    convert_mla(checkpoint, output, tokenizer, multilingual_tokenizer)


@convert.command()
def clip(checkpoint: Checkpoint, output: Output, tokenizer: Tokenizer = _CLIP) -> None:
    """Convert a checkpoint of OpenAI's CLIP, to train MLA on it: transformers has no ResNet of CLIP's kind.

    `babelens convert clip RN50.pt --output runs/clip-rn50`

    `babelens train mla/cc300k --set model.from_pretrained=runs/clip-rn50`

    OpenAI's files are TorchScript archives, which hold code: convert only files that you trust.
    """
    from .jobs.convert import convert_clip

    convert_clip(checkpoint, output, tokenizer)
