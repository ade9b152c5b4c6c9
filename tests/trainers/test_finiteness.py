"""Training stops at what is not finite, and saves none of it."""

import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from babelens import ContrastiveTrainingArguments
from babelens.trainers.arguments import MlaTrainingArguments
from babelens.trainers.checkpoints import newest_checkpoint
from babelens.trainers.rc3_arguments import Rc3TaskTrainingArguments, Rc3TrainingArguments
from babelens.utils.errors import ModelFolderError, NonFiniteError, TrainingSetupError
from babelens.utils.pretrained import non_finite_weights
from tests.support.tiny_training import PoisonGradient, assert_same, shapes_trainer, weights

TWO_RATES = {"task_learning_rates": {"image_text": 1e-3, "text_text": 1e-4}}
SAVED = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1}


# ---- Gradients ----


@pytest.mark.parametrize(
    "settings",
    [
        {"optim": "lamb"},
        {"optim": "adamw_torch"},
        {"optim": "adamax"},
        {"max_grad_norm": 0.0},
        {"embed_chunk_size": 3},
        {"gradient_accumulation_steps": 2},
        TWO_RATES,
        TWO_RATES | {"max_grad_norm": 0.0, "gradient_accumulation_steps": 2, "embed_chunk_size": 3},
    ],
    ids=["lamb", "adamw", "adamax", "not clipped", "chunks", "accumulated", "two optimisers", "all at once"],
)
def test_a_non_finite_gradient_stops_before_the_weights(tmp_path, settings):
    trainer = shapes_trainer(tmp_path, max_steps=4, **SAVED | settings)
    poison = PoisonGradient(step=3)
    trainer.add_callback(poison)
    with pytest.raises(NonFiniteError, match=r"norm is nan in step 3.* stopped before it reached the weights"):
        trainer.train()
    assert_same(weights(trainer.model), poison.before)
    newest = newest_checkpoint(tmp_path)
    assert newest.name == "checkpoint-2"
    assert_same(load_file(newest / "model.safetensors"), {k: torch.from_numpy(v) for k, v in poison.before.items()})
    assert non_finite_weights(newest) == []


def test_the_last_step_is_checked_too(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=3, **SAVED)
    trainer.add_callback(PoisonGradient(step=3))
    with pytest.raises(NonFiniteError, match="in step 3"):
        trainer.train()
    assert newest_checkpoint(tmp_path).name == "checkpoint-2"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "text_model.embeddings.word_embeddings.weight;"),
        (TWO_RATES, "text_model.embeddings.word_embeddings.weight in task 'image_text', "),
    ],
)
def test_the_parameter_is_named_unless_clipping_hides_it(tmp_path, settings, name):
    trainer = shapes_trainer(tmp_path, max_steps=2, **settings)
    trainer.add_callback(PoisonGradient(step=2, value=math.inf, name="word_embeddings"))
    with pytest.raises(NonFiniteError, match="in step 2 because of ") as raised:
        trainer.train()
    assert name in str(raised.value)


@pytest.mark.parametrize(("scale", "stops"), [(65536.0, False), (2.0, False), (1.0, True)])
def test_float16_may_leave_steps_out_while_its_loss_is_scaled(tmp_path, scale, stops):
    """An infinite gradient is then what scaling looks for; without scaling it is what it seems."""
    trainer = shapes_trainer(tmp_path)
    trainer.accelerator.scaler = SimpleNamespace(is_enabled=lambda: True, get_scale=lambda: scale)
    if stops:
        with pytest.raises(NonFiniteError):
            trainer._get_grad_norm(trainer.model, torch.tensor(math.inf))
    else:
        assert trainer._get_grad_norm(trainer.model, torch.tensor(math.inf)).isinf()


# ---- Weights ----


def _break(trainer):
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(torch.inf)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    trainer = shapes_trainer(tmp_path / "run")
    trainer.save_model(tmp_path / "older")
    before = (tmp_path / "older" / "model.safetensors").read_bytes()
    _break(trainer)
    with pytest.raises(NonFiniteError, match=r"after step 0, 1 of 49 tensors are not finite: .*Nothing was saved"):
        trainer.save_model(tmp_path / "older")
    assert (tmp_path / "older" / "model.safetensors").read_bytes() == before
    with pytest.raises(NonFiniteError):
        trainer._save_checkpoint(trainer.model, None)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_run_does_not_end_well_with_such_weights(tmp_path):
    class Break(PoisonGradient):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                _break(trainer)

    trainer = shapes_trainer(tmp_path, max_steps=2)
    trainer.add_callback(Break(step=9))
    with pytest.raises(NonFiniteError, match="after step 2"):
        trainer.train()


def test_what_a_folder_holds_is_read_tensor_by_tensor(tmp_path):
    tensors = {
        "good": torch.ones(3),
        "nan": torch.tensor([1.0, math.nan]),
        "small": torch.tensor([math.nan]).to(torch.float8_e4m3fn),
        "half": torch.tensor([math.inf], dtype=torch.bfloat16),
        "ids": torch.arange(3),
        "empty": torch.zeros(0),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    save_file({"good": torch.ones(1)}, tmp_path / "other.safetensors")
    (problem,) = non_finite_weights(tmp_path)
    assert problem.endswith("model.safetensors has numbers that are NaN or infinite in half, nan, small")
    (tmp_path / "other.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelFolderError, match=r"other\.safetensors is a pointer of git-lfs"):
        non_finite_weights(tmp_path)


# ---- Arguments ----


@pytest.mark.parametrize(
    "arguments_class",
    [ContrastiveTrainingArguments, MlaTrainingArguments, Rc3TrainingArguments, Rc3TaskTrainingArguments],
)
@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"learning_rate": -1.0},
        {"weight_decay": math.nan},
        {"adam_beta1": math.nan},
        {"max_grad_norm": math.nan},
        {"num_train_epochs": math.nan},
    ],
)
def test_arguments_that_are_no_numbers_are_refused(tmp_path, arguments_class, wrong):
    with pytest.raises(TrainingSetupError, match=f"{next(iter(wrong))}=.* must"):
        arguments_class(output_dir=str(tmp_path), **wrong)


@pytest.mark.parametrize("name", ["task_weights", "task_learning_rates", "learning_rate_mapping"])
def test_numbers_of_tasks_and_parts_are_looked_at(tmp_path, name):
    with pytest.raises(TrainingSetupError, match=rf"{name}\['text_text'\]=nan must be a finite number"):
        ContrastiveTrainingArguments(output_dir=str(tmp_path), **{name: {"text_text": math.nan}})


def test_no_bound_on_the_gradient_is_infinite(tmp_path):
    assert ContrastiveTrainingArguments(output_dir=str(tmp_path), max_grad_norm=math.inf).max_grad_norm == math.inf
