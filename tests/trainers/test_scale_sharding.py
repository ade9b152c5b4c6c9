"""Weights that are divided among processes."""

import pytest

from babelens.utils.errors import TrainingSetupError
from tests.support.tiny_training import shapes_trainer


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed"])
def test_divided_weights_are_refused(tmp_path, kind):
    trainer = shapes_trainer(tmp_path, max_steps=1)
    setattr(trainer, f"is_{kind}_enabled", True)
    with pytest.raises(TrainingSetupError, match="DeepSpeed"):
        trainer.train()
