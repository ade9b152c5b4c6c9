"""Training on several processes: rows that are gathered from all of them, and weights that are divided among them."""

from typing import Any

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils.fsdp_utils import get_parameters_from_modules
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method

from ..configuration.errors import TrainingSetupError
from .arguments import LAMB, ContrastiveTrainingArguments

# ---- Gathering ----
#
# Gathers embeddings and labels of all processes into one batch, with gradient. Processes may have different
# numbers of rows.
#
# Every process computes the loss of the whole batch from the gathered embeddings. The gradient of its own rows is
# the sum over the processes; DistributedDataParallel, FSDP and DeepSpeed then average the gradients of the
# weights. Sum and average cancel, so that the result is the gradient of one process with the whole batch.


def row_counts(count: int, device: torch.device) -> list[int]:
    """The number of rows of each process, in the order of their ranks; `[count]` if there is one process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [count]
    counts = [torch.empty((), dtype=torch.long, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor(count, device=device))
    return torch.stack(counts).tolist()


def gather_rows(rows: Tensor, counts: list[int]) -> Tensor:
    """The rows of all processes in the order of their ranks; `rows` itself if there is one process.

    Args:
        rows: the rows of this process.
        counts: their `row_counts`.

    Shape:
        rows: [n, ...], n = `counts[rank]`; returns [N, ...], N = `sum(counts)`.
    """
    return rows if len(counts) == 1 else _GatherWithGradient.apply(rows, counts)


def gather_labels(positives: Tensor, counts: list[int]) -> Tensor:
    """Labels of further positives (see `contrastive_loss`) of all processes. [n] or [K, n] integer -> [N] or [K, N]

    Raises:
        TypeError: for a boolean mask with several processes, because it does not cover the rows of the others.
    """
    if len(counts) > 1 and positives.dtype == torch.bool:
        raise TypeError(
            f"positives of {len(counts)} processes must be integer labels [K, n], which can be compared across "
            f"processes; a boolean mask {list(positives.shape)} has the rows of its own process only"
        )
    return gather_rows(positives.movedim(-1, 0), counts).movedim(0, -1)


class _GatherWithGradient(torch.autograd.Function):
    """[n, ...] on each process -> [N, ...] on all of them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        largest = max(counts)
        missing = largest - len(rows)  # collectives exchange tensors of one size
        padded = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows.contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.counts)[dist.get_rank()], None


# ---- Sharding ----
#
# Sharded training by accelerate's FSDP or DeepSpeed: checks of settings, and the preparation of models.
#
# FSDP2 shards each weight along its first dimension. A scalar such as the temperature has no dimension: every
# process keeps it, and transformers' `Trainer` averages its gradient. Evaluation computes embeddings with other
# methods than `forward`; these must gather the sharded weights as well.


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
    if (fsdp or deepspeed) and args.embed_chunks_kept > 1:
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
