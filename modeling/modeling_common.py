"""Shared by several methods: modules that initialize themselves, exported graphs, checks of towers."""

from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, PreTrainedConfig, PreTrainedModel

from ..configuration.configuration_two_tower import POOLER
from ..utils.errors import ModelKindError

ModuleT = TypeVar("ModuleT", bound=nn.Module)
# Encoders with a decoder that can be left out.
_ENCODERS = ("m2m_100", "mt5", "t5", "umt5")


def initialized_by_itself(module: ModuleT) -> ModuleT:
    """Marks a module as initialized by its own `reset_parameters`, not by the model around it, and returns it. Its
    weights have just been initialized, or are on the `meta` device because a model is being loaded."""
    module.awaits_weights = next(chain(module.parameters(), module.buffers())).is_meta
    for part in () if module.awaits_weights else module.modules():
        part._is_hf_initialized = True  # otherwise the model around it would initialize it again
    return module


def is_exporting() -> bool:
    """Returns whether a graph is being made that must not depend on tensor values: by `torch.export`,
    `torch.jit.trace`, or `torch.compile` without gradients (`fullgraph=True`). All rows then go through the layers of
    every kind, with the same results; compiled training still separates rows by kind, which costs less."""
    compiler = torch.compiler
    if compiler.is_exporting() or torch.jit.is_tracing():
        return True
    return compiler.is_compiling() and not torch.is_grad_enabled()


def vision_tower(model: Any) -> Any:
    """Returns a vision backbone, or the vision tower of a dual encoder or of an MLA model."""
    for part in ("native_model", "vision_model"):
        model = getattr(model, part, model)
    if getattr(model, "main_input_name", None) != "pixel_values":
        kind = getattr(model.config_class, "model_type", "")
        raise ModelKindError(f"a {kind!r} model does not read images: give a vision backbone, such as a ViT or DINOv2")
    return model


def check_text_encoder(config: PreTrainedConfig) -> None:
    """Checks that a configuration is for a text encoder, in which every token sees the whole text."""
    kind = config.model_type
    is_causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    is_causal = is_causal and not getattr(config, "use_bidirectional_attention", None)
    has_decoder = getattr(config, "is_decoder", False) or config.is_encoder_decoder
    has_vocabulary = isinstance(getattr(config, "vocab_size", None), int)
    if not has_vocabulary or (kind not in _ENCODERS and (has_decoder or is_causal)):
        raise ModelKindError(f"expected a text encoder, such as BERT, XLM-R, E5 or the encoder of mT5; got {kind!r}")


def check_pooling(tower: PreTrainedModel, pooling: str) -> None:
    """Checks that a text encoder has the requested pooling layer."""
    kind = tower.config.model_type
    if pooling == POOLER and not kind.endswith("_text_model") and getattr(tower, "pooler", None) is None:
        raise ModelKindError(f"this {kind!r} text encoder has no pooling layer: choose 'mean', 'cls' or 'eos'")
