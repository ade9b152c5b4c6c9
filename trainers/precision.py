"""The precision of training: bfloat16 if the hardware supports it, otherwise float32. Weights, optimizer and loss are
always in float32; matrix products are autocast."""

# ruff: noqa: RUF009 -- `option` returns a field of a dataclass

import math
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy, SchedulerType

from ..utils.defaults import Precision
from ..utils.errors import InputError

# torch's names of the CPU instructions for products in bfloat16: Intel, Intel and AMD, and two for Arm.
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
_NAMES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}  # accelerate's -> torch's


def fastest_precision(device_type: str) -> str:
    """Returns `bfloat16` if the hardware has instructions for it, otherwise `float32`; `device_type` is torch's."""
    if device_type == "cpu":
        flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        has = torch.backends.mkldnn.is_available() and any(flags.get(name) for name in _INSTRUCTIONS)
    else:
        has = device_type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if has else "float32"


def option(default: Any, help_text: str) -> Any:
    """Returns a field with a default and a help text for the command line."""
    return field(default=default, metadata={"help": help_text})


@dataclass
class PrecisionTrainingArguments(TrainingArguments):
    """transformers' `TrainingArguments` with `precision`, which sets `bf16` and `fp16`."""

    # `metric_for_best_model`, unless another one is given.
    best_metric: ClassVar[str] = "loss"

    precision: Precision = option(
        "auto",
        "'float32', 'bfloat16' or 'float16'; 'auto' follows `bf16`, `fp16` or `accelerate launch`, and otherwise is "
        "bfloat16 if the hardware has instructions for it, or float32.",
    )
    bf16: bool | None = option(None, "The same as precision='bfloat16'.")

    def __post_init__(self) -> None:
        given: Any = self  # whose inherited fields the type checker does not know
        if not math.isfinite(given.learning_rate):
            raise InputError(f"learning_rate={given.learning_rate} must be a finite number")
        on_cpu = given.use_cpu or not torch.accelerator.is_available()
        launcher = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        if self.precision == "auto" and self.bf16 is None and not given.fp16 and launcher == "no":
            device = "cpu" if on_cpu else torch.accelerator.current_accelerator().type
            self.bf16 = fastest_precision(device) == "bfloat16"
        elif self.precision != "auto":
            if (self.bf16 and self.precision != "bfloat16") or (given.fp16 and self.precision != "float16"):
                raise InputError(f"precision={self.precision!r} contradicts bf16 or fp16: leave one out")
            self.bf16, given.fp16 = self.precision == "bfloat16", self.precision == "float16"
        self.bf16 = bool(self.bf16)
        if on_cpu and given.fp16:
            raise InputError("a CPU cannot train in float16: choose float32 or bfloat16")
        if on_cpu and self.bf16:
            given.use_cpu = True  # otherwise, transformers expects an accelerator for bf16
        # A plateau schedule uses the same metric, which then has to be one that falls.
        seeks_best = self.load_best_model_at_end or self.save_strategy == SaveStrategy.BEST
        if seeks_best and self.lr_scheduler_type != SchedulerType.REDUCE_ON_PLATEAU:
            self.metric_for_best_model: str | None = self.metric_for_best_model or self.best_metric
        super().__post_init__()
        if self.precision != "auto":  # overrides `accelerate launch`
            self.mixed_precision = next(name for name, precision in _NAMES.items() if precision == self.precision)

    @property
    def chosen_precision(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        return _NAMES.get(self.mixed_precision, "float32")

    def autocast(self) -> torch.autocast:
        """Returns a context manager and decorator that computes in the chosen precision on the device of training."""
        precision = self.chosen_precision
        return torch.autocast(self.device.type, getattr(torch, precision), enabled=precision != "float32")
