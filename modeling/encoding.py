"""How encoders are run where they are not trained: in evaluation mode, in a precision, with a progress bar.

On an AMD processor with AVX-512, oneDNN multiplies linear layers in float32. torch multiplies them with Intel's MKL,
which uses these instructions on Intel's processors alone. oneDNN, with which torch convolves and multiplies in
bfloat16, uses them wherever they are: on a Zen 5 it multiplies 2.2 times as fast, and a CLIP encodes 1.8 times as
fast. Results differ in the last bits of a float32.

oneDNN compiles kernels for every number of rows (all tokens of a batch together) that it meets, and keeps half a
megabyte of them. A server meets hundreds of numbers, as its queries come in batches of every size and length. So the
number is rounded up, and rows of zeros are added.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from datasets.utils.logging import tqdm
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Numbers of rows are rounded up to powers of two as far as _STEP, and from there to multiples of it; where these would
# be more than _SIZES between two powers of two, to _SIZES equal steps.
_STEP, _SIZES = 64, 16
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
        with torch.no_grad(), fast_linear_layers():
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


# ---- Linear layers by oneDNN ----


def fast_linear_layers() -> AbstractContextManager[object]:
    """A context in which linear layers without gradients are as fast as this processor can multiply.

    It changes nothing on other processors, on accelerators, under autocast, and while a graph is traced.
    """
    return _ByOneDnn() if _mkl_leaves_out_avx512() and torch.backends.mkldnn.enabled else nullcontext()


@cache
def _mkl_leaves_out_avx512() -> bool:
    # By the processor's name, and not by measuring, so that a text has the same embedding in every run.
    about = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return (
        bool(about.get("avx512_f"))
        and "AMD" in str(about.get("cpu_name"))
        and torch.backends.mkl.is_available()
        and _has_onednn()
    )


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class _ByOneDnn(TorchFunctionMode):
    """Replaces `torch.nn.functional.linear`, in this thread, by the operator that compiled models call."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.linear and not torch.compiler.is_compiling():
            return _linear(*args, **kwargs)
        return func(*args, **kwargs)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    factors = (input, weight) if bias is None else (input, weight, bias)
    is_for_onednn = (
        all(type(factor) in (Tensor, nn.Parameter) and factor.is_cpu for factor in factors)
        and all(factor.dtype == torch.float32 for factor in factors)
        and weight.ndim == 2
        and input.numel() > 0
        and not (torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
    )
    if not is_for_onednn:
        return nn.functional.linear(*factors)
    rows = input.reshape(-1, weight.shape[1])
    if missing := _rounded_up(len(rows)) - len(rows):
        rows = nn.functional.pad(rows, (0, 0, 0, missing))
    # The operator reads a bias as if it were contiguous.
    contiguous = None if bias is None else bias.contiguous()
    product = torch.ops.mkldnn._linear_pointwise(rows, weight, contiguous, "none", [], "")
    return product[: len(rows) - missing].reshape(*input.shape[:-1], -1)


def _rounded_up(rows: int) -> int:
    power = 1 << (rows - 1).bit_length()
    step = max(_STEP, power // 2 // _SIZES)
    return min(power, -(-rows // step) * step)
