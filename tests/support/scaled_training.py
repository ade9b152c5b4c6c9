"""Runs of the tiny training (`tiny_training`) that tests of several processes, chunks and resuming compare."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from accelerate.state import PartialState
from torch.utils.data import DataLoader

from babelens import SmalrConfig, SmalrModel
from babelens.data.batching.mixture import ExampleKey, TaskBatchSampler
from babelens.modeling.losses import contrastive_loss
from babelens.trainers.contrastive import ContrastiveTrainer
from babelens.trainers.large_batches import gather_labels, gather_rows, row_counts
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
    return Trained(losses, whole_weights(trainer))


def record_losses(trainer: ContrastiveTrainer) -> dict[str, list[float]]:
    losses: dict[str, list[float]] = {task: [] for task in trainer.tasks}
    backward = trainer._backward

    def recorded(model: Any, task: str, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = backward(model, task, *args, **kwargs)
        losses[task].append(loss.item())
        return loss

    trainer._backward = recorded
    return losses


def whole_weights(trainer: ContrastiveTrainer) -> dict[str, np.ndarray]:
    weights = trainer.accelerator.get_state_dict(trainer.model)
    return {name: value.detach().numpy().copy() for name, value in weights.items()}


def make_double(trainer: ContrastiveTrainer) -> None:
    trainer.model.double()
    assert trainer.tasks
    collate = trainer.data_collator
    trainer.data_collator = lambda drawn: {
        task: {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}
        for task, batch in collate(drawn).items()
    }


def divide(trainer: ContrastiveTrainer, shares: list[int]) -> None:
    sampler = TaskBatchSampler(trainer.mixture, sum(shares), seed=trainer.args.seed)
    rank = dist.get_rank() if dist.is_initialized() else 0
    start = sum(shares[:rank])

    class Share:
        def __len__(self) -> int:
            return len(sampler)

        def __iter__(self) -> Iterator[list[ExampleKey]]:
            for batch in sampler:
                yield [draw for task in trainer.tasks for draw in _of(batch, task)[start : start + shares[rank]]]

    def _of(batch: list[ExampleKey], task: str) -> list[ExampleKey]:
        return [draw for draw in batch if draw.task == task]

    trainer.get_train_dataloader = lambda: DataLoader(
        trainer.mixture, batch_sampler=Share(), collate_fn=trainer.data_collator
    )


# ---- Gathering without a model ----


def whole_batch(count: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    x, y = torch.randn(2, count, 5, dtype=torch.float64, generator=generator).unbind()
    labels = torch.stack([torch.arange(count) // 4, torch.arange(count) % 5])
    temperature = torch.tensor(0.3, dtype=torch.float64)
    return x.requires_grad_(), y.requires_grad_(), labels, temperature.requires_grad_()


def loss_and_gradients(shares: list[int]) -> tuple[float, np.ndarray, np.ndarray, float]:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
    x, y, labels, temperature = whole_batch(sum(shares))
    x, y = (side.detach()[mine].requires_grad_() for side in (x, y))
    counts = row_counts(len(x), x.device)
    assert counts == shares
    positives = gather_labels(labels[:, mine], counts)
    loss = sum(contrastive_loss(gather_rows(x, counts), gather_rows(y, counts), temperature, positives=positives))
    loss.backward()
    return loss.item(), x.grad.numpy(), y.grad.numpy(), temperature.grad.item()


def smalr_loss_and_gradients(shares: list[int]) -> tuple[float, dict[str, np.ndarray]]:
    rank = PartialState(cpu=True).process_index
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "word_size": 3, "image_feature_size": 5, "image_hidden_size": 6, "latent_tokens": 4}
    config = SmalrConfig(languages=["en", "de"], vocabulary_sizes=[6, 6], specific_words=3, **sizes)
    model = SmalrModel(config).double().eval()  # neither masks nor batch statistics
    count = sum(shares)
    ids, features = torch.randint(3, 9, (2 * count, 4)), torch.randn(count, 5, dtype=torch.float64)
    start = sum(shares[:rank])
    mine, labels = slice(2 * start, 2 * (start + shares[rank])), torch.arange(count) // 2  # every two show the same
    texts = labels.repeat_interleave(2)[mine]
    output = model(
        input_ids=ids[mine],
        language_ids=torch.tensor([0, 1]).repeat(shares[rank]),
        image_features=features[start : start + shares[rank]],
        image_labels=labels[start : start + shares[rank]],
        text_labels=texts,
        return_logits=False,
    )
    counts = row_counts(len(texts), texts.device)
    trainer = SimpleNamespace(model=model, args=SimpleNamespace(gather_negatives=True), objective_options=dict)
    loss = ContrastiveTrainer._objective(trainer, output, texts[None], counts)
    loss.backward()
    return loss.item(), {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
