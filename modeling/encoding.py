"""Runs encoders outside of training: in evaluation mode, in a given precision, with a progress bar."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from datasets.utils.logging import tqdm
from torch import nn

# The models in evaluation: how many blocks each is in, and its modules that were in training mode before.
_EVALUATED: dict[nn.Module, tuple[int, dict[nn.Module, bool]]] = {}
_LOCK = threading.Lock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode, without gradients, inside the block; afterwards, each module returns to its
    previous mode. If several threads use one model, the first one saves the modes, and the last one restores them."""
    with _LOCK:
        entered, modes = _EVALUATED.get(model, (0, {}))
        if not entered:
            modes = {module: module.training for module in model.modules() if module.training}
            if modes:
                model.eval()
        _EVALUATED[model] = entered + 1, modes
    try:
        # Not inference_mode: tensors that a model caches here (position tables, masks) must remain usable in training.
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            entered, modes = _EVALUATED.pop(model)
            if entered > 1:
                _EVALUATED[model] = entered - 1, modes
            else:
                for module in modes:
                    module.training = True


def autocasting(device: torch.device, precision: str) -> torch.autocast:
    """Returns a context manager for matrix products and convolutions in `precision`; all else stays in float32."""
    return torch.autocast(device.type, getattr(torch, precision), enabled=precision != "float32")


def progress_bar(total: int, description: str, show: bool | None) -> tqdm:
    """Returns a progress bar; by default it appears on a terminal, for jobs of more than two seconds."""
    if show is None:
        return tqdm(total=total, desc=description, delay=2.0, leave=False, disable=None)
    return tqdm(total=total, desc=description, leave=False, disable=not show)
