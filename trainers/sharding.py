"""Sharded training by accelerate's FSDP or DeepSpeed: checks of settings, and the preparation of models.

FSDP2 shards each weight along its first dimension. A scalar such as the temperature has no dimension: every process
keeps it, and transformers' `Trainer` averages its gradient. Evaluation computes embeddings with other methods than
`forward`; these must gather the sharded weights as well.
"""

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils.fsdp_utils import get_parameters_from_modules
from torch import nn
from torch.distributed.fsdp import register_fsdp_forward_method

from ..configuration.errors import TrainingSetupError
from .arguments import LAMB, ContrastiveTrainingArguments
from .tower_training import checked_training


def check_shardable(args: ContrastiveTrainingArguments, state: AcceleratorState) -> None:
    """Checks training arguments against the FSDP or DeepSpeed plugin.

    Args:
        args: training arguments.
        state: accelerate's state, with the plugin if there is one.

    Raises:
        TrainingSetupError: for settings with which FSDP or DeepSpeed would compute something else.
    """
    fsdp, deepspeed = (getattr(state, f"{name}_plugin", None) for name in ("fsdp", "deepspeed"))
    if (fsdp or deepspeed) and args.task_learning_rates:
        raise TrainingSetupError(
            "task_learning_rates cannot be used with FSDP or DeepSpeed, which save the state of one optimizer"
        )
    if (fsdp or deepspeed) and any(training.train == "lora" for training in checked_training(args.towers).values()):
        raise TrainingSetupError("towers: LoRA adapters cannot be merged with FSDP or DeepSpeed, which shard them")
    if (fsdp or deepspeed) and (args.embed_chunks_kept or 0) > 1:
        raise TrainingSetupError(
            "embed_chunks_kept cannot be used with FSDP or DeepSpeed, which gather the weights anew for every chunk"
        )
    if deepspeed and args.optim == LAMB:
        raise TrainingSetupError(
            "optim='lamb' cannot be used with DeepSpeed, whose shards are flat: LAMB needs the norms of whole "
            "weights; use FSDP, or optim='adamw_torch'"
        )
    if fsdp and fsdp.fsdp_version != 2:
        raise TrainingSetupError(f"fsdp_version={fsdp.fsdp_version} must be 2")
    if fsdp and fsdp.state_dict_type.name != "FULL_STATE_DICT":
        raise TrainingSetupError(
            f"fsdp_state_dict_type={fsdp.state_dict_type.name} must be FULL_STATE_DICT: a model folder is not sharded"
        )


def make_shardable(model: nn.Module, state: AcceleratorState, device: torch.device) -> None:
    """Prepares a model for FSDP2 or DeepSpeed, neither of which can shard scalars or weights in `channels_last`."""
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()
    scalars = {parameter for parameter in model.parameters() if parameter.dim() == 0}
    for parameter in scalars:
        parameter.data = parameter.data.to(device)
        if dist.is_initialized():
            dist.broadcast(parameter.data, src=0)
        parameter.ds_optim_param = True  # tells DeepSpeed not to broadcast it
    fsdp = getattr(state, "fsdp_plugin", None)
    if fsdp:
        fsdp.ignored_modules = [
            nn.ParameterList(scalars | get_parameters_from_modules(fsdp.ignored_modules, model, device))
        ]


def shard_embedding_methods(model: nn.Module) -> None:
    """Registers the feature methods of a sharded model, so that they gather weights like `forward`."""
    for name in ("get_text_features", "get_image_features"):
        register_fsdp_forward_method(model, name)
