"""Gradient caching: the gradient of a large batch's contrastive loss with the memory of a small one (Gao et al. 2021,
GradCache).

The embeddings are computed chunk by chunk without a graph; the loss on all of them gives the gradient of every
embedding; each chunk is then embedded again, with the same random numbers, and its embeddings' gradients are
propagated. Chunks are made of texts of similar length, so that little of them is padding. With towers whose outputs
for one example do not depend on the others the gradient is that of the whole batch, exactly.

A batch-norm tower in training mode normalises each chunk by the chunk's own mean and variance, as it would on as many
devices, and the gradient is exactly that of a batch that is normalised so. Its running statistics move once for each
chunk, as they would for as many batches: the first pass leaves them alone.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ..configuration.errors import TrainingSetupError
from ..modeling.modeling_dual_encoder import DualEncoderOutput


class RandomState:
    """The state of the random generators that a forward pass on `device` draws from.

    Raises:
        TrainingSetupError: for a device whose generator torch gives no access to.
    """

    def __init__(self, device: torch.device) -> None:
        self.generators = None if device.type == "cpu" else _generators_of(device)
        self.device = device
        self.cpu = torch.get_rng_state()
        self.state = None if self.generators is None else self.generators.get_rng_state(device)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Within, random numbers are drawn as they were after this state was taken; afterwards, as if nothing had been
        drawn."""
        now = RandomState(self.device)
        self._restore()
        try:
            yield
        finally:
            now._restore()

    def _restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.generators is not None:
            self.generators.set_rng_state(self.state, self.device)


def _generators_of(device: torch.device) -> Any:
    """torch's module for a kind of device, such as `torch.cuda`."""
    module = getattr(torch, device.type, None)
    if not (hasattr(module, "get_rng_state") and hasattr(module, "set_rng_state")):
        raise TrainingSetupError(
            "embed_chunk_size: gradient caching embeds every chunk twice with the same random numbers, and torch "
            f"cannot repeat those of a {device.type!r} device. Train without it, or on cuda, mps, xpu or cpu"
        )
    return module


@contextmanager
def still_running_statistics(model: nn.Module) -> Iterator[None]:
    """Within, normalisation layers in training mode use a batch's statistics and leave the running ones, and the
    number of batches that they have seen, as they are."""
    moving = [
        module
        for module in model.modules()
        if isinstance(module, _NormBase) and module.training and module.track_running_stats
    ]
    for module in moving:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in moving:
            module.track_running_stats = True


@contextmanager
def gradients_by_row(model: nn.Module) -> Iterator[None]:
    """Within, word embeddings that have a gradient get more of it in the rows of the words that occur alone.

    Else every chunk would make, and add, a gradient as large as the whole vocabulary.
    """
    tables = [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding) and module.weight.grad is not None and not module.sparse
    ]
    for table in tables:
        table.sparse = True
    try:
        yield
    finally:
        for table in tables:
            table.sparse = False


def backward_in_chunks(
    model: nn.Module,
    inputs: dict[str, Tensor],
    objective: Callable[[DualEncoderOutput], Tensor],
    *,
    chunks: int,
    backward: Callable[[Tensor, bool], None],
    autocast: Callable[[], AbstractContextManager] = nullcontext,
    without_sync: Callable[[], AbstractContextManager] = nullcontext,
    is_sharded: bool = False,
) -> Tensor:
    """Adds the gradient of `objective(model(**inputs))` to the weights, a chunk of the examples at a time.

    Args:
        model: a dual encoder, wrapped or not.
        inputs: its inputs, the same number of rows in all.
        objective: loss of all embeddings.
        chunks: into how many the examples are cut, evenly.
        backward: propagates a scalar, such as `accelerator.backward`; its second argument says whether it is the last.
        autocast: context of the forward passes.
        without_sync: context of all chunks' second passes but the last, such as `accelerator.no_sync`.
        is_sharded: whether the weights are; sharded ones have no gradients by row.

    Returns:
        The loss, detached.
    """
    order = _by_length(inputs)
    parts = order.tensor_split(chunks)
    states, outputs = [], []
    with still_running_statistics(model), torch.no_grad():
        for rows in parts:
            states.append(RandomState(rows.device))
            with autocast():
                outputs.append(model(**_take(inputs, rows), return_logits=False))
    cached = _concatenate(outputs, order.argsort())
    loss = objective(cached)
    leaves = {field.name: value for field in fields(cached) if (value := cached.get(field.name)) is not None}
    gradients = dict(zip(leaves, torch.autograd.grad(loss, leaves.values(), allow_unused=True), strict=True))
    for number, (rows, state) in enumerate(zip(parts, states, strict=True)):
        is_last = number == chunks - 1
        # The first chunk's gradients are dense, to which sparse ones are added in place; the last one's, because
        # DistributedDataParallel exchanges them.
        by_row = nullcontext() if is_last or is_sharded else gradients_by_row(model)
        with nullcontext() if is_last else without_sync():
            with by_row, state.replayed(), autocast():
                output = model(**_take(inputs, rows), return_logits=False)
            backward(_surrogate(output, gradients, rows, is_last), is_last)
    return loss.detach()


def _by_length(inputs: dict[str, Tensor]) -> Tensor:
    """The rows of a batch in the order of their texts' lengths, [N]; as they are where there are no texts."""
    if "attention_mask" in inputs:
        return inputs["attention_mask"].sum(1).argsort(stable=True)
    some = next(iter(inputs.values()))
    return torch.arange(len(some), device=some.device)


def _take(inputs: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Some rows of a batch, their texts padded no further than to the longest of them."""
    taken = {name: value[rows] for name, value in inputs.items()}
    for name in [name for name in taken if name.endswith("attention_mask")]:
        longest = int(taken[name].sum(1).max())
        for padded in (name, name.replace("attention_mask", "input_ids")):
            taken[padded] = taken[padded][:, :longest]
    return taken


def _concatenate(outputs: list[DualEncoderOutput], order: Tensor) -> DualEncoderOutput:
    """One output of all chunks whose tensors are leaves: embeddings in `order`, scalars (the temperature) once."""
    joined = type(outputs[0])()
    for name, value in outputs[0].items():
        whole = torch.cat([output[name] for output in outputs])[order] if value.dim() else value.clone()
        joined[name] = whole.requires_grad_()
    return joined


def _surrogate(output: DualEncoderOutput, gradients: dict[str, Tensor | None], rows: Tensor, is_last: bool) -> Tensor:
    """A scalar whose gradient is the cached one: embeddings of `rows` times their gradients; the scalars' share comes
    with the last chunk."""
    total = torch.zeros((), device=next(iter(output.values())).device)
    for name, value in output.items():
        gradient = gradients[name]
        if gradient is not None and value.dim():
            total = total + (value * gradient[rows]).sum()
        elif gradient is not None:
            # Every chunk touches the scalar, so that a wrapped model sees the same weights used in each.
            total = total + value * (gradient if is_last else torch.zeros_like(gradient))
    return total
