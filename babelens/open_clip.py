"""Checkpoints of open_clip as models with their processors."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedModel, ProcessorMixin

from .configuration.errors import ModelFolderError
from .configuration.open_clip import check_open_clip, open_clip_settings
from .configuration.pretrained import load_processor
from .modeling.convert_mla import read_weights
from .modeling.convert_open_clip import model_from_open_clip
from .processing.open_clip_processor import processor_from_open_clip

OPENAI_TOKENIZER = "openai/clip-vit-base-patch32"


def from_open_clip(
    architecture: str | Path,
    checkpoint: str | Path,
    *,
    tokenizer: str | Path | None = None,
    text_model: str | Path | None = None,
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Converts a checkpoint of open_clip to a model of transformers or babelens, with its processor.

    Args:
        architecture: its name in open_clip 3.3, such as `ViT-B-16-SigLIP2`, or a JSON file with its settings: the
            `open_clip_config.json` beside a checkpoint on the Hub knows how its images are prepared, too.
        checkpoint: the file of weights, safetensors or PyTorch's own, of which weights alone are unpickled.
        tokenizer: folder or Hub id of the tokenizer; by default the one that the architecture names, or CLIP's.
        text_model: folder or Hub id whose `config.json` describes the text encoder, for architectures with one of
            transformers; by default the one that the architecture names.

    Returns:
        A `CLIPModel`, `SiglipModel`, `VisionTextDualEncoderModel` or `EtclModel`, and its processor; embeddings are
        those of open_clip.

    Raises:
        ModelFolderError: for weights of another architecture, and for a tokenizer or a text encoder that is missing
            or belongs to another vocabulary.
        ModelKindError: for an architecture that transformers has no classes for, with the reason.

    Examples:
        >>> model, processor = from_open_clip("ViT-B-16-SigLIP2", "open_clip_model.safetensors")
        >>> Embedder(model, processor).encode_text("ein Hund")  # [1, 768]
    """
    settings = open_clip_settings(architecture)
    check_open_clip(settings)
    source = tokenizer or settings.text.get("hf_tokenizer_name") or OPENAI_TOKENIZER
    words = load_processor(AutoTokenizer, source)
    model = model_from_open_clip(settings, read_weights(Path(checkpoint)), text_model=text_model)
    texts = model.config.text_config
    if len(words) > texts.vocab_size:
        raise ModelFolderError(
            f"{checkpoint} was trained with {texts.vocab_size:,} tokens, and {source} has {len(words):,}"
        )
    if texts.model_type == "clip_text_model" and words.eos_token_id != texts.eos_token_id:
        # A text is read at this token: without it, all texts would have one embedding.
        raise ModelFolderError(
            f"{checkpoint} reads texts at token {texts.eos_token_id:,}, and {source} ends them with "
            f"{words.eos_token_id}: name its own tokenizer"
        )
    return model, processor_from_open_clip(settings, model.config, words)
