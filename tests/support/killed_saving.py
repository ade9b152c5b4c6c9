"""A run that saves after every step, killed again and again while it saves, and started again in the same folder; and
one save, killed at each of its operations on files."""

import hashlib
import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import torch
from safetensors.torch import load_file
from torch.utils._pytree import tree_leaves
from transformers import TrainerCallback

from babelens.trainers.checkpoints import newest_checkpoint
from babelens.trainers.contrastive import ContrastiveTrainer
from tests.support.forks import forked
from tests.support.tiny_training import shapes_trainer

SETTINGS = {"max_steps": 1000, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 2, "logging_steps": 1000}


class Kill(NamedTuple):
    """What one kill left.

    Args:
        saving: step whose checkpoint was being saved when the kill came, or the next one's.
        reported: step of the last checkpoint that the run itself had called saved, or 0.
        found: step of the newest complete checkpoint, or 0.
        digest: of what can be loaded from it.
        resumed: step that the run had gone on from, or 0.
    """

    saving: int
    reported: int
    found: int
    digest: str
    resumed: int

    @property
    def torn(self) -> bool:
        """Whether the checkpoint that was being saved is not there whole."""
        return self.found < self.saving


def kill_while_saving(folder: Path, kills: int, seed: int) -> tuple[list[Kill], dict[int, str]]:
    """Kills a run until so many kills have torn a checkpoint. Each comes at a random moment: some come before the
    first file is written or after the last one, which are returned too, and do not count.

    Returns what each kill left, and the digests of an unbroken run by step.
    """
    _need_forks()
    trainer = shapes_trainer(folder, **SETTINGS)  # each life begins with this one, as it is now
    random_ = random.Random(seed)
    found, duration = 0, 0.1
    left: list[Kill] = []
    while sum(kill.torn for kill in left) < kills:
        saves = random_.randrange(2)  # that may end well, in this life
        saving, reported, duration = _live_and_die(trainer, saves, random_.random(), duration)
        first, resumed = saving[0], found
        assert first == resumed + 1, f"went on at step {first} with a checkpoint of step {resumed}"
        newest = newest_checkpoint(folder)
        found = int(newest.name.removeprefix("checkpoint-")) if newest else 0
        digest = digest_of_checkpoint(newest) if newest else ""
        left.append(Kill(saving[-1], max([resumed, *reported]), found, digest, resumed))
    return left, unbroken_digests(folder.with_name("unbroken"), found)


def _need_forks() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("the killed process is a fork, which Windows does not have")


def _live_and_die(
    trainer: ContrastiveTrainer, saves: int, moment: float, duration: float
) -> tuple[list[int], list[int], float]:
    """One life of the run: `saves` whole checkpoints and part of another one.

    Returns the steps that it began to save and those that it said it had saved, and how many seconds saving took.
    """
    receiving, sending = os.pipe()
    child = forked()
    if child == 0:
        _train_and_report(trainer, sending)
    os.close(sending)
    begun, ended, since = [], [], 0.0
    with os.fdopen(receiving) as reports:
        while len(begun) <= saves:
            word, step = reports.readline().split()
            if word == "saving":
                begun.append(int(step))
                since = time.perf_counter()
            else:
                ended.append(int(step))
                duration = time.perf_counter() - since
        time.sleep(moment * duration)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for line in reports:
            word, step = line.split()
            (begun if word == "saving" else ended).append(int(step))
    return begun, ended, duration


def _train_and_report(trainer: ContrastiveTrainer, sending: int) -> NoReturn:
    save = trainer._save_checkpoint

    def reported(*args: Any) -> None:
        os.write(sending, f"saving {trainer.state.global_step}\n".encode())
        save(*args)

    class Saved(TrainerCallback):  # after the callback that marks the checkpoint
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            os.write(sending, f"saved {state.global_step}\n".encode())

    trainer._save_checkpoint = reported
    trainer.add_callback(Saved)
    try:
        trainer.train(resume_from_checkpoint=newest_checkpoint(trainer.args.output_dir) is not None)
    finally:
        os._exit(1)


def digest_of_checkpoint(folder: Path) -> str:
    """A digest of the weights, the optimiser's state and the random state, all of the step that the folder names."""
    state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    assert folder.name == f"checkpoint-{state['global_step']}"
    scheduler = torch.load(folder / "scheduler.pt", weights_only=True)
    assert scheduler["last_epoch"] == state["global_step"]
    optimizer = torch.load(folder / "optimizer.pt", weights_only=True)
    random_state = torch.load(folder / "rng_state.pth", weights_only=False)["cpu"]
    return _digest(load_file(folder / "model.safetensors"), optimizer, random_state)


def _digest(weights: dict[str, torch.Tensor], optimizer: dict[str, Any], random_state: torch.Tensor) -> str:
    digest = hashlib.sha256()
    for leaf in tree_leaves([dict(sorted(weights.items())), optimizer, random_state]):
        digest.update(leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else repr(leaf).encode())
    return digest.hexdigest()


class _Digests(TrainerCallback):
    """Writes down the digest of every step, as its checkpoint would have it."""

    def __init__(self, trainer: ContrastiveTrainer, steps: int) -> None:
        self.trainer, self.steps = trainer, steps
        self.digests: dict[int, str] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        weights, optimizer = self.trainer.model.state_dict(), self.trainer.optimizer.state_dict()
        self.digests[state.global_step] = _digest(weights, optimizer, torch.get_rng_state())
        control.should_training_stop = state.global_step >= self.steps


def unbroken_digests(folder: Path, steps: int) -> dict[int, str]:
    """Digests by step of a run that nobody kills and that saves nothing."""
    trainer = shapes_trainer(folder, **SETTINGS | {"save_strategy": "no"})
    recorder = _Digests(trainer, steps)
    trainer.add_callback(recorder)
    trainer.train()
    return recorder.digests


# ---- One save, killed at each of its operations ----

CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir")


def killed_at_each_operation(
    save: Callable[[], Any], prepare: Callable[[], Any], *, events: Collection[str] = CHANGES
) -> Iterator[int]:
    """Runs `prepare` here and `save` in a process of its own, which is killed before its first operation on a file;
    then again, killed before the second; and so on until it lives to its end. Yields after each kill its number."""
    _need_forks()
    for number in itertools.count(1):
        prepare()
        child = forked()
        if child == 0:
            _save_and_die(save, number, events)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
        yield number


def _save_and_die(save: Callable[[], Any], number: int, events: Collection[str]) -> NoReturn:
    seen = itertools.count(1)

    def hook(event: str, _: Any) -> None:
        if event in events and next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    try:
        save()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)
