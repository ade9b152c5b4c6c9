"""What had other names before transformers 5.23."""

from typing import Any

from transformers import PreTrainedModel, TrainingArguments

_IS_NEW = hasattr(TrainingArguments, "activation_checkpointing")
CHECKPOINTING = "activation_checkpointing" if _IS_NEW else "gradient_checkpointing"


def checkpoint_activations(model: PreTrainedModel, *options: Any) -> None:
    getattr(model, f"{CHECKPOINTING}_enable")(*options)
