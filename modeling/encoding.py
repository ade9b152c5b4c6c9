"""How encoders are run where they are not trained: in evaluation mode, in a precision, with a progress bar."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from datasets.utils.logging import tqdm
from torch import nn

# A progress bar that nobody asked for appears only when encoding takes longer than this.
_PROGRESS_AFTER_SECONDS = 2.0
# The models that are being evaluated: how many blocks each is in, and its modules that were in training mode before.
_EVALUATED: dict[nn.Module, tuple[int, dict[nn.Module, bool]]] = {}
_LOCK = threading.Lock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into eval mode, without gradients, inside the block.

    Afterwards each module is in the mode that it was in; frozen parts may be in another mode than the rest. Of several
    threads with one model, the first saves the modes, and the last one restores them.
    """
    with _LOCK:
        entered, modes = _EVALUATED.get(model, (0, {}))
        if not entered:
            modes = {module: module.training for module in model.modules() if module.training}
            if modes:
                model.eval()
        _EVALUATED[model] = entered + 1, modes
    try:
        # Not inference_mode: what a model caches meanwhile (position tables, masks) must remain usable in training.
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
    """A context, and a decorator, in which matrix products and convolutions are computed in a precision.

    Weights, normalizations and results stay in float32, so that the embeddings of one model are comparable whatever
    they were computed in.

    Args:
        device: the device of the model.
        precision: `float32`, which changes nothing, `bfloat16` or `float16`.
    """
    return torch.autocast(device.type, getattr(torch, precision), enabled=precision != "float32")


def progress_bar(total: int, description: str, show: bool | None) -> tqdm:
    """A progress bar: always or never by `show`; by default on a terminal, for jobs of more than two seconds."""
    if show is None:
        return tqdm(total=total, desc=description, delay=_PROGRESS_AFTER_SECONDS, leave=False, disable=None)
    return tqdm(total=total, desc=description, leave=False, disable=not show)
