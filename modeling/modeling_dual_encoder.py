"""The base of all dual encoders: their output, their base class and the learned temperature.

A dual encoder embeds images x and texts y in one space and compares them by s(x, y) = cos(x, y) / t. Its inputs
determine the pairs in a batch: `pixel_values`, `input_ids` and `paired_input_ids` (translations of the texts) give
`image_embeds`, `text_embeds` and `paired_text_embeds`. A method's `contrastive_objective` computes the training loss
from them. Trainers call the same function on embeddings gathered from many chunks or processes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization as init
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput, TransformersKwargs

from ..utils.errors import InputError
from ..utils.hub_mixin import HubCodeMixin


@dataclass
class DualEncoderOutput(ModelOutput):
    """Output of a dual encoder.

    Args:
        loss ([]): training loss of this batch, with `return_loss=True`.
        logits_per_image ([n_images, n_texts]): cosines divided by the temperature.
        logits_per_text ([n_texts, n_images]): its transpose.
        text_embeds ([n_texts, d]): normalized embeddings of the texts.
        image_embeds ([n_images, d]): normalized embeddings of the images.
        text_model_output: output of `get_text_features` for the texts.
        vision_model_output: output of `get_image_features` for the images.
        paired_text_embeds ([n_texts, d]): normalized embeddings of the translations of the texts.
        temperature ([]): the learned temperature, at least 0.01, as a part of the graph.
        logit_bias ([]): the bias added to the logits, if the image-text loss uses one (`sigmoid_loss`).
    """

    loss: Tensor | None = None
    logits_per_image: Tensor | None = None
    logits_per_text: Tensor | None = None
    text_embeds: Tensor | None = None
    image_embeds: Tensor | None = None
    text_model_output: BaseModelOutputWithPooling | None = None
    vision_model_output: BaseModelOutputWithPooling | None = None
    paired_text_embeds: Tensor | None = None
    temperature: Tensor | None = None
    logit_bias: Tensor | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(value.to_tuple() if isinstance(value, ModelOutput) else value for value in self.values())


OutputT = TypeVar("OutputT", bound=DualEncoderOutput)
# The output fields with vectors in the shared space.
_SIDES = ("text", "image", "paired_text", "masked_text")
_EMBEDDINGS = [f"{side}_{kind}" for side in _SIDES for kind in ("embeds", "features")]


class RenamedWeight(WeightRenaming):
    """Reads a weight under its name in earlier versions; it is saved under its current name."""

    __slots__ = ()

    def reverse_transform(self) -> Self:
        # By default, transformers would save the weight under its loaded name.
        return self


class WeightsAsMade(PreTrainedModel):
    """Base class of all models; put it before `HubCodeMixin` and `PreTrainedModel` among the bases.

    A loaded model equals a new one unless its folder says otherwise: weights that are frozen in a new model are
    frozen, and modules marked by `initialized_by_itself` initialize missing weights with `reset_parameters`.
    """

    # Names of weights in the folders of earlier versions -> their current names.
    renamed_weights: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        renamings = [RenamedWeight(f"^{re.escape(old)}$", new) for old, new in cls.renamed_weights.items()]
        if renamings:
            register_checkpoint_conversion_mapping(cls.__name__, renamings, overwrite=True)

    def post_init(self) -> None:
        super().post_init()
        self._frozen_as_made = {name for name, weight in self.named_parameters() if not weight.requires_grad}

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Loads as transformers does, and freezes the weights that are frozen in a new model."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with `output_loading_info`
        for name, weight in model.named_parameters():
            if name in model._frozen_as_made:
                weight.requires_grad_(False)
        return loaded

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


# Keywords that transformers passes to all layers of a model, except two: positions are an input of texts, and
# `num_items_in_batch` is for losses that are sums over items, while the losses here are means.
_SHARED = frozenset(TransformersKwargs.__annotations__) - {"position_ids", "num_items_in_batch"}


def tower_keywords(given: dict[str, Any], *calls: Callable[..., Any]) -> dict[str, Any]:
    """Returns the extra keyword arguments of a call that concern a tower: transformers' own, such as
    `output_hidden_states`, and the parameters of the functions that run the tower."""
    accepted = _SHARED.union(*(signature(call).parameters for call in calls)) - {"inputs_embeds"}
    return {name: value for name, value in given.items() if name in accepted}


class DualEncoderPreTrainedModel(WeightsAsMade, HubCodeMixin, PreTrainedModel):
    """Base class of the dual encoders.

    Subclasses define `get_text_features`, `get_image_features` and `contrastive_objective`.
    """

    base_model_prefix = "dual_encoder"
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    # Otherwise Trainer would divide the loss by the number of items in a batch, but it is already a mean over pairs.
    accepts_loss_kwargs = False
    sentence_module = "sentence_modules.DualEncoderModule"  # runs the model in sentence-transformers

    def get_input_embeddings(self) -> nn.Module:
        return self.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.text_model.set_input_embeddings(value)

    def contrastive_objective(self, output: DualEncoderOutput, *, positives: Tensor | None = None) -> Tensor:
        """Computes the training loss [] from the embeddings of a batch, or of several chunks or processes. Methods add
        the keywords `tile_size` (as in `contrastive_loss`) and `step` (a `TrainingStep`) if their loss uses them."""
        raise NotImplementedError

    def mean_over_widths(self, loss: Callable[[OutputT], Tensor], output: OutputT) -> Tensor:
        """Returns the mean of a loss over the whole embeddings and their first dimensions, up to each of the
        configuration's `matryoshka_dims`; `loss` normalizes the embeddings that it compares."""
        widths = self.config.matryoshka_dims
        if not widths:
            return loss(output)
        present = {name: value for name in _EMBEDDINGS if (value := output.get(name)) is not None}
        cut = [replace(output, **{name: value[:, :width] for name, value in present.items()}) for width in widths]
        return torch.stack([loss(each) for each in (output, *cut)]).mean()

    def bound_temperature(self) -> None:
        """Raises a learned temperature to its lower bound; trainers call it after each step of the optimizer."""

    @property
    def logit_bias(self) -> Tensor | float:
        """The bias added to the logits, which SigLIP has."""
        return 0.0

    def with_logits_and_loss(
        self, output: OutputT, *, return_logits: bool, return_loss: bool | None, positives: Tensor | None = None
    ) -> OutputT:
        """Adds the similarities of all images with all texts, and the loss, to the embeddings of a batch. By default,
        it computes the loss only if `positives` are given. Without logits, as in training on large batches, it drops
        the states of the towers, unless they were asked for."""
        if output.text_embeds is None and output.image_embeds is None and output.paired_text_embeds is None:
            raise InputError(f"{type(self).__name__} was called without texts (input_ids) and images")
        if return_loss is None:
            return_loss = positives is not None
        parts = {name: output.get(name) for name in ("text_model_output", "vision_model_output")}
        output = replace(output, **{name: _kept(part, return_logits) for name, part in parts.items()})
        if return_logits and output.text_embeds is not None and output.image_embeds is not None:
            logits = output.text_embeds @ output.image_embeds.T / output.temperature  # [n_texts, n_images]
            logits = logits + self.logit_bias
            output = replace(output, logits_per_text=logits, logits_per_image=logits.T)
        return replace(output, loss=self.contrastive_objective(output, positives=positives)) if return_loss else output

    def parameter_parts(self) -> dict[str, int]:
        """Returns the number of parameters of each part, divided as in the papers; the numbers add up to the total."""
        embeddings = sum(
            p.numel() for m in self.text_model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()
        )
        towers = {"image": count_parameters(self.vision_model), "embeddings": embeddings}
        towers["transformer"] = count_parameters(self.text_model) - embeddings
        return towers | {"heads": count_parameters(self) - sum(towers.values())}


def count_parameters(module: nn.Module) -> int:
    """Counts the parameters of a module; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def in_dtype_of(tower: PreTrainedModel, images: Tensor) -> Tensor:
    """Casts images, or image features, to a tower's floating-point type, which some towers do not do themselves."""
    return images.to(tower.dtype) if images.is_floating_point() else images


def as_output(features: BaseModelOutputWithPooling | Tensor) -> BaseModelOutputWithPooling:
    """Returns the output of a dual encoder's `get_text_features` or `get_image_features`; code that comes with a model
    may return only the features [N, d]."""
    return BaseModelOutputWithPooling(pooler_output=features) if isinstance(features, Tensor) else features


def with_embeddings(output: Any, embeddings: Tensor) -> BaseModelOutputWithPooling:
    """Returns a tower's output with embeddings [N, d] instead of its pooled features."""
    states, attentions = output.get("hidden_states"), output.get("attentions")
    return BaseModelOutputWithPooling(output.last_hidden_state, embeddings, states, attentions)


def _kept(output: Any, always: bool) -> Any:
    """Returns a tower's output, or `None` if it has only pooled features, or is not needed."""
    if output is None or output.last_hidden_state is None:
        return None
    has_layers = output.get("hidden_states") is not None or output.get("attentions") is not None
    return output if always or has_layers else None


def normalize(features: Tensor) -> Tensor:
    """Scales rows to unit length, so a dot product is a cosine; a row of zeros stays zero. [N, d] -> [N, d]"""
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    return nn.functional.normalize(wide, dim=-1).to(features.dtype)


# Also in every saved folder, although nothing here imports it; these lines never run (`hub_code`).
SHIPS_WITH = """
from ..inference.feature_extraction_pipeline import MultilingualFeatureExtractionPipeline
from ..inference.zero_shot_pipeline import MultilingualZeroShotPipeline
from ..processing.sentence_modules import DualEncoderModule
"""

# Nothing in the loss keeps a temperature positive: once the model separates nearly all pairs, the gradient lowers it
# at every step. It is bounded like CLIP's (Radford et al. 2021, section 2.5: logits are multiplied by at most 100).
MIN_TEMPERATURE = 0.01


class _AtLeast(torch.autograd.Function):
    """Clamps a value from below, but keeps the gradient that would raise it; with `clamp`, a value below the bound
    would never change again."""

    @staticmethod
    def forward(value: Tensor, bound: float) -> Tensor:
        return value.clamp(min=bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0] < inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.masked_fill(ctx.saved_tensors[0] & (gradient > 0), 0), None


def at_least(value: Tensor, bound: float) -> Tensor:
    """Returns `value`, or `bound` where `value` is below it."""
    return _AtLeast.apply(value, bound)


class LearnedTemperature(nn.Module):
    """A learned temperature."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(float(initial)))

    def forward(self) -> Tensor:
        """Returns the bounded temperature [], which divides the cosines."""
        return at_least(self.temperature, MIN_TEMPERATURE)

    @torch.no_grad()
    def bound(self) -> None:
        self.temperature.clamp_(min=MIN_TEMPERATURE)
