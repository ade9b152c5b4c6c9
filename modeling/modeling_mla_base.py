"""What MLA and its baselines share: texts that are trained towards the features of a frozen dual encoder (Zhang et al.
2022, section 3.3).

`native_model` is a dual encoder of transformers or babelens. It embeds the images, and the native texts whose features
are the targets of other texts; subclasses define how those other texts are embedded.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    VisionTextDualEncoderModel,
    initialization as init,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mla_base import ClipResNetConfig
from ..configuration.configuration_two_tower import text_positions
from ..utils.errors import ModelKindError
from .acquirer import AcquiredBlock, load_plain_state_dict, plain_name, plain_state_dict
from .losses.contrastive import sigmoid_loss, symmetric_contrastive_loss
from .modeling_common import Call, asks_for_states, is_exporting, tower_keywords
from .modeling_dual_encoder import (
    MIN_TEMPERATURE,
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    as_output,
    at_least,
    in_dtype_of,
    normalize,
    with_states,
    without_states,
)
from .modeling_etcl import EtclModel
from .modeling_mural import MuralModel
from .native_tower import ClipResNetModel

# So that a `VisionTextDualEncoderModel` with such an image tower can be loaded by itself.
AutoModel.register(ClipResNetConfig, ClipResNetModel, exist_ok=True)

Trainable = Literal["acquirers", "native", "all"]


@dataclass
class MlaOutput(DualEncoderOutput):
    """Output of an `MlaModel` or an `MlaStudentModel`.

    Args:
        text_features, image_features, paired_text_features ([N, d]): the embeddings before they are normalized.
    """

    text_features: Tensor | None = None
    image_features: Tensor | None = None
    paired_text_features: Tensor | None = None


def new_native_model(config: PreTrainedConfig) -> PreTrainedModel:
    """Builds an untrained dual encoder of transformers or of babelens, also where this package is not installed."""
    for own in (MuralModel, EtclModel):
        if config.model_type == own.config_class.model_type:
            return own._from_config(config)
    image = getattr(config, "vision_config", None)
    if getattr(image, "model_type", None) == ClipResNetConfig.model_type:
        # Without this package, the class of `image` is a second copy, which `AutoModel` does not know.
        return VisionTextDualEncoderModel(config, vision_model=ClipResNetModel._from_config(image))
    return AutoModel.from_config(config)


def register_native(model: PreTrainedModel) -> None:
    """Makes `new_native_model` build models of the class of this one, which may be code that came with a model."""
    config = type(model.config)
    if config not in MODEL_MAPPING:
        AutoModel.register(config, type(model), exist_ok=True)


def features_of(embed: Callable[..., Any], **inputs: Any) -> BaseModelOutputWithPooling:
    """Calls a native model's `get_text_features` or `get_image_features`.

    Code that came with a model may take fewer inputs, such as no mask, and return the features [N, d] themselves.
    """
    taken = signature(embed).parameters
    if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in taken.values()):
        inputs = {name: value for name, value in inputs.items() if name in taken}
    return as_output(embed(**inputs))


class MlaPreTrainedModel(DualEncoderPreTrainedModel):
    """Base class of `MlaModel` and `MlaStudentModel`.

    Subclasses define `get_text_features`, `frozen_parts`, `learned_parts` and `set_trainable`.

    The native model keeps its precision, and its files keep the bits of the base's. The other parts may have another
    one, which the configuration states (`learned_dtype`).
    """

    _no_split_modules = ("AcquiredBlock", "AcquiredEmbedding")
    native_model: PreTrainedModel
    stored_weights: Mapping[str, Tensor] = {}  # of a model that `load_model` has loaded `as_stored`
    trains_native = False
    trains_temperature = False

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Loads as transformers does: each part in its own precision, or all in the `dtype` that is asked for."""
        loaded = super().from_pretrained(*args, **kwargs)
        if kwargs.get("dtype", kwargs.get("torch_dtype")) not in (None, "auto"):
            model = loaded[0] if isinstance(loaded, tuple) else loaded
            for part in model.learned_parts():
                part.to(model.dtype)
        return loaded

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        """Saves as transformers does. Weights of the base are written in the precision of its files."""
        own = self.learned_dtype
        self.config.learned_dtype = None if own == self.dtype else str(own).removeprefix("torch.")
        if self.stored_weights:
            state_dict = self.state_dict() if state_dict is None else state_dict
            state_dict = state_dict | {
                name: stored
                for name, stored in self.stored_weights.items()
                if torch.equal(stored.to(state_dict[name].dtype), state_dict[name].cpu())  # it was not trained
            }
        super().save_pretrained(save_directory, is_main_process=is_main_process, state_dict=state_dict, **kwargs)

    def learned_parts(self) -> list[nn.Module]:
        """Returns the modules beside the native model that may have another precision."""
        raise NotImplementedError

    @property
    def learned_dtype(self) -> torch.dtype:
        """The precision of the parts beside the native model."""
        return next((weight.dtype for part in self.learned_parts() for weight in part.parameters()), self.dtype)

    @property
    def text_config(self) -> Any:
        """The configuration of a text encoder beside the native model, with its precision."""
        text = self.config.text_config
        if self.config.learned_dtype is not None:
            text.dtype = getattr(torch, self.config.learned_dtype)
        return text

    def _settle_precision(self) -> None:
        """Gives new parts the precision that the configuration states."""
        if self.config.learned_dtype is not None:
            for part in self.learned_parts():
                part.to(getattr(torch, self.config.learned_dtype))

    @torch.no_grad()
    def initialize_weights(self) -> None:
        super().initialize_weights()
        initial = getattr(self.native_model.config, "logit_scale_init_value", None)
        if (
            initial is not None
        ):  # CLIP's, which transformers sets when the model is made, and not when a folder lacks it
            init.constant_(self.native_model.logit_scale, initial)

    def load_native(self, weights: dict[str, Tensor]) -> None:
        """Loads the weights of a plain dual encoder into the native model, each in its own precision."""
        load_plain_state_dict(self.native_model, weights)

    def take_native(self, native_model: PreTrainedModel) -> None:
        """Loads the weights of a plain dual encoder, and keeps what its files hold in another precision."""
        self.load_native(native_model.state_dict())
        wrapped = {plain_name(name): name for name in self.native_model.state_dict() if ".mla_" not in name}
        stored = getattr(native_model, "stored_weights", {})
        self.stored_weights = {f"native_model.{wrapped[name]}": value for name, value in stored.items()}

    def native_state_dict(self) -> dict[str, Tensor]:
        """Returns the weights of the native model under the names that it has by itself."""
        return plain_state_dict(self.native_model)

    def frozen_parts(self) -> list[nn.Module]:
        """Returns the modules that are never trained, except for acquirers inside of them."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for part in self.frozen_parts():
            part.eval()  # no dropout and no new batch statistics in frozen parts; acquirers have neither
            for block in part.modules():
                if isinstance(block, AcquiredBlock):
                    # Of the layer alone, which recomputes its activations for the gradient only in training mode.
                    block.base_layer.training = mode
        return self

    @can_return_tuple
    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Embeds images with the native model.

        Args:
            pixel_values ([N, 3, H, W]): images, as an image processor prepares them.
            kwargs: keyword arguments of the native model's image tower.

        Returns:
            The output of the native model's `get_image_features`; `pooler_output` [N, d] is not normalized.

        Raises:
            ArgumentError: for a keyword that the image tower does not have.
        """
        (kwargs,) = tower_keywords(self, kwargs, self.image_calls())
        native = self.native_model
        tower = getattr(native, "vision_model", native)
        pixel_values = in_dtype_of(tower if isinstance(tower, PreTrainedModel) else native, pixel_values)
        return features_of(native.get_image_features, pixel_values=pixel_values, return_dict=True, **kwargs)

    @torch.no_grad()
    def embed_native_texts(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Embeds native texts as the native model does by itself, without the padding of longer texts beside them."""
        inputs = {"input_ids": input_ids}
        # SigLIP was trained with every text padded to the full length, and without a mask.
        if attention_mask is not None and "siglip" not in self.native_model.config.model_type:
            inputs["attention_mask"] = attention_mask
        if is_exporting():
            # The student may read longer texts than the native model has positions for, or shorter ones only.
            native = self.native_model.config
            if length := text_positions(getattr(native, "text_config", native)):
                inputs = {name: nn.functional.pad(ids, (0, length))[:, :length] for name, ids in inputs.items()}
        elif attention_mask is not None:
            length = int(attention_mask.sum(-1).max())
            inputs = {name: value[:, :length] for name, value in inputs.items()}
        return self.native_model.get_text_features(**inputs, return_dict=True).pooler_output

    def image_calls(self) -> list[Call]:
        native = self.native_model
        tower = getattr(native, "vision_model", None)
        return [native.get_image_features, *([] if tower is None else [tower.forward])]

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        image_features: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        paired_language_ids: Tensor | None = None,
        paired_text_features: Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        positives: Tensor | None = None,
        text_features: Tensor | None = None,
        **kwargs: Any,
    ) -> MlaOutput:
        """Embeds what is given, and compares texts with images, or with their native translations.

        Args:
            input_ids ([N, T]), attention_mask ([N, T]), language_ids ([N]): texts, as in `get_text_features`.
            pixel_values ([M, 3, H, W]): images; a loss needs M = N.
            image_features ([M, d]): features of the images that were computed before, instead.
            paired_input_ids, paired_attention_mask: native translations of the texts, as ids of the native tokenizer.
                Their features are targets and receive no gradient.
            paired_language_ids: zeros, or nothing.
            paired_text_features ([N, d]): features of these translations that were computed before, instead.
            return_loss: whether to compute `contrastive_objective`; by default, if `positives` are given.
            return_logits: whether to compute the similarities of all images with all texts.
            positives: further pairs that belong together, as collators mark them; see `contrastive_loss`.
            text_features ([N, W]): pooled features of the text encoder of a student, which were computed before
                (`tower_features`), in the place of texts.
            kwargs: arguments of transformers for both towers, such as `output_hidden_states`, and those that one tower
                has.

        Returns:
            Embeddings, similarities and loss.

        Raises:
            ArgumentError: for a keyword that neither tower has.
            InputError: if there is nothing to embed.
        """
        text_kwargs, image_kwargs = self.keywords_of_towers(kwargs)
        keeps_states = return_logits or asks_for_states(kwargs)
        texts = images = None
        if text_features is not None:
            text_kwargs = text_kwargs | {"text_features": text_features}
        if input_ids is not None or text_features is not None:
            texts = self.get_text_features(input_ids, attention_mask, language_ids, return_dict=True, **text_kwargs)
            texts = texts if keeps_states else without_states(texts)
        if pixel_values is not None:
            with torch.set_grad_enabled(self.trains_native and torch.is_grad_enabled()):
                images = self.get_image_features(pixel_values, return_dict=True, **image_kwargs)
            images = images if keeps_states else without_states(images)
            image_features = images.pooler_output
        if paired_input_ids is not None:
            paired_text_features = self._paired_features(paired_input_ids, paired_attention_mask, paired_language_ids)
        text_features = None if texts is None else texts.pooler_output
        output = MlaOutput(
            text_embeds=None if text_features is None else normalize(text_features),
            image_embeds=None if image_features is None else normalize(image_features),
            text_model_output=with_states(texts),
            vision_model_output=with_states(images),
            paired_text_embeds=None if paired_text_features is None else normalize(paired_text_features),
            temperature=self._temperature(),
            logit_bias=self._bias_of_loss(),
            text_features=text_features,
            image_features=image_features,
            paired_text_features=paired_text_features,
        )
        return self.with_logits_and_loss(
            output, return_logits=return_logits, return_loss=return_loss, positives=positives
        )

    @property
    def logit_bias(self) -> Tensor | float:
        return getattr(self.native_model, "logit_bias", 0.0)

    @torch.no_grad()
    def _paired_features(
        self, input_ids: Tensor, attention_mask: Tensor | None, language_ids: Tensor | None
    ) -> Tensor:
        if language_ids is not None and language_ids.any():
            raise ValueError(
                "paired texts must be in the native language: their features are the targets of the other texts"
            )
        inputs = {} if attention_mask is None else {"attention_mask": attention_mask}
        embed = self.native_model.get_text_features
        return features_of(embed, input_ids=input_ids, return_dict=True, **inputs).pooler_output

    @property
    def temperature_parameter(self) -> nn.Parameter:
        """The weight [] of the native model that determines its temperature."""
        native = self.native_model
        return native.logit_scale if hasattr(native, "logit_scale") else native.temperature

    def _temperature(self) -> Tensor:
        """Returns what divides the cosines in the native model."""
        native = self.native_model
        if hasattr(native, "logit_scale"):
            temperature = (-native.logit_scale).exp()
            # A frozen temperature is not bounded: that of SigLIP is lower.
            return at_least(temperature, MIN_TEMPERATURE) if self.trains_temperature else temperature
        return at_least(native.temperature, MIN_TEMPERATURE)

    def _bias_of_loss(self) -> Tensor | None:
        """Returns what the native model adds to its logits, [], for an objective that reads it."""
        bias = self.logit_bias
        if self.config.image_text_objective != "sigmoid" or not isinstance(bias, Tensor):
            return None
        return bias.clone().reshape(())

    def check_objectives(self) -> None:
        """Checks that the native model has what the objectives of the configuration read.

        Raises:
            ModelKindError: if its logits have no bias, and images and texts are compared by the sigmoid.
        """
        if self.config.image_text_objective == "sigmoid" and not isinstance(self.logit_bias, Tensor):
            raise ModelKindError(
                "image_text_objective='sigmoid' needs a native model whose logits have a bias, such as SigLIP; those "
                f"of {self.native_model.config.model_type!r} have none: choose 'nce'"
            )

    @torch.no_grad()
    def bound_temperature(self) -> None:
        native = self.native_model
        if not self.trains_temperature:
            return
        if hasattr(native, "logit_scale"):
            native.logit_scale.clamp_(max=-math.log(MIN_TEMPERATURE))
        else:
            native.temperature.clamp_(min=MIN_TEMPERATURE)

    def contrastive_objective(
        self, output: MlaOutput, *, positives: Tensor | None = None, tile_size: int | None = None
    ) -> Tensor:
        """Computes native language transfer on translations (equation 4), language exposure on images (equation 5), or
        their sum on texts with both.

        Arguments are those of `DualEncoderPreTrainedModel`.

        Raises:
            ModelKindError: as in `check_objectives`.
            ValueError: if the output has no texts, or neither images nor native translations.
        """
        self.check_objectives()
        return self.mean_over_widths(partial(self._objective, positives=positives, tile_size=tile_size), output)

    def _objective(self, output: Any, *, positives: Tensor | None, tile_size: int | None) -> Tensor:
        pairs = [
            (output.paired_text_features, output.paired_text_embeds, self.config.text_text_objective),
            (output.image_features, output.image_embeds, self.config.image_text_objective),
        ]
        given = [(target, embeds, kind) for target, embeds, kind in pairs if target is not None]
        if output.text_features is None or not given:
            raise ValueError("a loss needs texts and their images or native translations")
        temperature = output.temperature if self.trains_temperature else 1 / self.config.logit_scale
        options = {"positives": positives, "tile_size": tile_size}

        def loss(features: Tensor, embeds: Tensor, objective: str) -> Tensor:
            if objective == "mse":
                return nn.functional.mse_loss(output.text_features.float(), features.float())
            if objective == "sigmoid":
                return sigmoid_loss(embeds, output.text_embeds, output.temperature, output.logit_bias, **options)
            return symmetric_contrastive_loss(embeds, output.text_embeds, temperature, **options) / 2

        losses = [loss(*each) for each in given]
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]
