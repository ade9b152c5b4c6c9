from typing import Any

import peft
import pytest
from packaging.version import Version
from transformers import PreTrainedModel, TrainingArguments
from transformers.integrations.peft import MIN_PEFT_VERSION

_IS_NEW = hasattr(TrainingArguments, "activation_checkpointing")
CHECKPOINTING = "activation_checkpointing" if _IS_NEW else "gradient_checkpointing"


def checkpoint_activations(model: PreTrainedModel, *options: Any) -> None:
    getattr(model, f"{CHECKPOINTING}_enable")(*options)


needs_adapters_of_transformers = pytest.mark.skipif(
    Version(peft.__version__) < Version(MIN_PEFT_VERSION),
    reason=f"this transformers adds adapters itself with PEFT {MIN_PEFT_VERSION} and later alone",
)
