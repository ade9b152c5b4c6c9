"""`babelens convert`: converts checkpoints of other code to folders that `AutoModel` loads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model_folders import atomic_directory, check_free
from ..utils.errors import ModelFolderError
from .common import begin_work, check_path

if TYPE_CHECKING:
    from transformers import ProcessorMixin

_CLIP = "openai/clip-vit-base-patch32"
_M_BERT = "google-bert/bert-base-multilingual-cased"
_OF_MLA = "multilingual_embedding.weight"


def convert(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The file of weights, `….pt`.", callback=check_path)
    ],
    output: Annotated[Path, typer.Option(help="A new folder for the model with its processor.", file_okay=False)],
    tokenizer: Annotated[
        str, typer.Option(help="A CLIP with the English tokenizer: a folder, or a name on the Hub.")
    ] = _CLIP,
    multilingual_tokenizer: Annotated[str, typer.Option(help="The tokenizer of MLA's languages.")] = _M_BERT,
) -> None:
    """Convert a checkpoint of OpenAI's CLIP or of MLA to a model.

    `babelens convert mla_clip.pt --output runs/mla-published`

    The weights determine the kind of model, its sizes (ViT-B/32, ViT-B/16, RN50, RN101, …) and its languages. The
    folder holds the model with its processor. OpenAI's files are TorchScript archives, which hold code: convert only
    files that you trust.
    """
    begin_work()
    from transformers import AutoTokenizer

    from ..modeling.convert_mla import clip_from_openai, mla_from_openai, read_weights
    from ..processing.processing_mla import MlaProcessor, closing_token_id
    from ..utils.pretrained import load_processor

    weights = read_weights(checkpoint)
    native = load_processor(AutoTokenizer, tokenizer)
    ends = {"end_token_id": native.eos_token_id}
    sizes = {}
    try:
        if _OF_MLA not in weights:
            model: Any = clip_from_openai(weights, **ends)
            config, processor = model.config, _clip_processor(model.config, native)
        else:
            other = load_processor(AutoTokenizer, multilingual_tokenizer)
            model = mla_from_openai(weights, sep_token_id=closing_token_id(other), **ends)
            config = model.config.base_config
            sizes[multilingual_tokenizer] = (len(other), model.config.vocab_size)
            languages = {"native_language": model.config.native_language, "languages": model.config.languages}
            processor = MlaProcessor.for_native(config, _clip_processor(config, native), other, **languages)
    except (ValueError, KeyError) as error:
        raise ModelFolderError(f"{checkpoint}: {error}") from error
    sizes[tokenizer] = (len(native), config.text_config.vocab_size)
    for name, (pieces, rows) in sizes.items():
        if pieces != rows:
            raise ModelFolderError(
                f"{checkpoint} was trained with {rows:,} tokens, but the tokenizer of {name} has {pieces:,}"
            )
    check_free(output)
    with atomic_directory(output) as scratch:
        model.save_pretrained(scratch)
        processor.save_pretrained(scratch)
    read = [getattr(model.config, "native_language", "en"), *getattr(model.config, "languages", [])]
    typer.echo(
        f"{output}: {type(model).__name__} of {model.num_parameters() / 1e6:,.1f} million parameters, reads "
        f"{', '.join(read)}"
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
