"""Data loaders as the training arguments ask for them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import seed_worker

from ..data.batching.mixture import TaskBatchSampler


def data_seed(args: TrainingArguments) -> int:
    """The seed from which batches are sampled: `data_seed`, or else `seed`."""
    return args.data_seed if args.data_seed is not None else args.seed


def batch_sizes_of(args: TrainingArguments, size: int, names: Iterable[str], own: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of examples of each task or data set in a batch of one process.

    Args:
        args: the training arguments.
        size: the number of those that have no number of their own. Where it is less than `args` say, because larger
            batches did not fit into memory (`auto_find_batch_size`), the others shrink with it.
        names: the tasks or data sets.
        own: the numbers of some of them.
    """
    share = size / args.train_batch_size
    return {name: max(int(own[name] * share), 1) if name in own else size for name in names}


def loader_options(args: TrainingArguments) -> dict[str, Any]:
    """The options of `torch.utils.data.DataLoader` that the arguments set."""
    return {
        "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
        "persistent_workers": args.dataloader_persistent_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "worker_init_fn": partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
    }


def mixture_loader(
    sampler: TaskBatchSampler, collate: Callable[[list[Any]], Any], args: TrainingArguments
) -> DataLoader:
    """A data loader over the batches of a sampler.

    Args:
        sampler: the batches of a `TaskMixture`.
        collate: turns the examples of a batch into tensors.
        args: the number of workers and how they are run.
    """
    # Persistent workers are seeded once. Without a generator of its own, a resumed run would draw their seed again
    # from the generator that dropout uses.
    generator = torch.Generator().manual_seed(sampler.seed) if args.dataloader_persistent_workers else None
    return DataLoader(
        sampler.mixture,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        generator=generator,
        **loader_options(args),
    )


class EpochFromSteps(TrainerCallback):
    """Logs the share of `max_steps` that is done as the epoch, because the length of a stream is not known."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.epoch = state.global_step / state.max_steps
