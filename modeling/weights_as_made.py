"""Makes a loaded model equal to a new one, wherever its folder does not say otherwise.

When transformers loads a model, it builds it without memory and then replaces the parameters. Three things would be
lost on the way:

    frozen weights     a weight that is frozen in a new model is frozen in a loaded one
    missing weights    are initialized as in a new model: by the module's own `reset_parameters` where it was marked
                       with `initialized_by_itself`, and by transformers' `_init_weights` everywhere else
    renamed weights    are found under the names that earlier versions saved, and are saved under today's names
"""

import re
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization as init
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming

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
