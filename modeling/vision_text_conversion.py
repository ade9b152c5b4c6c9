"""MURAL and ETCL from a `VisionTextDualEncoderModel` of transformers, and back.

That model reads both of its towers by their own pooling layers, and projects images and texts by linear layers without
bias. It multiplies the cosines by the exponential of `logit_scale`, which is one divided by the temperature.
"""

import logging
import math
from pathlib import Path
from typing import Any, Self

import torch
from transformers import (
    MODEL_MAPPING,
    AutoModel,
    PreTrainedModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

from ..configuration.configuration_two_tower import POOLER, image_width, text_width
from ..configuration.errors import ArgumentError, ModelKindError
from ..configuration.pretrained import load_config, load_model
from .modeling_dual_encoder import MIN_TEMPERATURE

logger = logging.getLogger(__name__)

_KIND = "vision-text-dual-encoder"
_ROUNDING = 1e-6  # of a largest `logit_scale` in float32


class VisionTextConversion:
    """Part of a model of two towers: its conversion from and to transformers' class for the same."""

    @classmethod
    def from_vision_text_dual_encoder(
        cls, source: PreTrainedModel | str | Path, *, loading: dict[str, Any] | None = None, **options: Any
    ) -> Self:
        """Makes a model with the towers, the linear layers and the temperature of a `VisionTextDualEncoderModel`.

        Embeddings and logits are the same. A MURAL has one text head, for images and texts; with the options
        `tasks=["image_text", "text_text"], shared_text_head=True`, the same head is trained on translations too.

        Args:
            source: the model, or its folder or Hub id.
            loading: keyword arguments of `from_pretrained`, such as `revision`.
            options: further keys of the configuration, such as `freeze` or `text_dropout`.

        Raises:
            ArgumentError: for an option that the model has settled, such as `projection_dim`.
            ModelFolderError: if there is no such folder or repository, or it lacks weights.
            ModelKindError: if it is a model of another kind, or one of its towers has no pooling layer.
            ValueError: if an option is unknown or impossible.

        Examples:
            >>> model = EtclModel.from_vision_text_dual_encoder("clip-italian/clip-italian")
            >>> processor = EtclProcessor.from_vision_text_dual_encoder("clip-italian/clip-italian", model.config)
        """
        own: Any = cls
        pair = _loaded(source, cls.__name__, **loading or {})
        settled = {"projection_dim": pair.config.projection_dim, "image_head": True, "head_bias": False}
        settled |= {
            "text_pooling": POOLER,
            "image_pooling": POOLER,
            "text_hidden_size": None,
            "text_layer_norm": False,
        }
        if contrary := [name for name in options if name in settled]:
            raise ArgumentError(f"{contrary[0]}: the VisionTextDualEncoderModel has settled it; leave it out")
        if own.config_class.model_type == "mural":
            options = {"tasks": ["image_text"]} | options
        initial = math.exp(-pair.config.logit_scale_init_value)
        model = own.from_towers(pair, pair, **{"temperature_init_value": initial} | options | settled)
        with torch.no_grad():
            model.image_projection.weight.copy_(pair.visual_projection.weight)
            model.training_head(True, False).weight.copy_(pair.text_projection.weight)
            model.temperature.copy_(_temperature(pair))
        return model.train(pair.training)

    def to_vision_text_dual_encoder(self: Any) -> VisionTextDualEncoderModel:
        """Makes a `VisionTextDualEncoderModel` of transformers with the same towers, linear layers and temperature.

        Embeddings and logits are the same. What only training reads is not taken over: dropout before the heads,
        frozen towers, margins, fixed temperatures.

        Returns:
            The model; its weights are copies.

        Raises:
            ModelKindError: if that class cannot compute what this model computes: for heads with a bias that is not
                zero or with a hidden layer, a text head of its own for translations, texts or images that are not
                pooled by the towers' own layers, and towers that the class cannot build.

        Examples:
            >>> model = MuralModel.from_towers(
            ...     "facebook/dinov2-small", "sentence-transformers/LaBSE", projection_dim=512, text_pooling="pooler",
            ...     head_bias=False, tasks=["image_text"],
            ... )
            >>> model.to_vision_text_dual_encoder().save_pretrained("dinov2-labse")
        """
        config = self.config
        _check_convertible(self)
        temperature = self.similarity().item()
        model = VisionTextDualEncoderModel(
            VisionTextDualEncoderConfig.from_vision_text_configs(
                config.vision_config,
                config.text_config,
                projection_dim=config.projection_dim,
                logit_scale_init_value=-math.log(config.temperature_init_value),
            )
        ).to(self.dtype)
        model.vision_model.load_state_dict(self.vision_model.state_dict())
        model.text_model.load_state_dict(self.text_model.state_dict())
        with torch.no_grad():
            width = config.projection_dim
            images = self.image_projection.weight if config.image_head else torch.eye(width)
            model.visual_projection.weight.copy_(images)
            model.text_projection.weight.copy_(self.training_head(True, False).weight)
            model.logit_scale.fill_(-math.log(temperature))
        return model.train(self.training)


def _loaded(source: PreTrainedModel | str | Path, wanted: str, **loading: Any) -> Any:
    """Returns a `VisionTextDualEncoderModel`, after checking that it is one and that its towers pool images.

    Raises:
        ModelKindError: if not.
    """
    config = source.config if isinstance(source, PreTrainedModel) else load_config(source, **loading)
    if config.model_type != _KIND:
        raise ModelKindError(
            f"a {config.model_type!r} model is no VisionTextDualEncoderModel; {wanted}.from_towers takes the towers "
            "of any dual encoder, with new linear layers"
        )
    pair: Any = source if isinstance(source, PreTrainedModel) else load_model(AutoModel, source, **loading)
    if getattr(pair.vision_model, "pooler", True) is None:
        raise ModelKindError(f"the {pair.vision_model.config.model_type!r} tower has no pooling layer")
    return pair


def _temperature(source: Any) -> torch.Tensor:
    """Returns the temperature of a `VisionTextDualEncoderModel`, at least the lowest one of babelens."""
    temperature = source.logit_scale.detach().double().neg().exp()
    if temperature < MIN_TEMPERATURE * (1 - _ROUNDING):
        logger.warning(
            "the model multiplies the cosines by %.1f, and babelens by at most %.0f: embeddings and their ranks are "
            "the same, and logits are smaller",
            *(1 / float(temperature), 1 / MIN_TEMPERATURE),
        )
    return temperature.clamp(min=MIN_TEMPERATURE)


def _check_convertible(model: Any) -> None:
    """
    Raises:
        ModelKindError: if a `VisionTextDualEncoderModel` cannot compute what a model of two towers computes.
    """
    config = model.config
    if config.text_hidden_size is not None:
        raise _not_convertible(
            "its text head is one linear layer, and this model's has a hidden layer (text_hidden_size)"
        )
    if config.text_layer_norm:
        raise _not_convertible("its text head has no layer normalization before it (text_layer_norm)")
    if len(getattr(model, "text_heads", ())) > 1:
        raise _not_convertible(
            "it has one text head, and this model has another one for translations; EtclModel.from_mural(model) keeps "
            "the head for images and texts alone"
        )
    for name, pooling in (("text", config.text_pooling), ("image", config.image_pooling)):
        if pooling != POOLER:
            raise _not_convertible(
                f"it pools by the {name} tower's own layer, and this model has {name}_pooling={pooling!r}"
            )
    heads = {"text": model.training_head(True, False), "image": model.image_projection}
    for name, head in heads.items():
        bias = getattr(head, "bias", None)
        if bias is not None and bias.any():
            raise _not_convertible(
                f"its linear layers have no bias, and that of this model's {name} head is not zero; a model that was "
                "made with head_bias=False converts"
            )
    widths = {"image": image_width(config.vision_config), "text": text_width(config.text_config, config.text_pooling)}
    for name, tower in model.towers.items():
        kind = tower.config.model_type
        if MODEL_MAPPING.get(type(tower.config), None) is not type(tower):
            raise _not_convertible(f"AutoModel does not build the {name} tower, a {type(tower).__name__} ({kind!r})")
        if getattr(tower.config, "hidden_size", None) != widths[name]:
            raise _not_convertible(
                f"it takes features of the width hidden_size, which those of a {kind!r} tower do not have"
            )


def _not_convertible(reason: str) -> ModelKindError:
    return ModelKindError(f"a VisionTextDualEncoderModel of transformers cannot hold this model: {reason}")


__all__ = ["VisionTextConversion"]
