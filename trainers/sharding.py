"""Sharded training, by accelerate's FSDP: what it leaves to the trainer.

FSDP2 shards each weight along its first dimension. A scalar such as the temperature has none: it stays whole in every
process, where transformers' `Trainer` averages its gradient. Embeddings that evaluation asks for come from methods other
than `forward`, which have to gather the weights as well.
"""

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import get_parameters_from_modules
from torch import nn
from torch.distributed.fsdp import register_fsdp_forward_method


def make_shardable(model: nn.Module, plugin: FullyShardedDataParallelPlugin, device: torch.device) -> None:
    """Prepares a model, and the plugin that will shard it.

    Raises:
        ValueError: for FSDP's first version, which shards no single weights, and for sharded checkpoints, from which no
            model folder comes.
    """
    if plugin.fsdp_version != 2:
        raise ValueError(f"fsdp_version={plugin.fsdp_version} must be 2")
    if plugin.state_dict_type.name != "FULL_STATE_DICT":
        raise ValueError(f"fsdp_state_dict_type={plugin.state_dict_type.name} must be FULL_STATE_DICT")
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()  # FSDP refuses channels_last
    scalars = {parameter for parameter in model.parameters() if parameter.dim() == 0}
    for parameter in scalars:
        parameter.data = parameter.data.to(device)
    whole = scalars | get_parameters_from_modules(plugin.ignored_modules, model, device)
    plugin.ignored_modules = [nn.ParameterList(whole)]


def shard_embedding_methods(model: nn.Module) -> None:
    """Makes a sharded model's feature methods gather weights, as its `forward` does."""
    for name in ("get_text_features", "get_image_features"):
        register_fsdp_forward_method(model, name)
