"""Checkpoints of open_clip as models with their processors."""

import copy
import re
from pathlib import Path
from typing import Any

from PIL.Image import Resampling
from tokenizers import Regex
from tokenizers.normalizers import Lowercase, Replace, Sequence, Strip
from transformers import (
    AutoTokenizer,
    CLIPProcessor,
    PreTrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
    SiglipProcessor,
    VisionTextDualEncoderProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from .configuration.errors import ModelFolderError, ModelKindError
from .configuration.languages import language_and_script, normalize_language
from .configuration.open_clip import OpenClipSettings, check_open_clip, open_clip_settings
from .configuration.pretrained import load_processor
from .modeling.convert_mla import read_weights
from .modeling.convert_open_clip import model_from_open_clip
from .processing.processing_etcl import EtclProcessor

# ---- Processors ----
# Processors for converted checkpoints of open_clip: its preprocessing of images and its tokenizers.

DEFAULT_LENGTH = 77  # tokens of a text, open_clip's default
_OF_LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # NLLB's tokens
_CLIP_MEAN, _CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
# Python's string.punctuation without the underscore, which becomes a space.
_PUNCTUATION = r"[!-/:-@\[-^`{-~]"


def processor_from_open_clip(settings: OpenClipSettings, config: PreTrainedConfig, tokenizer: Any) -> ProcessorMixin:
    """Makes the processor of a converted model.

    Images are resized, cut and normalized as the settings say; where they say nothing, as open_clip does for SigLIP's
    towers or else for OpenAI's. Texts are cleaned as open_clip cleans them: spaces, and for SigLIP case and
    punctuation; that it repairs wrongly decoded texts and HTML entities (`ftfy`) is not taken over.

    Args:
        settings: the architecture.
        config: the configuration of the converted model.
        tokenizer: its tokenizer, of which a copy is changed.

    Raises:
        ModelKindError: for a preparation of images that transformers does not have.
    """
    tokenizer = copy.deepcopy(tokenizer)
    images = _image_processor(settings, config)
    positions = getattr(config.text_config, "max_position_embeddings", None) or DEFAULT_LENGTH
    length = min(settings.text.get("context_length", DEFAULT_LENGTH), positions)
    kind = config.model_type
    if settings.text.get("hf_tokenizer_name"):
        cleaning = (settings.text.get("tokenizer_kwargs") or {}).get("clean", "whitespace")
        _clean(tokenizer, canonical=cleaning == "canonicalize", lower=cleaning != "whitespace")
    tokenizer.model_max_length = length
    if kind == "etcl":
        return EtclProcessor(images, tokenizer, max_text_length=length, language_codes=_language_codes(tokenizer))
    if kind == "siglip":
        tokenizer.model_input_names = ["input_ids"]
        return SiglipProcessor(images, tokenizer)
    made: Any = CLIPProcessor if kind == "clip" else VisionTextDualEncoderProcessor
    processor: ProcessorMixin = made(images, tokenizer)
    return processor


def _image_processor(settings: OpenClipSettings, config: PreTrainedConfig) -> Any:
    given = settings.preprocessing
    is_siglip = "siglip" in (settings.image.get("timm_model_name") or "")
    mode = given.get("resize_mode") or ("squash" if is_siglip else "shortest")
    interpolation = given.get("interpolation") or "bicubic"
    if mode not in ("squash", "shortest") or interpolation not in ("bicubic", "bilinear"):
        raise ModelKindError(
            f"{settings.name}: images are resized by {mode!r} and {interpolation!r}, which transformers' processors "
            "do not do"
        )
    side = getattr(config.vision_config, "image_size", None)  # by the weights: other sizes are not read
    stated = settings.image.get("image_size", side)
    if isinstance(stated, int) and config.vision_config.model_type == "convnext":  # which reads any size
        side = stated
    square = {"height": side, "width": side}
    how = {
        "resample": Resampling.BICUBIC if interpolation == "bicubic" else Resampling.BILINEAR,
        "image_mean": _three(given.get("mean") or ([0.5] * 3 if is_siglip else _CLIP_MEAN)),
        "image_std": _three(given.get("std") or ([0.5] * 3 if is_siglip else _CLIP_STD)),
    }
    if mode == "squash":
        return SiglipImageProcessorPil(size=square, **how)
    return CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=square, **how)


def _three(values: Any) -> list[float]:
    return list(values) if isinstance(values, list | tuple) else [values] * 3


def _clean(tokenizer: Any, *, canonical: bool, lower: bool) -> None:
    """Puts open_clip's cleaning of texts before the tokenizer's own normalization."""
    punctuation = [Replace("_", " "), Replace(Regex(_PUNCTUATION), "")] if canonical else []
    steps = [*punctuation, *([Lowercase()] if lower else []), Replace(Regex(r"\s+"), " "), Strip()]
    backend = tokenizer.backend_tokenizer
    backend.normalizer = Sequence([*steps, *([backend.normalizer] if backend.normalizer else [])])


def _language_codes(tokenizer: Any) -> dict[str, str] | None:
    """Returns the tokenizer's code of each language, by its tag, of a tokenizer that puts one before a text."""
    if not hasattr(tokenizer, "src_lang"):
        return None
    codes = sorted(code for code in tokenizer.get_vocab() if _OF_LANGUAGE.fullmatch(code))
    found: dict[str, str] = {}
    for code in codes:
        language, script = language_and_script(normalize_language(code))
        is_usual = language_and_script(language) == (language, script)
        for tag in [f"{language}-{script}", *([language] if is_usual else [])]:
            found.setdefault(tag, code)
    return found


# ---- Models ----

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
