"""Recurrent layers over texts of different lengths."""

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


def gru_states(gru: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The states at all words, and the last of each direction, which padding does not change.

    A text without words is read as one word, so that it has states as well.

    Args:
        gru: of one layer, `batch_first`.
        words ([N, T, d]): padded behind the last word.
        lengths ([N]): of the texts.

    Returns:
        States [N, T, directions * width], zeros at padding, and last states [directions, N, width].
    """
    states, last = gru(pack(words, lengths))
    return pad(states, words.shape[1]), last


def pack(words: Tensor, lengths: Tensor) -> PackedSequence:
    """The words of texts without padding, [N, T, ...]; a text without words has its first."""
    return pack_padded_sequence(words, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)


def pad(packed: PackedSequence, length: int) -> Tensor:
    """[N, length, ...], with zeros at padding."""
    return pad_packed_sequence(packed, batch_first=True, total_length=length)[0]
