"""What a text consists of, as the maps of a `RidgeModel` read it: its character n-grams, and the pooled features and
kinds of tokens that a text encoder sees."""

from functools import partial
from typing import Self

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .modeling_dual_encoder import normalize

# ---- Character n-grams ----
# Character n-grams of texts, hashed into a fixed number of rows, by operations on tensors alone.
#
# An n-gram lies inside of a word, or begins or ends with the space beside it, as in scikit-learn's `char_wb`. Scripts
# without spaces are one long word. Its weight in a text is log(1 + count) times the importance of its row (tf-idf with
# sublinear counts).

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


# ---- Kinds of tokens ----

_SHARPNESS = 20.0  # of the softmax by which a token is of one kind
_FREQUENCY = 0.02  # how much a kind is preferred for being frequent, by the logarithm of its count
_BESIDE_POOLED = 2.0  # the weight of the kinds beside pooled features


class TokenKinds(nn.Module):
    """Which kinds of tokens a text has, by the states that a text encoder gives them.

    A kind is the direction in which the states of one native token deviate on average from the mean of all tokens.
    Every token of a text is of the kinds that it is most alike, by a softmax, and a text has a kind as much as one of
    its tokens is of it, times the importance of the kind: how rare it is in native texts.
    """

    mean: Tensor  # [W]
    directions: Tensor  # [V, W], of length 1
    preference: Tensor  # [V]
    importance: Tensor  # [V]

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        exact = partial(torch.empty, dtype=torch.float32)
        self.register_buffer("mean", exact(width))
        self.register_buffer("directions", exact(count, width))
        self.register_buffer("preference", exact(count))
        self.register_buffer("importance", exact(count))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Sets all kinds to nothing in particular."""
        for name in ("mean", "directions", "preference"):
            init.zeros_(getattr(self, name))
        init.ones_(self.importance)

    @classmethod
    def of(cls, mean: Tensor, states: Tensor, counts: Tensor, importance: Tensor) -> Self:
        """Makes the kinds of native tokens.

        Args:
            mean ([W]): the mean of the states of all tokens.
            states ([V, W]): the mean of the states of each native token.
            counts ([V]): how many there were of each.
            importance ([V]): the factor of each.
        """
        kinds = cls(*states.shape)
        kinds.mean.copy_(mean)
        kinds.directions.copy_(normalize(states - mean))
        kinds.preference.copy_(_FREQUENCY * counts.log())
        kinds.importance.copy_(importance)
        return kinds

    def forward(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns the features [N, V] of texts, all of one length.

        Args:
            states ([N, T, W]): the states of the tokens.
            attention_mask ([N, T]): 0 at padding.
        """
        alike = normalize(states.float() - self.mean.float()) @ self.directions.float().T + self.preference.float()
        present = ((_SHARPNESS * alike).softmax(-1) * attention_mask[..., None]).amax(1)
        return _BESIDE_POOLED**0.5 * normalize(present * self.importance.float())


# ---- Pooled features ----


def centered(features: Tensor, mean: Tensor) -> Tensor:
    """Returns features [N, W + V] of a text encoder of which the first W are without the mean [W] of their language,
    with length 1: the mean of a language is much of a pooled feature, and says nothing of a text."""
    width = mean.shape[-1]
    pooled = normalize(features[:, :width].float() - mean)
    return torch.cat([pooled, features[:, width:].float()], 1) if features.shape[1] > width else pooled
