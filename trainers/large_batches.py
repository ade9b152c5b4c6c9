"""The contrastive loss of a batch that is embedded in chunks, or by several processes.

Gradient caching (GradCache, Gao et al. 2021) embeds chunk by chunk without a graph. The loss of all embeddings gives
the gradient of each; every chunk is then embedded again, with the same random numbers, and the gradients of its
embeddings are propagated to the weights. Only the graph of the first chunk is kept, which saves its second pass. The
texts of a chunk have similar lengths, so there is little padding. The gradient is exactly that of the whole batch,
unless a tower with batch normalization is trained: it normalizes each chunk by itself, as it would on several devices.
Without gradient caching, each chunk is embedded once and keeps its graph, which only saves padding.

Embeddings and labels are gathered from all processes, which may have different numbers of rows, and each process
computes the loss of the whole batch. The gradient of a process's rows is the sum over the processes; when
DistributedDataParallel averages the gradients of the weights, sum and average cancel."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import get_device_states, set_device_states

from ..modeling.modeling_dual_encoder import DualEncoderOutput

# ---- Gradient caching ----


@contextmanager
def _replayed(device: torch.device, cpu: Tensor, devices: list[int], states: list[Tensor]) -> Iterator[None]:
    """A context in which the random generators start from these states; afterwards, they continue where they were."""
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.set_rng_state(cpu)
        set_device_states(devices, states, device_type=device.type)
        yield


@contextmanager
def _switched(modules: Iterable[nn.Module], name: str, value: bool) -> Iterator[None]:
    modules = list(modules)
    for module in modules:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, name, not value)


def still_running_statistics(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which normalization layers use the statistics of the batch without updating their running ones."""
    layers = (module for module in model.modules() if isinstance(module, _NormBase) and module.training)
    return _switched((layer for layer in layers if layer.track_running_stats), "track_running_stats", False)


def gradients_by_row(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which word embeddings that already have a gradient get sparse gradients, added in place: every
    chunk would otherwise allocate a gradient with the size of the whole vocabulary."""
    tables = (module for module in model.modules() if isinstance(module, nn.Embedding) and not module.sparse)
    return _switched((table for table in tables if table.weight.grad is not None), "sparse", True)


def embed_in_chunks(
    model: nn.Module, inputs: dict[str, Tensor], chunks: int, without_sync: Callable[[], AbstractContextManager]
) -> DualEncoderOutput:
    """The output of `model(**inputs)`, with its graph, in `chunks` parts of texts of similar length. `without_sync` is
    the context of every chunk except the last, as in `backward_in_chunks`."""
    if chunks == 1:
        return model(**inputs, return_logits=False)
    order, outputs = _by_length(inputs), []
    for number, rows in enumerate(order.tensor_split(chunks), 1):
        with nullcontext() if number == chunks else without_sync():
            outputs.append(model(**_take(inputs, rows), return_logits=False))
    return _concatenate(outputs, order.argsort())


def backward_in_chunks(
    model: nn.Module,
    inputs: dict[str, Tensor],
    objective: Callable[[DualEncoderOutput], Tensor],
    chunks: int,
    backward: Callable[[Tensor], None],
    autocast: Callable[[], AbstractContextManager] = nullcontext,
    without_sync: Callable[[], AbstractContextManager] = nullcontext,
) -> Tensor:
    """Adds the gradient of `objective(model(**inputs))` to the weights, in `chunks` (at least two) equal parts of the
    examples [N, ...], and returns the loss [], detached. The model may be wrapped, for example by
    DistributedDataParallel. `backward` propagates the gradient of a scalar, such as `accelerator.backward`;
    `without_sync` is the context of every chunk except the last, such as `accelerator.no_sync`."""
    order = _by_length(inputs)
    first, *others = order.tensor_split(chunks)
    with autocast(), without_sync(), gradients_by_row(model):
        graph = model(**_take(inputs, first), return_logits=False)
    states, outputs = [], [type(graph)(**{name: value.detach() for name, value in graph.items()})]
    with still_running_statistics(model), torch.no_grad():
        for rows in others:
            states.append((torch.get_rng_state(), *get_device_states(rows)))
            with autocast():
                outputs.append(model(**_take(inputs, rows), return_logits=False))
    cached = _concatenate(outputs, order.argsort())
    loss = objective(cached)
    found = torch.autograd.grad(loss, list(cached.values()), allow_unused=True)
    gradients = dict(zip(cached, found, strict=True))
    with without_sync():
        backward(_surrogate(graph, gradients, first, is_last=False))
    del graph
    for k, (rows, state) in enumerate(zip(others, states, strict=True), 2):
        is_last = k == chunks
        # The gradients of the first chunk are dense, so sparse gradients can be added in place. The gradients of the
        # last chunk are dense because DistributedDataParallel exchanges dense gradients.
        by_row = nullcontext() if is_last else gradients_by_row(model)
        with nullcontext() if is_last else without_sync():
            with by_row, _replayed(order.device, *state), autocast():
                output = model(**_take(inputs, rows), return_logits=False)
            backward(_surrogate(output, gradients, rows, is_last))
    return loss.detach()


def _by_length(inputs: dict[str, Tensor]) -> Tensor:
    """The indices of the rows of a batch sorted by the length of their texts, [N]; unsorted if there are no texts."""
    if "attention_mask" in inputs:
        return _lengths(inputs["attention_mask"]).argsort(stable=True)
    value = next(iter(inputs.values()))
    return torch.arange(len(value), device=value.device)


def _lengths(attention_mask: Tensor) -> Tensor:
    """The number of columns up to the last token of each row of a mask [N, T], on whichever side it is padded. [N]"""
    columns = torch.arange(1, attention_mask.shape[1] + 1, device=attention_mask.device)
    return (attention_mask.bool() * columns).amax(1)


def _take(inputs: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    taken = {name: value[rows] for name, value in inputs.items()}
    for name in [name for name in taken if name.endswith("attention_mask")]:
        longest = int(_lengths(taken[name]).max())
        for padded in (name, name.replace("attention_mask", "input_ids")):
            taken[padded] = taken[padded][:, :longest]
    return taken


def _concatenate(outputs: list[DualEncoderOutput], order: Tensor) -> DualEncoderOutput:
    """Joins the outputs of all chunks: embeddings in `order`, scalars once. All have a gradient."""
    joined = type(outputs[0])()
    for name, value in outputs[0].items():
        whole = torch.cat([output[name] for output in outputs])[order] if value.dim() else value.clone()
        joined[name] = whole.requires_grad_()
    return joined


def _surrogate(output: DualEncoderOutput, gradients: dict[str, Tensor | None], rows: Tensor, is_last: bool) -> Tensor:
    """Returns a scalar whose gradient is the cached one of `rows`; the last chunk adds the gradient of scalars."""
    total = torch.zeros((), device=next(iter(output.values())).device)
    for name, value in output.items():
        gradient = gradients[name]
        if gradient is not None and value.dim():
            total = total + (value * gradient[rows]).sum()
        elif gradient is not None:
            # Every chunk uses the scalar, because DistributedDataParallel expects the same weights in each pass.
            total = total + value * (gradient if is_last else torch.zeros_like(gradient))
    return total


# ---- Processes ----


def row_counts(count: int, device: torch.device) -> list[int]:
    """The number of rows of each process, in the order of the ranks; `[count]` if there is one process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [count]
    counts = [torch.empty((), dtype=torch.long, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor(count, device=device))
    return torch.stack(counts).tolist()


def gather_rows(rows: Tensor, counts: list[int] | None = None) -> Tensor:
    """Gathers the rows of all processes in the order of the ranks, `counts` each if known. [n, ...] -> [N, ...]"""
    counts = row_counts(len(rows), rows.device) if counts is None else counts
    return rows if len(counts) == 1 else _GatherWithGradient.apply(rows, counts)


class _GatherWithGradient(torch.autograd.Function):
    """[n, ...] on each process -> [N, ...] on all of them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        largest = max(counts)
        missing = largest - len(rows)  # collectives exchange tensors of equal size
        padded = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows.contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.counts)[dist.get_rank()], None
