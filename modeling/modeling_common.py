"""What models of several methods share: weights as they are made, keyword arguments of `forward`, texts in groups of
one length, exports, and the number of the training step.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization as init
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.utils import TransformersKwargs

from ..utils.errors import ArgumentError

# ---- Makes a loaded model equal to a new one, wherever its folder does not say otherwise ----
#
# When transformers loads a model, it builds it without memory and then replaces the parameters. Three things would
# be lost on the way:
#
#     frozen weights     a weight that is frozen in a new model is frozen in a loaded one
#     missing weights    are initialized as in a new model: by the module's own `reset_parameters` where it was marked
#                        with `initialized_by_itself`, and by transformers' `_init_weights` everywhere else
#     renamed weights    are found under the names that earlier versions saved, and are saved under today's names

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def initialized_by_itself(module: ModuleT) -> ModuleT:
    """Marks `module` as one that its own `reset_parameters` initializes, and not the model around it; returns it.

    Args:
        module: has just initialized its weights, or is on the `meta` device because a model is being loaded.
    """
    # While a model is being loaded, its weights have no memory yet and could not be initialized.
    module.awaits_weights = next(module.parameters()).is_meta
    if not module.awaits_weights:
        _leave_as_it_is(module)
    return module


def _leave_as_it_is(module: nn.Module) -> None:
    for part in module.modules():
        part._is_hf_initialized = True  # otherwise the model around it would initialize it again


class RenamedWeight(WeightRenaming):
    """Reads a weight under the name that earlier versions saved; it is saved under today's name."""

    __slots__ = ()

    def reverse_transform(self) -> Self:
        # By default, transformers would save the weight under the name under which it was loaded.
        return self


class WeightsAsMade(PreTrainedModel):
    """Base class of all models here; put it before `HubCodeMixin` and `PreTrainedModel` among the bases."""

    # Names of weights in the folders of earlier versions -> their names today.
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
        """Loads as transformers does. Weights that are frozen in a new model are frozen in the loaded one, whichever
        weights the saved model trained."""
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
                module.reset_parameters()  # leaves the weights that were loaded as they are
                module.awaits_weights = False
                _leave_as_it_is(module)
        for module in self.modules():
            # Inside of a custom class, transformers initializes only modules that hold weights themselves. It would
            # pass over CLIP's attention, which initializes the weights of its parts.
            if isinstance(module, PreTrainedModel) and not module.is_custom_code():
                module.initialize_weights()
        super().initialize_weights()

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Reads the old names in torch's `load_state_dict`, too, by which trainers load checkpoints."""
        for old, new in self.renamed_weights.items():
            if prefix + old in state_dict:
                state_dict[prefix + new] = state_dict.pop(prefix + old)
        super()._load_from_state_dict(state_dict, prefix, *args)


# ---- Forward keywords ----
# Keyword arguments that every `forward` accepts beside its own inputs: those of transformers, such as
# `output_hidden_states`, which are passed to the towers. Any other is refused with an error that names it, because
# a misspelt input would otherwise be ignored silently.

# Keywords that transformers passes to all layers of a model, without two: positions are an input of texts, and
# `num_items_in_batch` is for losses that are sums over items, whereas those here are means.
_SHARED = frozenset(TransformersKwargs.__annotations__) - {"position_ids", "num_items_in_batch"}
# PEFT and Trainer pass these in every call, but no model here reads them.
_UNREAD = frozenset(["inputs_embeds", "decoder_inputs_embeds", "num_items_in_batch"])

Call = Callable[..., Any]


def tower_keywords(
    model: nn.Module, given: dict[str, Any], *towers: Sequence[Call], own: Sequence[str] = ()
) -> tuple[dict[str, Any], ...]:
    """Divides the further keyword arguments of a call between the towers.

    Args:
        model: the model that was called.
        given: its keyword arguments, without those of its own signature.
        towers: for each tower, the functions that receive the keywords; their parameters are the keywords it has.
        own: further keywords that all towers have.

    Returns:
        The keyword arguments of each tower.

    Raises:
        ArgumentError: for a keyword that no tower has, or for embeddings instead of token ids.
    """
    shared: dict[str, Any] = {}
    chosen: tuple[dict[str, Any], ...] = tuple({} for _ in towers)
    for name, value in given.items():
        if name in _SHARED or name in own:
            shared[name] = value
            continue
        if name == "num_items_in_batch" or (name in _UNREAD and value is None):
            continue
        takers = [mine for mine, calls in zip(chosen, towers, strict=True) if any(_names(c, name) for c in calls)]
        if not takers or name in _UNREAD:
            reason = "reads token ids, not" if name in _UNREAD else "takes no keyword"
            raise ArgumentError(f"{type(model).__name__} {reason} {name!r}")
        for mine in takers:
            mine[name] = value
    return tuple(shared | mine for mine in chosen)


def asks_for_states(given: dict[str, Any]) -> bool:
    """Returns whether keyword arguments ask for the hidden states or attentions of the layers."""
    return bool(given.get("output_hidden_states") or given.get("output_attentions"))


def _names(call: Call, name: str) -> bool:
    parameter = signature(call).parameters.get(name)
    return parameter is not None and parameter.kind is not Parameter.VAR_KEYWORD


# ---- Length groups ----
def text_ends(attention_mask: Tensor) -> Tensor:
    """Returns the number of columns up to the last token of each row [N], of a mask [N, T]: the length of a text that
    is padded on the right, and T of one that is padded on the left."""
    columns = torch.arange(1, attention_mask.shape[1] + 1, device=attention_mask.device)
    return (attention_mask.bool() * columns).amax(1)


# ---- Tells whether a graph of the model is being made, which must not depend on the values in a tensor ----
#
# In such a graph, rows of several kinds all go through the layers of every kind, padding is computed and discarded
# afterwards, and inputs are not checked. The results are the same, but it costs time and memory.


def is_exporting() -> bool:
    """Returns whether `torch.export`, on which ONNX exports are built, or `torch.jit.trace` is running, or
    `torch.compile` without gradients, which then makes one graph of a tower (`fullgraph=True`).

    Training that is compiled goes on to treat rows by their kind, which needs several graphs and costs less.
    """
    compiler = torch.compiler
    if compiler.is_exporting() or torch.jit.is_tracing():
        return True
    return compiler.is_compiling() and not torch.is_grad_enabled()


# ---- How far training has come, for losses that change with the training step ----


@dataclass(frozen=True)
class TrainingStep:
    """The step for which a loss is computed. The defaults stand for the first step of a run.

    Args:
        index: number of optimizer steps that were taken before this one.
        total: number of optimizer steps of the whole run.
    """

    index: int = 0
    total: int = 0

    @property
    def progress(self) -> float:
        """The share of the run that is done, from 0 to 1."""
        return self.index / max(self.total, 1)


FIRST_STEP = TrainingStep()
