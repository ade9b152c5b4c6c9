"""The base of all dual encoders, which embed images x and texts y in one space, compared by s(x, y) = cos(x, y) / t.
`pixel_values`, `input_ids` and `paired_input_ids` (translations of the texts) give embeddings, from which a method's
`contrastive_objective` computes the loss; trainers call it on those of many chunks or processes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    initialization as init,
)
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.models.clip.modeling_clip import CLIPOutput
from transformers.utils import TransformersKwargs

from ..configuration.configuration_two_tower import POOLER
from ..utils.errors import InputError
from ..utils.hub_mixin import HubCodeMixin


@dataclass
class DualEncoderOutput(CLIPOutput):
    """Output of a dual encoder: CLIP's, with normalized embeddings [.., d] also of translations. `logits_per_image`
    [n_images, n_texts] are cosines divided by the `temperature` [], at least 0.01, plus `logit_bias` [] if any."""

    paired_text_embeds: Tensor | None = None
    temperature: Tensor | None = None
    logit_bias: Tensor | None = None


class WeightsAsMade(PreTrainedModel):
    """Base class of all models, before `HubCodeMixin` and `PreTrainedModel` among the bases: a loaded model freezes
    the weights that a new one does, and modules marked by `initialized_by_itself` initialize missing weights."""

    # The parts that papers count -> regular expressions for the beginning of parameter names; the first match decides.
    parts: ClassVar[dict[str, str]]
    # Otherwise Trainer would divide the loss by the number of items in a batch, but the losses here are already means.
    accepts_loss_kwargs = False

    def post_init(self) -> None:
        super().post_init()
        self._frozen_as_made = {name for name, weight in self.named_parameters() if not weight.requires_grad}

    def parameter_parts(self) -> dict[str, int]:
        """Returns the number of parameters of each of `parts` that has some; the numbers add up to the total."""
        counts = dict.fromkeys(self.parts, 0)
        for name, parameter in self.named_parameters():
            counts[next(part for part, names in self.parts.items() if re.match(names, name))] += parameter.numel()
        return {part: count for part, count in counts.items() if count}

    @torch.no_grad()
    @init.guard_torch_init_functions()
    def initialize_weights(self) -> None:
        for module in self.modules():
            if getattr(module, "awaits_weights", False):
                module.reset_parameters()  # does not change loaded weights
                module.awaits_weights = False
                for part in module.modules():
                    part._is_hf_initialized = True
        for module in self.modules():
            # Inside a custom class, transformers initializes only modules that directly have weights. It would skip
            # CLIP's attention, which initializes the weights of its parts.
            if isinstance(module, PreTrainedModel) and not module.is_custom_code():
                module.initialize_weights()
        super().initialize_weights()
        for name, weight in self.named_parameters():  # which are not those of the new model if this one is loaded
            if name in getattr(self, "_frozen_as_made", ()):
                weight.requires_grad_(False)


# Keywords that transformers passes to all layers of a model, except two: positions are an input of texts, and
# `num_items_in_batch` is for losses that are sums over items, while the losses here are means.
_SHARED = frozenset(TransformersKwargs.__annotations__) - {"position_ids", "num_items_in_batch"}


def tower_keywords(given: dict[str, Any], *calls: Callable[..., Any]) -> dict[str, Any]:
    """Returns the keywords that transformers' layers share, such as `output_hidden_states`, or that `calls` accept."""
    accepted = _SHARED.union(*(signature(call).parameters for call in calls)) - {"inputs_embeds"}
    return {name: value for name, value in given.items() if name in accepted}


class DualEncoderPreTrainedModel(WeightsAsMade, HubCodeMixin, PreTrainedModel):
    """Base class of dual encoders; subclasses define `get_text_features`, `get_image_features`, and `_objective` or
    `contrastive_objective`."""

    base_model_prefix = "dual_encoder"
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    parts: ClassVar[dict[str, str]] = {
        "image": "vision_model",
        "embeddings": r"text_model\..*(embeddings?|embed_\w+|shared|relative_attention_bias)\.weight",
        "transformer": "text_model",
        "heads": "",
    }
    logit_bias: Tensor | float = 0.0  # added to the logits, as in SigLIP
    _objective: Callable[..., Tensor]  # computes the loss of embeddings of one width
    sentence_module = "inference.sentence_modules.DualEncoderModule"  # runs the model in sentence-transformers

    def get_input_embeddings(self) -> nn.Module:
        return self.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.text_model.set_input_embeddings(value)

    def contrastive_objective(self, output: Any, **options: Any) -> Tensor:
        """Computes the training loss [] from the embeddings of a batch, or of several chunks or processes. Options are
        `positives` and `tile_size` (as in `contrastive_loss`), and `step`, for losses that change in training."""
        from .losses.contrastive import mean_over_widths

        return mean_over_widths(partial(self._objective, **options), output, self.config.matryoshka_dims)

    def with_logits_and_loss(
        self, output: Any, return_logits: bool, return_loss: bool | None, positives: Tensor | None
    ) -> Any:
        """Adds the similarities of all images with all texts, and the loss, by default only with `positives`. Without
        logits, as in training on large batches, it drops the states of the towers unless they were asked for."""
        if output.text_embeds is None and output.image_embeds is None and output.paired_text_embeds is None:
            raise InputError(f"{type(self).__name__} was called without texts (input_ids) and images")
        for name in ("text_model_output", "vision_model_output"):
            states: Any = output.get(name) or {}
            is_asked_for = states.get("hidden_states") is not None or states.get("attentions") is not None
            if states.get("last_hidden_state") is None or not (return_logits or is_asked_for):
                output = replace(output, **{name: None})
        if return_logits and output.text_embeds is not None and output.image_embeds is not None:
            logits = output.text_embeds @ output.image_embeds.T / output.temperature  # [n_texts, n_images]
            logits = logits + self.logit_bias
            output = replace(output, logits_per_text=logits, logits_per_image=logits.T)
        if not (positives is not None if return_loss is None else return_loss):
            return output
        if not hasattr(self, "contrastive_objective"):
            raise NotImplementedError("the code in a model's folder has no losses: `import babelens` to train it")
        return replace(output, loss=self.contrastive_objective(output, positives=positives))


def in_dtype_of(tower: PreTrainedModel, images: Tensor) -> Tensor:
    """Casts images, or image features, to a tower's floating-point type, which some towers do not do themselves."""
    return images.to(tower.dtype) if images.is_floating_point() else images


def with_embeddings(output: Any, embeddings: Tensor) -> BaseModelOutputWithPooling:
    """Returns a tower's output with embeddings [N, d] instead of its pooled features."""
    states, attentions = output.get("hidden_states"), output.get("attentions")
    return BaseModelOutputWithPooling(output.last_hidden_state, embeddings, states, attentions)


def normalize(features: Tensor) -> Tensor:
    """Scales rows to unit length, so a dot product is a cosine; a row of zeros stays zero. [N, d] -> [N, d]"""
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    return nn.functional.normalize(wide, dim=-1).to(features.dtype)


# ---- Temperature ----

# Nothing in the loss keeps a temperature positive: once the model separates nearly all pairs, the gradient lowers it
# at every step. It is bounded like CLIP's (Radford et al. 2021, section 2.5: logits are multiplied by at most 100).
MIN_TEMPERATURE = 0.01


class _AtLeast(torch.autograd.Function):
    """Clamps a value from below, but keeps the gradient that would raise it; with `clamp`, a value below the bound
    would never change again."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(value < bound)
        return value.clamp(min=bound)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.masked_fill(ctx.saved_tensors[0] & (gradient > 0), 0), None


at_least = _AtLeast.apply


class LearnedTemperature(nn.Module):
    """A learned temperature; its value [], which divides the cosines, is at least `MIN_TEMPERATURE`."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(float(initial)))

    def forward(self) -> Tensor:
        return at_least(self.temperature, MIN_TEMPERATURE)


# ---- Towers ----


def tower_class(config: PreTrainedConfig) -> Any:
    """Returns the class of a tower, or `AutoModel` if transformers decides, as it does for code from the Hub."""
    if config.model_type == "m2m_100":  # which `AutoModel` has with its decoder
        return transformers.models.m2m_100.modeling_m2m_100.M2M100Encoder
    if config.model_type.endswith(("_text_model", "_vision_model")):  # `AutoModel` lacks some of them
        return getattr(transformers, type(config).__name__.replace("Config", "Model"), AutoModel)
    found = MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), MODEL_MAPPING.get(type(config), AutoModel))
    return AutoModel if isinstance(found, tuple) else found


def build_tower(config: PreTrainedConfig, *, pooler: bool | None = None) -> PreTrainedModel:
    """Builds an untrained text encoder or vision backbone. By default, a backbone has its class's optional pooling
    layer, and a text encoder has none, because next-sentence prediction trained that layer."""
    chosen = tower_class(config)
    if pooler is None and hasattr(config, "vocab_size"):
        pooler = False
    has_choice = pooler is not None and "add_pooling_layer" in signature(chosen).parameters
    options = {"add_pooling_layer": pooler} if has_choice else {}
    attends = hasattr(config, "num_attention_heads")
    if not attends:
        config._attn_implementation = "eager"  # the only one that transformers accepts for such towers
    tower = (AutoModel.from_config if chosen is AutoModel else chosen._from_config)(config, **options)
    if not attends:  # so that another can be set later, for the text tower
        tower._supports_sdpa = tower._supports_flash_attn = tower._supports_flex_attn = True
    return tower


def text_head(width: int, out_width: int, hidden_size: int | None, dropout: float) -> nn.Module:
    """Returns a linear layer from pooled texts to a shared space, or two around a hidden layer with dropout."""
    if hidden_size is None:
        return nn.Linear(width, out_width)
    return nn.Sequential(
        nn.Linear(width, hidden_size), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden_size, out_width)
    )


def text_head_input(width: int, *, layer_norm: bool, dropout: float) -> nn.Module:
    """Returns the modules between pooled texts and their head: an optional layer normalization, and dropout."""
    normalization = [nn.LayerNorm(width, elementwise_affine=False)] if layer_norm else []
    return nn.Sequential(*normalization, nn.Dropout(dropout))


def pool_image(output: BaseModelOutputWithPooling, pooling: str = POOLER) -> Tensor:
    """Returns one vector for each image [N, width]: the mean over all positions (`mean`), the state of the first one
    (`cls`), or the backbone's own pooling, which is the mean if it has none (`pooler`)."""
    pooled = getattr(output, "pooler_output", None) if pooling == POOLER else None
    if pooled is None:
        last = output.last_hidden_state  # [N, width, H, W] or [N, patches, width]
        if pooling == "cls" and last.dim() == 3:
            return last[:, 0]
        pooled = last.mean((-2, -1)) if last.dim() == 4 else last.mean(1)
    return pooled.flatten(1)


def pool_text(
    output: BaseModelOutput, input_ids: Tensor, attention_mask: Tensor | None, config: PreTrainedConfig
) -> Tensor:
    """Returns one vector for each text [N, width], as `text_pooling` says: the state of its first token (`cls`) or
    last one (`eos`; without a mask, the first `eos_token_id`), the mean over its tokens (`mean`), or the encoder's
    pooling (`pooler`)."""
    pooling, end_id = config.text_pooling, getattr(config.text_config, "eos_token_id", None)
    if pooling == POOLER:
        return output.pooler_output
    states = output.last_hidden_state  # [N, T, width]
    if pooling == "cls":
        return states[:, 0]
    if pooling == "mean":
        if attention_mask is None:
            return states.mean(1)
        weights = attention_mask.to(states.dtype)[..., None]  # [N, T, 1]
        return (states * weights).sum(1) / weights.sum(1).clamp_min(1)
    if attention_mask is not None:
        last = (attention_mask * torch.arange(states.shape[1], device=states.device)).argmax(-1)
    elif end_id is not None:
        last = (input_ids == end_id).int().argmax(-1)
    else:
        return states[:, -1]
    return states[torch.arange(len(states), device=states.device), last]


def eval_frozen_modules(module: nn.Module) -> None:
    """Sets evaluation mode, without dropout and new batch statistics, in the modules whose weights are all frozen.
    Batch normalization updates its statistics only if all of its weights are trained."""
    trained = [weight.requires_grad for weight in module.parameters()]
    if trained and all(trained):
        return
    if isinstance(module, _NormBase) or (trained and not any(trained)):
        module.eval()
        return
    for child in module.children():
        eval_frozen_modules(child)


# Also in every saved folder, although nothing here imports it; these lines never run (`hub_code`).
SHIPS_WITH = """
from ..inference.pipelines import MultilingualFeatureExtractionPipeline
from ..inference.sentence_modules import DualEncoderModule
"""
