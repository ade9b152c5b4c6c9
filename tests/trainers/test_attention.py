"""The implementation of attention in training: in bfloat16 on a CPU, the one whose gradient is fast."""

from pathlib import Path

import pytest
import torch

from babelens.trainers.whole_checkpoints import fast_attention
from tests.support.tiny_training import shapes_trainer


@pytest.mark.parametrize(("precision", "in_training"), [("bfloat16", "eager"), ("float32", "sdpa")])
def test_attention_in_training(precision: str, in_training: str, tmp_path: Path) -> None:
    trainer = shapes_trainer(tmp_path, max_steps=1, precision=precision)
    config, seen = trainer.model.text_model.config, []
    assert config._attn_implementation == "sdpa"
    trainer.model.text_model.register_forward_pre_hook(lambda *_: seen.append(config._attn_implementation))
    trainer.train()
    assert set(seen) == {in_training}
    assert config._attn_implementation == "sdpa"  # afterwards, as it was


def test_other_devices_and_other_choices_stay(tmp_path: Path) -> None:
    model = shapes_trainer(tmp_path).model
    with fast_attention(model, torch.device("cuda"), "bfloat16"):
        assert model.text_model.config._attn_implementation == "sdpa"
    model.text_model.set_attn_implementation("eager")
    with fast_attention(model, torch.device("cpu"), "bfloat16"):
        assert model.text_model.config._attn_implementation == "eager"
    assert model.text_model.config._attn_implementation == "eager"


def test_a_training_that_stops_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = shapes_trainer(tmp_path).model
    with pytest.raises(KeyboardInterrupt), fast_attention(model, torch.device("cpu"), "bfloat16"):
        raise KeyboardInterrupt
    assert model.text_model.config._attn_implementation == "sdpa"
