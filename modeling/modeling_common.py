"""Shared by several methods: modules that initialize themselves, exported graphs, and the number of the training
step."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def initialized_by_itself(module: ModuleT) -> ModuleT:
    """Marks `module` as initialized by its own `reset_parameters` and not by the model around it; returns it.

    Its weights have just been initialized, or it is on the `meta` device because a model is being loaded.
    """
    module.awaits_weights = next(module.parameters()).is_meta
    for part in () if module.awaits_weights else module.modules():
        part._is_hf_initialized = True  # otherwise the model around it would initialize it again
    return module


def text_ends(attention_mask: Tensor) -> Tensor:
    """Returns the number of columns up to the last token of each row [N] in a mask [N, T]: the length of a text padded
    on the right, and T for a text padded on the left."""
    columns = torch.arange(1, attention_mask.shape[1] + 1, device=attention_mask.device)
    return (attention_mask.bool() * columns).amax(1)


def is_exporting() -> bool:
    """Returns whether a graph is being made that must not depend on tensor values: by `torch.export`,
    `torch.jit.trace`, or `torch.compile` without gradients (`fullgraph=True`).

    In such a graph, all rows go through the layers of every kind, with the same results. Compiled training still
    separates rows by kind, which costs less.
    """
    compiler = torch.compiler
    if compiler.is_exporting() or torch.jit.is_tracing():
        return True
    return compiler.is_compiling() and not torch.is_grad_enabled()


@dataclass(frozen=True)
class TrainingStep:
    """The progress of training, for losses that change with it: the number of previous optimizer steps, and the number
    in the whole run."""

    index: int = 0
    total: int = 0

    @property
    def progress(self) -> float:
        """The completed fraction of the run, from 0 to 1."""
        return self.index / max(self.total, 1)


FIRST_STEP = TrainingStep()
