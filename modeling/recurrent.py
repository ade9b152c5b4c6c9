"""Recurrent layers over texts of different lengths."""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


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
    packed = pack_padded_sequence(words, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    states, last = gru(packed)
    padded, _ = pad_packed_sequence(states, batch_first=True, total_length=words.shape[1])
    return padded, last
