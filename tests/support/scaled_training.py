from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from babelens.data.batching.mixture import Collator, Draw, TaskSampler
from babelens.trainers.contrastive import ContrastiveTrainer
from tests.support.tiny_training import VISION, DieAt, shapes_trainer

# For runs that divide a batch differently: no random numbers that depend on how, and no optimiser that makes whole
# steps of a gradient that is zero but for rounding (a key's bias under LAMB or Adam).
PLAIN = {"dropout": 0.0, "vision": {**VISION, "attention_dropout": 0.0}, "optim": "sgd", "learning_rate": 0.1}
BATCH_NORM = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}


class Trained(NamedTuple):
    losses: dict[str, list[float]]
    weights: dict[str, np.ndarray]


def train(
    output: Path,
    *,
    shares: list[int] | None = None,
    double: bool = False,
    die_at: int | None = None,
    resume: bool = False,
    **changes: Any,
) -> Trained:
    """Trains on the shapes. `shares` are the numbers of a batch's examples in each process; `double` is float64;
    `die_at` kills the process after that step; `changes` are training arguments, and those of `shapes_trainer`."""
    trainer = shapes_trainer(output, **changes)
    if shares:
        divide(trainer, shares)
    if double:
        make_double(trainer)
    if die_at:
        trainer.add_callback(DieAt(die_at))
    losses = record_losses(trainer)
    trainer.train(resume_from_checkpoint=resume or None)
    weights = trainer.accelerator.get_state_dict(trainer.model)
    return Trained(losses, {name: value.detach().numpy().copy() for name, value in weights.items()})


def record_losses(trainer: ContrastiveTrainer) -> dict[str, list[float]]:
    losses: dict[str, list[float]] = {task: [] for task in trainer.tasks}
    backward = trainer._backward

    def recorded(model: Any, task: str, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = backward(model, task, *args, **kwargs)
        losses[task].append(loss.item())
        return loss

    trainer._backward = recorded
    return losses


def make_double(trainer: ContrastiveTrainer) -> None:
    trainer.model.double()
    collators = trainer.mixture.collators

    def doubled(collate: Collator, examples: list[Any], seeds: list[int]) -> dict[str, torch.Tensor]:
        batch = collate(examples, seeds)
        return {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}

    collators |= {task: partial(doubled, collate) for task, collate in collators.items()}


def divide(trainer: ContrastiveTrainer, shares: list[int]) -> None:
    sampler = TaskSampler(trainer.mixture, sum(shares), seed=trainer.args.seed)
    rank = dist.get_rank() if dist.is_initialized() else 0
    own = slice(sum(shares[:rank]), sum(shares[: rank + 1]))

    class Share:
        def __len__(self) -> int:
            return len(sampler)

        def __iter__(self) -> Iterator[Draw]:
            for draw in sampler:
                yield {task: (indices[own], seeds[own]) for task, (indices, seeds) in draw.items()}

    trainer.get_train_dataloader = lambda: DataLoader(trainer.mixture, batch_size=None, sampler=Share())
