"""The frozen lower layers of a half-frozen text tower: their states of a text are computed once for all epochs, and a
training step runs the layers above them alone.

The layers of the tower stay in their places. While the tower reads a batch whose states are known, the lower layers
pass them on instead of computing them, so that everything around the layers (masks, positions, pooling) is the tower's
own, whatever its kind.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..inference.embedder import progress_bar
from .tower_layers import layer_depths, tower_layers


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
        self.above: list[nn.Module] = [layer[0] for layer in layers[count:]] if count else []
        self.count = count
        # For each layer: whether it returns a tuple, and of how many values. Known once the layers have run.
        self._tuples: list[int | None] = [None] * count

    def weights(self) -> dict[str, Tensor]:
        """Returns the weights and buffers on which the states depend, by name: without those of the layers above."""
        above = {id(value) for layer in self.above for value in (*layer.parameters(), *layer.buffers())}
        named = (*self.tower.named_parameters(), *self.tower.named_buffers())
        return {name: value for name, value in named if id(value) not in above}

    @contextmanager
    def recorded(self) -> Iterator[list[Tensor]]:
        """Gives a list to which each run of the tower adds the states [N, T, W] of the last of the lower layers."""
        found: list[Tensor] = []

        def recorder(index: int) -> Callable[..., None]:
            def note(module: nn.Module, args: Any, output: Any) -> None:
                self._tuples[index] = len(output) if isinstance(output, tuple) else None
                if index == self.count - 1:
                    found.append(output[0] if isinstance(output, tuple) else output)

            return note

        with _hooks(layer.register_forward_hook(recorder(index)) for index, layer in enumerate(self.layers)):
            yield found

    @contextmanager
    def skipped(self, known: Callable[[Tensor, Tensor], Tensor | None], *, always: bool = False) -> Iterator[None]:
        """In this context, the lower layers do not compute the states of batches for which `known` returns them.

        Args:
            known: returns the states [N, T, W] of `input_ids` and `attention_mask`; None where they are not known.
            always: in evaluation mode, too; by default in training mode alone.
        """
        own: list[tuple[nn.Module, Any]] = []

        def before(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            ids, mask = kwargs.get("input_ids"), kwargs.get("attention_mask")
            if ids is None or mask is None or not (always or module.training):
                return
            states = known(ids, mask)
            if states is not None:
                for index, layer in enumerate(self.layers):
                    own.append((layer, layer.__dict__.get("forward")))
                    is_last = index == self.count - 1
                    layer.forward = _Passing(states if is_last else None, self._tuples[index])

        def after(module: nn.Module, args: Any, output: Any) -> None:
            while own:
                layer, forward = own.pop()
                del layer.forward
                if forward is not None:
                    layer.forward = forward

        tower = self.tower
        with _hooks(
            (
                tower.register_forward_pre_hook(before, with_kwargs=True),
                tower.register_forward_hook(after, always_call=True),
            )
        ):
            yield

    @torch.no_grad()
    def width_of_states(self, input_ids: Tensor, attention_mask: Tensor) -> int | None:
        """Returns the width of the states, if the tower reads texts as it does otherwise when its lower layers are
        skipped; else None. The tower must be in evaluation mode.

        It does not where layers share more than their states, such as the positions that T5's first layer adds to the
        attention of all layers, or where they read padding.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "return_dict": True}
        is_text = attention_mask.bool()
        with self.recorded() as states:
            expected = self.tower(**given).last_hidden_state[is_text]
        if len(states) != 1:  # a layer that runs several times, as ALBERT's
            return None
        known = states[0] * is_text[..., None]
        try:
            with self.skipped(lambda ids, mask: known, always=True):
                found = self.tower(**given).last_hidden_state[is_text]
        except TypeError:  # a layer whose first argument has a name of its own
            return None
        return known.shape[-1] if torch.equal(found, expected) else None


@contextmanager
def _hooks(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Removes hooks when the context ends."""
    placed = list(handles)
    try:
        yield
    finally:
        for handle in placed:
            handle.remove()


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
        tokens: the token ids of each text; equal ones are kept once.
        width: the width of the states.
        dtype: their type in memory and on disk.
    """

    def __init__(self, tokens: Iterable[Sequence[int]], width: int, dtype: torch.dtype) -> None:
        self.tokens = [np.frombuffer(key, np.int32) for key in dict.fromkeys(_key(np.asarray(ids)) for ids in tokens)]
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
