"""Keeps the learned temperature of a dual encoder at or above its lower bound (see `modeling.learned_temperature`)."""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class BoundTemperature(TrainerCallback):
    """Resets a temperature that fell below its lower bound, after every step of the optimizer."""

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        bound = getattr(model, "bound_temperature", None)  # None, if the model has no temperature
        if bound is not None:
            bound()
