"""The learned temperature stays at its bound or above, however a model is trained."""

import math

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from babelens.modeling.modeling_dual_encoder import MIN_TEMPERATURE, at_least
from babelens.trainers.optimizers import BoundTemperature
from tests.contracts import image_text_batch
from tests.support.tiny_training import shapes_trainer

LEAST = torch.tensor(MIN_TEMPERATURE).item()


class Watch(TrainerCallback):
    """Notes the temperature after every step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        self.seen.append(model.temperature.item())


@pytest.mark.parametrize(
    "changes",
    [
        {"optim": "adamw_torch"},
        {"optim": "adamw_torch", "embed_chunk_size": 4},
        {"optim": "adamw_torch", "task_learning_rates": {"text_text": 1e-3}},
        {"optim": "adamax"},
    ],
)
def test_the_temperature_is_bounded_after_every_step(tmp_path, changes):
    settings = {"learning_rate": 2e-2, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_steps": 12}
    trainer = shapes_trainer(tmp_path, **settings | changes)
    with torch.no_grad():
        trainer.model.temperature.fill_(0.03)
    watch = Watch()
    trainer.add_callback(watch)
    # Whatever the loss says: the gradient lowers the temperature in every step.
    trainer.model.temperature.register_hook(lambda gradient: gradient.abs() + 0.1)
    trainer.train()
    assert len(watch.seen) == 12 and min(watch.seen) == watch.seen[-1] == LEAST


def test_training_without_a_bound_would_have_gone_below(tmp_path):
    settings = {"learning_rate": 2e-2, "lr_scheduler_type": "constant", "max_steps": 12, "optim": "adamw_torch"}
    trainer = shapes_trainer(tmp_path, **settings)
    trainer.remove_callback(BoundTemperature)
    with torch.no_grad():
        trainer.model.temperature.fill_(0.03)
    trainer.model.temperature.register_hook(lambda gradient: gradient.abs() + 0.1)
    trainer.train()
    assert trainer.model.temperature < 0


def plain_arguments(folder, **changes):
    settings = {"max_steps": 6, "per_device_train_batch_size": 1, "learning_rate": 2e-2, "weight_decay": 0.0}
    settings |= {"remove_unused_columns": False, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    return TrainingArguments(folder, save_strategy="no", lr_scheduler_type="constant", **settings | changes)


def train_plainly(model, inputs, folder, **changes):
    data = [inputs | {"return_loss": True}] * 8
    arguments = plain_arguments(folder, **changes)
    Trainer(model, arguments, train_dataset=data, data_collator=lambda examples: dict(examples[0])).train()


@pytest.mark.parametrize("factory", ["make_mural", "make_etcl"])
def test_a_plain_trainer_computes_with_a_bounded_temperature(request, tmp_path, factory):
    model, processor = request.getfixturevalue(factory)()
    inputs = image_text_batch(processor)
    with torch.no_grad():
        model.temperature.fill_(0.02)
    hook = model.temperature.register_hook(lambda gradient: gradient.abs() + 0.1)
    train_plainly(model, inputs, tmp_path)
    hook.remove()
    for mode in (True, False):
        output = model.train(mode)(**inputs, return_loss=True)
        assert output.temperature.item() == LEAST and output.loss.isfinite()
        logits = output.text_embeds @ output.image_embeds.T / output.temperature
        assert torch.equal(output.logits_per_text, logits)
    stored = model.temperature.item()
    # What lowered it is gone: it comes back.
    model.temperature.register_hook(lambda gradient: -gradient.abs() - 0.1)
    train_plainly(model, inputs, tmp_path, max_steps=8)
    assert model.temperature.item() > max(stored, LEAST)


@pytest.mark.parametrize("factory", ["make_mla", "make_mla_on_mural"])
def test_only_a_trained_native_model_is_bounded(request, factory):
    model, processor = request.getfixturevalue(factory)()
    native = model.native_model
    weight = native.logit_scale if hasattr(native, "logit_scale") else native.temperature
    too_low = math.log(150) if hasattr(native, "logit_scale") else 0.004
    with torch.no_grad():
        weight.fill_(too_low)
    before = weight.item()
    model.bound_temperature()
    assert weight.item() == before
    if hasattr(native, "logit_scale"):  # SigLIP's cosines are multiplied by 117
        assert model(**image_text_batch(processor)).temperature.item() == pytest.approx(1 / 150)
    model.set_trainable("native")
    assert model(**image_text_batch(processor)).temperature.item() == pytest.approx(MIN_TEMPERATURE)
    model.bound_temperature()
    assert weight.item() == (torch.tensor(math.log(100)).item() if hasattr(native, "logit_scale") else LEAST)


def test_above_its_bound_value_and_gradient_are_unchanged():
    values = torch.cat([torch.linspace(MIN_TEMPERATURE, 1, 999), torch.tensor([MIN_TEMPERATURE])]).requires_grad_()
    gradient = torch.randn(len(values), generator=torch.Generator().manual_seed(0))
    found = at_least(values, MIN_TEMPERATURE)
    found.backward(gradient)
    assert torch.equal(found, values) and torch.equal(values.grad, gradient)


def test_below_its_bound_only_raising_gradients_pass():
    values = torch.tensor([-0.5, 0.0, 0.009, -0.5, 0.0, 0.009], requires_grad=True)
    gradient = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    found = at_least(values, MIN_TEMPERATURE)
    found.backward(gradient)
    assert (found == LEAST).all()
    assert values.grad.tolist() == [0, 0, 0, -1, -1, -1]
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        assert at_least(torch.zeros((), dtype=dtype), MIN_TEMPERATURE).dtype == dtype
