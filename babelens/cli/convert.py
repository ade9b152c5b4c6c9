"""`babelens convert`: checkpoints of other code, as folders that `AutoModel` loads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.errors import ModelFolderError
from .starting import begin_work

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, ProcessorMixin

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
    begin_work()
    from transformers import AutoTokenizer

    from ..modeling.convert_mla import mla_from_openai, read_weights
    from ..processing.processing_mla import MlaProcessor, closing_token_id
    from ..utils.pretrained import load_processor

    weights = read_weights(checkpoint)
    native_tokenizer, multilingual = (
        load_processor(AutoTokenizer, each) for each in (tokenizer, multilingual_tokenizer)
    )
    ends = {"sep_token_id": closing_token_id(multilingual), "end_token_id": native_tokenizer.eos_token_id}
    model = _converted(checkpoint, mla_from_openai, weights, **ends)
    native = _clip_processor(model.config.base_config, native_tokenizer)
    _check_size(checkpoint, multilingual_tokenizer, len(multilingual), model.config.vocab_size)
    _check_size(checkpoint, tokenizer, len(native_tokenizer), model.config.base_config.text_config.vocab_size)
    languages = {"native_language": model.config.native_language, "languages": model.config.languages}
    _write(model, MlaProcessor.for_native(model.config.base_config, native, multilingual, **languages), output)


@convert.command()
def clip(checkpoint: Checkpoint, output: Output, tokenizer: Tokenizer = _CLIP) -> None:
    """Convert a checkpoint of OpenAI's CLIP, to train MLA on it: transformers has no ResNet of CLIP's kind.

    `babelens convert clip RN50.pt --output runs/clip-rn50`

    `babelens train mla/cc300k --set model.from_pretrained=runs/clip-rn50`

    OpenAI's files are TorchScript archives, which hold code: convert only files that you trust.
    """
    begin_work()

    from transformers import AutoTokenizer

    from ..modeling.convert_mla import clip_from_openai, read_weights
    from ..utils.pretrained import load_processor

    weights, native_tokenizer = read_weights(checkpoint), load_processor(AutoTokenizer, tokenizer)
    model = _converted(checkpoint, clip_from_openai, weights, end_token_id=native_tokenizer.eos_token_id)
    _check_size(checkpoint, tokenizer, len(native_tokenizer), model.config.text_config.vocab_size)
    _write(model, _clip_processor(model.config, native_tokenizer), output)


def _converted(file: Path, convert: Any, weights: "dict[str, Tensor]", **options: Any) -> Any:
    try:
        return convert(weights, **options)
    except (ValueError, KeyError) as error:
        raise ModelFolderError(f"{file}: {error}") from error


def _check_size(file: Path, tokenizer: str, pieces: int, rows: int) -> None:
    if pieces != rows:
        raise ModelFolderError(
            f"{file} was trained with {rows:,} tokens, and the tokenizer of {tokenizer} has {pieces:,}"
        )


def _clip_processor(config: Any, tokenizer: Any) -> "ProcessorMixin":
    """CLIP's processor for the images of a tower's size."""
    from transformers import CLIPProcessor, VisionTextDualEncoderProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    side = config.vision_config.image_size
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    tokenizer.model_max_length = config.text_config.max_position_embeddings
    made: Any = CLIPProcessor if config.model_type == "clip" else VisionTextDualEncoderProcessor
    processor: ProcessorMixin = made(images, tokenizer)
    return processor


def _write(model: "PreTrainedModel", processor: "ProcessorMixin", output: Path) -> None:
    from ..trainers.checkpoints import atomic_directory, prepare_saving
    from ..utils.files import locked

    with locked(output):
        prepare_saving(output)
        if (output / "config.json").is_file():
            raise FileExistsError(f"{output} holds a model already: choose another folder")
        with atomic_directory(output) as scratch:
            model.save_pretrained(scratch)
            processor.save_pretrained(scratch)
    languages = [getattr(model.config, "native_language", "en"), *getattr(model.config, "languages", [])]
    parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    typer.echo(
        f"{output}: {type(model).__name__} of {parameters:,.1f} million parameters, reads {', '.join(languages)}"
    )
