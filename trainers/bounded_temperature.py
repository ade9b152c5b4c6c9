"""Keeps the temperature that a dual encoder learns at its bound or above (see `modeling.learned_temperature`)."""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class BoundTemperature(TrainerCallback):
    """After every step of the optimiser, has the model bring back a temperature that fell below its bound."""

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        bound = getattr(model, "bound_temperature", None)  # which a model without a temperature has not
        if bound is not None:
            bound()
