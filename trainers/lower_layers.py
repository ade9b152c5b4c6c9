"""The frozen lower layers of a half-frozen text tower: their states of a text are computed once for all epochs, and a
training step runs the layers above them alone.

The layers of the tower stay in their places. While the tower reads a batch whose states are known, the lower layers
pass them on instead of computing them, so that everything around the layers (masks, positions, pooling) is the tower's
own, whatever its kind.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ..modeling.encoding import progress_bar
from ..modeling.modeling_common import asks_for_states

logger = logging.getLogger(__name__)

Texts = tuple[Tensor, Tensor]  # input_ids and attention_mask, [N, T] each


class LowerLayers:
    """The frozen layers at the bottom of a text tower.

    Args:
        tower: a text encoder, called with `input_ids` [N, T] and `attention_mask` [N, T].
        count: number of its lower layers, at least 1 (`frozen_lower_layers`).
    """

    def __init__(self, tower: nn.Module, count: int) -> None:
        self.tower = tower
        layers = tower_layers(tower)
        self.layers: list[nn.Module] = [layer[0] for layer in layers[:count]]
        self.above: list[nn.Module] = [layer[0] for layer in layers[count:]]
        self.count = count
        # For each layer: whether it returns a tuple, and of how many values. Known once the layers have run.
        self._tuples: list[int | None] = [None] * count

    def weights(self) -> dict[str, Tensor]:
        """Returns the weights and buffers on which the states depend, by name: without those of the layers above, and
        of what is above all layers, such as a final normalization."""
        lowest_above = len(self.above) - 1
        depths = layer_depths(self.tower)
        named = {name: value for name, value in self.tower.named_parameters() if depths[name] > lowest_above}
        above = {id(value) for layer in self.above for value in layer.buffers()}
        return named | {name: value for name, value in self.tower.named_buffers() if id(value) not in above}

    @contextmanager
    def recorded(self) -> Iterator[list[Any]]:
        """Gives a list to which each run of the tower adds the states of the last of the lower layers, [N, T, W]."""
        found: list[Any] = []

        def recorder(index: int) -> Callable[..., None]:
            def note(module: nn.Module, args: Any, output: Any) -> None:
                self._tuples[index] = len(output) if isinstance(output, tuple) else None
                if index == self.count - 1:
                    found.append(output[0] if isinstance(output, tuple) else output)

            return note

        handles = [layer.register_forward_hook(_Hook(recorder(index))) for index, layer in enumerate(self.layers)]
        try:
            yield found
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def skipped(self, known: Callable[[Tensor, Tensor], Tensor | None], *, always: bool = False) -> Iterator[None]:
        """In this context, the lower layers do not compute the states of batches for which `known` returns them.

        Args:
            known: returns the states [N, T, W] of `input_ids` and `attention_mask`; None where they are not known.
            always: in evaluation mode, too; by default in training mode alone.
        """
        own: list[tuple[nn.Module, Any]] = []

        def restore(*_: Any) -> None:
            while own:
                layer, forward = own.pop()
                del layer.forward
                if forward is not None:
                    layer.forward = forward

        def before(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            restore()  # what an interruption of the tower has left
            if module is not self.tower or not (always or module.training) or _reads_all_layers(module, kwargs):
                return
            ids, mask = kwargs.get("input_ids"), kwargs.get("attention_mask")
            states = None if ids is None or mask is None else known(ids, mask)
            if states is not None:
                for index, layer in enumerate(self.layers):
                    own.append((layer, layer.__dict__.get("forward")))
                    is_last = index == self.count - 1
                    layer.forward = _Passing(states if is_last else None, self._tuples[index])

        handles = (
            self.tower.register_forward_pre_hook(_Hook(before), with_kwargs=True),
            self.tower.register_forward_hook(_Hook(restore), always_call=True),
        )
        try:
            yield
        finally:
            restore()
            for handle in handles:
                handle.remove()

    def width_of_states(self, read: Callable[[Tensor, Tensor], Tensor], batches: Sequence[Texts]) -> int | None:
        """Returns the width of the states, if texts are read as they are otherwise when the lower layers are skipped;
        else None, such as where

        - layers share more than their states: the positions that T5's first layer adds to the attention of all layers;
        - states depend on padding, or on the length of other texts of the batch;
        - states are of another shape than the tokens, as where a tower reads its texts in windows;
        - the pooling reads padding.

        Args:
            read: returns the features [N, F] that the model, in evaluation mode, reads of `input_ids` and
                `attention_mask`.
            batches: `input_ids` and `attention_mask` of batches of different lengths, which begin with the same text;
                the first has no padding.
        """
        alone: Tensor | None = None
        try:
            for ids, mask in batches:
                with self.recorded() as found:
                    expected = read(ids, mask)
                (states,) = found
                if states.dim() != 3 or states.shape[:2] != ids.shape:
                    return None
                alone = states[0] if alone is None else alone
                known = states * mask.bool()[..., None]
                with self.skipped(lambda *_, known=known: known, always=True):
                    is_same = torch.equal(read(ids, mask), expected)
                if not is_same or not _are_close(states[0, : len(alone)], alone):
                    return None
        except Exception:  # of the code of any tower
            logger.debug("a text tower cannot start from states of its lower layers", exc_info=True)
            return None
        return None if alone is None else alone.shape[-1]

    def are_still(self, read: Callable[[Tensor, Tensor], Tensor], texts: Texts) -> bool:
        """Whether the states of texts are the same in each step: nothing is drawn at random below the trained layers,
        and nothing that is trained comes before them, such as a normalization that all layers share.

        Args:
            read: as in `width_of_states`, in training mode and with gradients.
            texts: `input_ids` and `attention_mask`.
        """
        with torch.random.fork_rng(), self.recorded() as found:
            read(*texts)
            read(*texts)
        first, second = found
        return torch.equal(first, second) and not first.requires_grad


def _are_close(left: Tensor, right: Tensor) -> bool:
    """Whether states differ by no more than the rounding in batches of different sizes."""
    allowed = 1e-4 if left.dtype in (torch.float32, torch.float64) else 3e-2
    return bool((left - right).float().norm() <= allowed * right.float().norm())


def _reads_all_layers(tower: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Whether a call of a tower asks for what its lower layers compute."""
    of_config = {name: getattr(tower.config, name, False) for name in ("output_hidden_states", "output_attentions")}
    return asks_for_states(of_config | {name: value for name, value in kwargs.items() if value is not None})


class _Hook:
    """A hook that is not copied and not pickled with the module that it is registered on."""

    def __init__(self, act: Callable[..., None]) -> None:
        self.act = act

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.act(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _Hook, (_nothing,)


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


class _Passing:
    """The forward of a layer that computes nothing.

    Args:
        states: what it returns; None for what it was given.
        length: the number of values in the tuple that the layer returns; None for a single value.
    """

    def __init__(self, states: Tensor | None, length: int | None) -> None:
        self.states, self.length = states, length

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        states = hidden_states if self.states is None else self.states
        return states if self.length is None else (states, *[None] * (self.length - 1))


def frozen_lower_layers(tower: nn.Module) -> int:
    """Returns the number of layers at the bottom of a tower in which, and below which, nothing is trained; 0 for a
    tower whose layers are no single modules."""
    layers, depths = tower_layers(tower), layer_depths(tower)
    trained = [depths[name] for name, weight in tower.named_parameters() if weight.requires_grad]
    count = len(layers) - 1 - max(trained, default=-1)
    return max(count, 0) if all(len(layer) == 1 for layer in layers) else 0


class TextStates:
    """The states of the tokens of texts, end to end.

    Args:
        tokens: the token ids of each text; equal ones are kept once, and texts without a token are left out.
        width: the width of the states.
        dtype: their type in memory and on disk.
    """

    def __init__(self, tokens: Iterable[Sequence[int]], width: int, dtype: torch.dtype) -> None:
        keys = dict.fromkeys(_key(np.asarray(ids)) for ids in tokens if len(ids))
        self.tokens = [np.frombuffer(key, np.int32) for key in keys]
        self._rows = {_key(ids): row for row, ids in enumerate(self.tokens)}
        self._lengths = np.array([len(ids) for ids in self.tokens], dtype=np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._shape, self._dtype = (int(self._lengths.sum()), width), dtype
        self.states: Tensor | None = None

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return self._shape[0] * self._shape[1] * self._dtype.itemsize

    def computed(self, states_of: Callable[[list[np.ndarray]], Tensor], batch_size: int, name: str) -> Tensor:
        """Computes the states of all texts, the longest first.

        Args:
            states_of: maps the token ids of some texts to their states [N, T, width], padded on the right.
            batch_size: number of texts at a time, which are of similar length.
            name: what a progress bar says.

        Returns:
            The states [tokens, width].
        """
        states = torch.empty(self._shape, dtype=self._dtype)
        order = np.argsort(-self._lengths, kind="stable")
        with progress_bar(len(order), name, None) as bar:
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                found = states_of([self.tokens[row] for row in rows])
                for row, own in zip(rows, found.to(states), strict=True):
                    states[self._starts[row] :][: self._lengths[row]] = own[: self._lengths[row]]
                bar.update(len(rows))
        return states

    def of(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
        """Returns the states [N, T, width] of texts, 0 at padding; None if those of one of them are not known."""
        ids, mask = input_ids.cpu().numpy(), attention_mask.cpu().numpy()
        if self.states is None or (mask[:, 1:] > mask[:, :-1]).any():  # padded on the left
            return None
        lengths = mask.sum(1)
        found_rows = (self._rows.get(_key(row[:length])) for row, length in zip(ids, lengths, strict=True))
        rows = [row for row in found_rows if row is not None]
        if len(rows) < len(ids):
            return None
        shifts = self._starts[rows] - (np.cumsum(lengths) - lengths)
        positions = torch.from_numpy(np.repeat(shifts, lengths) + np.arange(lengths.sum()))
        found = self.states.new_zeros(*ids.shape, self._shape[1])
        found[torch.from_numpy(mask).bool()] = self.states[positions]
        return found


def _key(ids: np.ndarray) -> bytes:
    return ids.astype(np.int32).tobytes()


# ---- Layers ----
#
# The layers of a tower, whatever its kind: the blocks of a transformer, or the blocks or stages of a convolutional
# network, in their order.

_ATTENTION = ("attention", "attn")


def tower_layers(tower: nn.Module) -> list[list[nn.Module]]:
    """Returns the layers of a tower from the bottom to the top, each as a list of modules; none if it has no list of
    layers.

    They are the outermost list of modules that holds the most weights: the layers of BERT, T5 and ViT, the blocks of
    an EfficientNet, the stages of Swin, ConvNeXt and ResNet. Some towers have several lists of the same length side by
    side, such as one of attentions and one of feed-forward layers.
    """
    lists: dict[str, list[nn.Module]] = {}
    for name, module in tower.named_modules():
        is_inside = any(name.startswith(f"{outer}.") for outer in lists)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not is_inside and _size(module):
            lists[name] = [entry for entry in module if _size(entry)]
    if not lists:
        return []
    largest = max(lists, key=lambda name: sum(map(_size, lists[name])))
    parent, count = largest.rpartition(".")[0], len(lists[largest])
    beside = [
        entries for name, entries in lists.items() if name.rpartition(".")[0] == parent and len(entries) == count
    ]
    return [list(layer) for layer in zip(*beside, strict=True)]


def layer_depths(tower: nn.Module) -> dict[str, int]:
    """Returns the depth of each parameter of a tower, by its name: 0 in the top layer and what is above it, such as a
    final normalization, 1 in the layer below, and so on; embeddings are below all layers."""
    layers = tower_layers(tower)
    of_layers = {
        parameter: len(layers) - 1 - index
        for index, layer in enumerate(layers)
        for module in layer
        for parameter in module.parameters()
    }
    embeddings = {
        parameter
        for module in tower.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    depths, has_layers_below = {}, False
    for name, parameter in tower.named_parameters():
        has_layers_below = has_layers_below or parameter in of_layers
        outside = 0 if has_layers_below and parameter not in embeddings else len(layers)
        depths[name] = of_layers.get(parameter, outside)
    return depths


def adapted_modules(tower: nn.Module, indices: Collection[int] | None = None) -> list[str]:
    """Returns the names of the modules that LoRA adapts by default: the projections of the attention, or the pointwise
    convolutions of a convolutional tower, if each of its layers has one; otherwise none.

    Args:
        tower: the tower.
        indices: the layers whose modules are named, 0 for the lowest; by default all.
    """
    within = [{part for module in layer for part in module.modules()} for layer in tower_layers(tower)]
    names = {module: name for name, module in tower.named_modules()}
    pointwise = [[names[part] for part in names if part in layer and _is_pointwise(part)] for layer in within]
    attention = [[name for name in layer if any(word in name.lower() for word in _ATTENTION)] for layer in pointwise]
    if not any(attention) and not all(pointwise):
        return []
    chosen = attention if any(attention) else pointwise
    return [name for index, layer in enumerate(chosen) if indices is None or index in indices for name in layer]


def _is_pointwise(module: nn.Module) -> bool:
    """Whether a module is a linear map of the features at each position."""
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    # torch's own attention reads the weights of its output projection, and does not call it.
    return isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
