"""Character n-grams of texts, hashed into a fixed number of rows, by operations on tensors alone.

An n-gram lies inside of a word, or begins or ends with the space beside it, as in scikit-learn's `char_wb`. Scripts
without spaces are one long word. Its weight in a text is log(1 + count) times the importance of its row (tf-idf with
sublinear counts).
"""

import torch
from torch import Tensor

SPACE = ord(" ")
# A prime below 2^31, so that products of two remainders stay below 2^63, and two constants that mix the characters.
_PRIME, _FACTOR, _SALT = 2_147_483_647, 1_000_003, 7_919


def hashed_ngrams(characters: Tensor, rows: int, shortest: int, longest: int) -> tuple[Tensor, Tensor]:
    """Returns the rows of all n-grams of texts.

    Args:
        characters ([N, C]): Unicode code points, 0 at padding on the right; texts begin and end with a space.
        rows: the number of rows.
        shortest, longest: the numbers of characters of the n-grams.

    Returns:
        The row of each n-gram [N, J], and whether it is one [N, J]: J positions, of which some are padding, lie across
        words, or are spaces alone.
    """
    is_space = characters == SPACE
    places, kept = [], []
    for size in range(shortest, longest + 1):
        count = characters.shape[1] - size + 1
        if count < 1:
            break
        hashed = torch.full_like(characters[:, :count], size * _SALT)
        valid = characters[:, size - 1 :] > 0
        for offset in range(size):
            hashed = (hashed * _FACTOR + characters[:, offset : offset + count]) % _PRIME
            if 0 < offset < size - 1:
                valid = valid & ~is_space[:, offset : offset + count]
        if size <= 2:
            valid = valid & ~(is_space[:, :count] & is_space[:, size - 1 :])
        places.append(hashed % rows)
        kept.append(valid)
    if not places:
        return characters[:, :0], is_space[:, :0]
    return torch.cat(places, 1), torch.cat(kept, 1)


def ngram_weights(places: Tensor, kept: Tensor, importance: Tensor) -> Tensor:
    """Returns the weight of each n-gram in its text [N, J]. Summed by row, the weights of a text have length 1.

    Args:
        places, kept ([N, J]): of `hashed_ngrams`.
        importance ([N, rows]): the factor of each row, for each text; or [1, rows] for all.
    """
    ones = kept.to(importance.dtype)
    counts = torch.zeros(places.shape[0], importance.shape[1], dtype=ones.dtype, device=ones.device)
    counts = counts.scatter_add(1, places, ones).gather(1, places).clamp(min=1)  # [N, J]
    factors = importance.expand(places.shape[0], -1).gather(1, places)
    whole = counts.log1p() * factors * ones  # of a row
    length = (whole.square() / counts).sum(1, keepdim=True).sqrt()
    return whole / counts / length.clamp(min=1e-6)
