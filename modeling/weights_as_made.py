"""A loaded model's weights are as when a model is made, wherever its folder does not say otherwise.

transformers makes a model without memory when it loads one, and gives it new parameters. So that nothing gets lost,

    frozen weights     are frozen again: which ones train says the configuration, never the folder
    missing weights    are drawn as when the model is made, `drawn_by_itself` apart by transformers' `_init_weights`
    renamed weights    are found under the names that earlier versions saved, and saved under those of today
"""

import re
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization as init
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def drawn_by_itself(module: ModuleT) -> ModuleT:
    """Says that the weights of `module` are drawn by its own `reset_parameters`, as they just have been, and not as
    the model around it draws its own; returns it."""
    # While a model is being loaded, nothing has memory yet, and nothing has been drawn.
    module.awaits_weights = next(module.parameters()).is_meta
    if not module.awaits_weights:
        _leave_as_it_is(module)
    return module


def _leave_as_it_is(module: nn.Module) -> None:
    for part in module.modules():
        part._is_hf_initialized = True  # else the model around it would draw it again


class RenamedWeight(WeightRenaming):
    """A weight's name in the folders of earlier versions, read as the name of today, under which it is saved."""

    __slots__ = ()

    def reverse_transform(self) -> Self:
        # transformers saves under the names that it has loaded; nothing has the old one any more.
        return self


class WeightsAsMade(PreTrainedModel):
    """Put before `HubCodeMixin` and `PreTrainedModel`."""

    # Names of weights in the folders of earlier versions, and their names in the class.
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
        """As in transformers. What is frozen in a model that is made is frozen in a loaded one, whatever was trained
        in the saved one."""
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
                module.reset_parameters()  # of those alone that were not loaded
                module.awaits_weights = False
                _leave_as_it_is(module)
        for module in self.modules():
            # Of a model that is none of its own, transformers asks only the modules with weights to draw them. CLIP's
            # attention, which draws those of its parts, would not be asked.
            if isinstance(module, PreTrainedModel) and not module.is_custom_code():
                module.initialize_weights()
        super().initialize_weights()

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """torch's `load_state_dict`, by which trainers read checkpoints."""
        for old, new in self.renamed_weights.items():
            if prefix + old in state_dict:
                state_dict[prefix + new] = state_dict.pop(prefix + old)
        super()._load_from_state_dict(state_dict, prefix, *args)
