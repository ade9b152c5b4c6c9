"""A killed run resumes to the weights of an unbroken one, bitwise, whatever is combined."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import ProcessesDied, together
from scaled_training import BATCH_NORM, train

from babelens.trainers.checkpoints import newest_checkpoint

PROGRAM = Path(__file__).parents[1] / "killed_saving.py"
TWO_RATES = {"image_text": 1e-3, "text_text": 1e-4}


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
                "task_learning_rates": TWO_RATES,
            },
        ),
        (2, {"per_device_train_batch_size": 4, "embed_chunk_size": 2, "vision": BATCH_NORM, "optim": "adamw_torch"}),
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
