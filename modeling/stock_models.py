"""Converts a MURAL or ETCL to a stock `AlignModel` of transformers, which loads without this package and its code.

With a BERT that is pooled at [CLS] and an EfficientNet without a projection, as in the papers, the weights are
renamed.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AlignConfig, AlignModel, AlignTextConfig, PreTrainedModel

from ..configuration.configuration_two_tower import POOLER
from ..utils.errors import ModelKindError
from .modeling_two_tower import TwoTowerModel


@dataclass(frozen=True)
class StockModel:
    """A model of transformers with the embeddings of another, and phrases for the parts that it lacks."""

    model: PreTrainedModel
    lost: tuple[str, ...] = ()


def stock_model(model: PreTrainedModel) -> StockModel:
    """Makes a stock model of transformers, with copies of the weights, from a MURAL or ETCL; returns a model of
    transformers unchanged."""
    if type(model).__module__.startswith("transformers."):
        return StockModel(model)
    if not isinstance(model, TwoTowerModel):
        raise ModelKindError(
            f"no class of transformers computes what a {type(model).__name__} does; its folder loads with "
            "trust_remote_code=True"
        )
    return StockModel(_align(model).to(model.dtype).eval(), _lost(model))


def _lost(model: Any) -> tuple[str, ...]:
    lost = ["the head that compares texts with texts (task text_text)"] if len(_heads(model)) > 1 else []
    if model.similarity.bias is not None:
        lost.append("the bias of its logits, which it learned with SigLIP's loss, and which changes no ranks")
    return tuple(lost)


def _heads(model: Any) -> Any:
    return getattr(model, "text_heads", ())


def _align(model: Any) -> AlignModel:
    config, head = model.config, model.training_head(True, False)
    text, image = config.text_config, config.vision_config
    reasons = {
        f"reads texts with BERT, and not with {text.model_type!r}": text.model_type in ("bert", "align_text_model"),
        f"reads images with EfficientNet, and not with {image.model_type!r}": image.model_type == "align_vision_model",
        f"pools texts at [CLS], and not by {config.text_pooling!r}": config.text_pooling == "cls",
        "does not project images": config.image_pooling == POOLER and not config.image_head,
        "has one linear layer after its text tower": isinstance(head, nn.Linear) and not config.text_layer_norm,
    }
    if unmet := [reason for reason, is_met in reasons.items() if not is_met]:
        raise ModelKindError(
            f"no class of transformers computes what this {type(model).__name__} does: AlignModel {unmet[0]}"
        )
    temperature = model.similarity().item()
    own = {name: value for name, value in text.to_dict().items() if name not in ("model_type", "architectures")}
    made = AlignModel(
        AlignConfig(
            text_config=AlignTextConfig(**own).to_dict(),
            vision_config=image.to_dict(),
            projection_dim=config.projection_dim,
            temperature_init_value=temperature,
        )
    )
    towers = {"text_model": model.text_model, "vision_model": model.vision_model, "text_projection": head}
    weights = {f"{name}.{key}": value for name, part in towers.items() for key, value in part.state_dict().items()}
    weights["temperature"] = torch.tensor(temperature)
    # A pooling layer that is not read, and a bias that the head may lack, are zeros.
    weights = {name: torch.zeros_like(value) for name, value in made.state_dict().items()} | weights
    made.load_state_dict(weights)
    return made


__all__ = ["StockModel", "stock_model"]
