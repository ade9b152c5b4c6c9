"""Runs recurrent layers over texts of different lengths."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .modeling_common import is_exporting


def gru_states(gru: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the states at all words and the last state of each direction; padding has no effect on them.

    A text without words is read as if it had one, so that it has states as well. An exported graph is limited to the
    length of the texts that it was made with, because torch.export unrolls a GRU.

    Args:
        gru: a GRU with one layer and `batch_first`.
        words ([N, T, d]): texts, padded on the right.
        lengths ([N]): number of words of each text.

    Returns:
        States [N, T, directions * width], zeros at padding, and last states [directions, N, width].
    """
    if is_exporting():
        return _gru_states_by_mask(gru, words, lengths.clamp(min=1))
    states, last = gru(pack(words, lengths))
    return pad(states, words.shape[1]), last


def _gru_states_by_mask(gru: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the same for lengths of at least 1, without packing."""
    positions = torch.arange(words.shape[1], device=words.device)  # [T]
    is_word = (positions < lengths[:, None])[..., None]  # [N, T, 1]
    states, last = _run_direction(gru, "", words, lengths)
    if not gru.bidirectional:
        return states * is_word, last[None]
    # From the last word of each text to its first; applying it again restores the order.
    order = (lengths[:, None] - 1 - positions).clamp(min=0)[..., None]  # [N, T, 1]
    backward, first = _run_direction(gru, "_reverse", words.gather(1, order.expand_as(words)), lengths)
    backward = backward.gather(1, order.expand_as(backward))
    return torch.cat([states, backward], dim=-1) * is_word, torch.stack([last, first])


def _run_direction(gru: nn.GRU, direction: str, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Runs one direction of a GRU from left to right: returns its states [N, T, width], and the state at the last
    word of each text [N, width]."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = [getattr(gru, f"{name}_l0{direction}") for name in names]
    start = words.new_zeros(1, words.shape[0], gru.hidden_size)
    states, _ = torch.gru(words, start, weights, True, 1, 0.0, False, False, True)
    ends = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
    return states, states.gather(1, ends)[:, 0]


def pack(words: Tensor, lengths: Tensor) -> PackedSequence:
    """Packs the words of texts without padding, [N, T, ...]; of a text without words, the first position is kept."""
    return pack_padded_sequence(words, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)


def pad(packed: PackedSequence, length: int) -> Tensor:
    """Unpacks to [N, length, ...], with zeros at padding."""
    return pad_packed_sequence(packed, batch_first=True, total_length=length)[0]
