"""A killed run resumes to the weights of an unbroken one, bitwise, whatever is combined."""

import signal

import numpy as np
import pytest

from babelens.trainers.checkpoints import newest_checkpoint
from tests.support.killed_saving import kill_while_saving
from tests.support.processes import ProcessesDied, together
from tests.support.scaled_training import BATCH_NORM, train
from tests.support.tiny_training import shapes_trainer

TWO_RATES = {"image_text": 1e-3, "text_text": 1e-4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "settings"),
    [
        (1, {"embed_chunk_size": 3, "task_learning_rates": TWO_RATES, "vision": BATCH_NORM}),
        (2, {"per_device_train_batch_size": 4}),
        (
            2,
            {
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 2,
                "embed_chunk_size": 1,
                "dataloader_num_workers": 1,
                "dataloader_persistent_workers": True,
                "task_learning_rates": TWO_RATES,
            },
        ),
        (
            2,
            {
                "per_device_train_batch_size": 4,
                "embed_chunk_size": 2,
                "vision": BATCH_NORM,
                "optim": "adamw_torch",
                "learning_rate_mapping": {"word_embeddings": 1e-2},
                "text_augmentation": {"subword_dropout": 0.3},
            },
        ),
    ],
    ids=["chunks, batch norm", "two processes", "all at once", "two processes, chunks, batch norm"],
)
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, processes, settings):
    """With dropout, random crops and two tasks; saved in the middle of an epoch of four steps, killed by SIGKILL."""
    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 3, **settings}
    unbroken = together(processes, train, tmp_path / "unbroken", **settings)
    with pytest.raises(ProcessesDied) as died:
        together(processes, train, tmp_path / "killed", die_at=8, **settings)
    assert -signal.SIGKILL in died.value.codes
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-6"
    resumed = together(processes, train, tmp_path / "killed", resume=True, **settings)
    for found, expected in zip(resumed, unbroken, strict=True):
        for task, losses in expected.losses.items():
            assert losses[-len(found.losses[task]) :] == found.losses[task]
        assert found.weights.keys() == expected.weights.keys()
        for name, value in expected.weights.items():
            assert np.array_equal(found.weights[name], value), name


@pytest.mark.slow
def test_fifty_kills_while_saving_lose_nothing(tmp_path):
    """Each life goes on from the newest checkpoint that was saved whole, and all of them make one unbroken run."""
    ((kills, unbroken),) = together(1, kill_while_saving, tmp_path / "killed", kills=50, seed=0)
    for kill in kills:
        assert kill.reported <= kill.found <= kill.saving
        assert kill.digest == unbroken.get(kill.found, "")
    print(f"{len(kills)} kills tore 50 checkpoints; the last whole one was of step {kills[-1].found}")
    assert kills[-1].found > 5


def test_a_checkpoint_counts_once_it_is_overwritten_whole(tmp_path, monkeypatch):
    """A run goes on from an earlier checkpoint than its newest one, whose folder it overwrites."""
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    shapes_trainer(tmp_path, **settings).train()
    again = shapes_trainer(tmp_path, **settings)
    monkeypatch.setattr(again, "_save_rng_state", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert newest_checkpoint(tmp_path).name == "checkpoint-2"


def _interrupted(folder):
    raise KeyboardInterrupt
