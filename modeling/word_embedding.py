"""SMALR's hybrid word embedding: words of many languages in one space, few of them with parameters of their own (Burns
et al. 2020, section 3.1).

A word id of a language becomes a *row*. Rows stand in this order:

    padding, [MASK], [UNK]                          embeddings
    the specific words of the first language, ...   word vectors, projected by their language's layer
    the latent tokens                               embeddings, which words of all languages share

so that which word has which row is one table of integers, fixed once the latent tokens are assigned. A word that a
dictionary maps to another has that word's row (section 4).
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..configuration.configuration_smalr import PADDING_ID, SPECIAL_IDS, UNKNOWN_ID, SmalrConfig
from .exporting import is_exporting


def row_count(config: SmalrConfig) -> int:
    return SPECIAL_IDS + sum(config.specific_sizes) + config.latent_tokens


class WordRows(nn.Module):
    """Word ids of a language -> rows."""

    rows: Tensor
    offsets: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.config = config
        rows, offsets = self._initial()
        self.register_buffer("rows", rows)
        self.register_buffer("offsets", offsets, persistent=False)

    def _initial(self) -> tuple[Tensor, Tensor]:
        """Specific words have their own rows; all others, until they are assigned, the first latent token's, or that
        of [UNK] where there are none."""
        parts = [torch.arange(SPECIAL_IDS)]
        shared = SPECIAL_IDS + sum(self.config.specific_sizes) if self.config.latent_tokens else UNKNOWN_ID
        start = SPECIAL_IDS
        for specific, size in zip(self.config.specific_sizes, self.config.vocabulary_sizes, strict=True):
            parts.append(torch.arange(start, start + specific))
            parts.append(torch.full((size - specific,), shared))
            start += specific
        sizes = torch.tensor([0, *self.config.vocabulary_sizes])
        return torch.cat(parts), sizes.cumsum(0)[:-1]

    def reset(self) -> None:
        rows, offsets = self._initial()
        init.copy_(self.rows, rows)
        init.copy_(self.offsets, offsets)

    def share(self, words: Tensor, others: Tensor) -> None:
        """Gives words the rows of others; [n] and [n] numbers, as `words` counts them."""
        self.rows[words] = self.rows[others]

    def words(self, input_ids: Tensor, language_ids: Tensor) -> Tensor:
        """Numbers of words among those of all languages, special tokens first. [N, T], [N] -> [N, T]"""
        return torch.where(input_ids < SPECIAL_IDS, input_ids, input_ids + self.offsets[language_ids, None])

    def forward(self, input_ids: Tensor, language_ids: Tensor) -> Tensor:
        return self.rows[self.words(input_ids, language_ids)]


class HybridWordEmbedding(nn.Module):
    """Rows -> universal word embeddings."""

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.special = nn.Parameter(torch.empty(SPECIAL_IDS, config.hidden_size))
        self.specific = nn.Parameter(torch.empty(sum(config.specific_sizes), config.word_size))
        self.projections = nn.ModuleList([nn.Linear(config.word_size, config.hidden_size) for _ in config.languages])
        self.latent = nn.Parameter(
            torch.empty(config.latent_tokens, config.hidden_size), requires_grad=config.latent_tokens > 0
        )
        self.sizes = [SPECIAL_IDS, *config.specific_sizes, config.latent_tokens]  # of the parts of all rows

    def forward(self, rows: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        table, places = self.distinct(rows)
        return nn.functional.embedding(places, table)

    def distinct(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of the rows that occur, each computed once, [n, width], and where in these each row is, [...]; of
        all rows in an exported graph."""
        if is_exporting():
            return self.table(), rows
        distinct, places = rows.unique(return_inverse=True)  # ascending, so that the rows of a part are neighbours
        ends = torch.tensor(self.sizes, device=rows.device).cumsum(0)
        counts = torch.searchsorted(distinct, ends).diff(prepend=ends.new_zeros(1)).tolist()
        special, *specific, latent = distinct.split(counts)
        table = [
            self.special[special] * (special != PADDING_ID)[:, None],
            *(layer(self.specific[own - ends[0]]) for layer, own in zip(self.projections, specific, strict=True)),
            self.latent[latent - ends[-2]],
        ]
        return torch.cat(table), places

    def table(self) -> Tensor:
        """The universal embeddings of all rows, [rows, width]."""
        is_token = torch.arange(SPECIAL_IDS, device=self.special.device) != PADDING_ID
        specific = self.specific.split(self.sizes[1:-1])
        own = [layer(vectors) for layer, vectors in zip(self.projections, specific, strict=True)]
        return torch.cat([self.special * is_token[:, None], *own, self.latent])
