"""The features of texts by a frozen text encoder, which are kept on disk."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from datasets.utils.logging import tqdm
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling.encoding import autocasting, evaluation_mode
from ..utils.identity import model_identity
from .frozen_features import frozen_tensor


@dataclass
class EncoderFeatures:
    """Encodes texts with a frozen text encoder. Each group of texts has its own file in the cache, so a language that
    was encoded once is not encoded again together with others.

    Args:
        pooled: computes the features [N, W] from `input_ids` [N, T] and `attention_mask` [N, T], with the pooling
            `pooling`.
        prompt: precedes every text.
        max_length: the number of tokens to which texts are truncated.
        precision: `float32` or `bfloat16`.
        cache_dir: the cache folder; by default the folder for the features of frozen towers.
    """

    encoder: nn.Module
    tokenizer: PreTrainedTokenizerBase
    pooled: Callable[[Tensor, Tensor], Tensor | None]
    pooling: str
    prompt: str
    max_length: int
    batch_size: int = 64
    precision: str = "float32"
    cache_dir: str | None = None

    def of(self, groups: Mapping[Any, Sequence[str]]) -> dict[Any, Tensor]:
        """Returns the features [n, W] of each group of texts."""
        count = sum(map(len, groups.values()))
        with tqdm(total=count, desc="Reading texts", unit=" texts", leave=False, disable=None) as bar:
            return {name: self._kept(texts, bar) for name, texts in groups.items()}

    @cached_property
    def identity(self) -> str:
        """A description of everything that the features of a text depend on."""
        settings = self.pooling, self.precision, str(self.max_length)
        return model_identity(self.encoder, self.tokenizer, "pooled texts", *settings)

    def _kept(self, texts: Sequence[str], bar: tqdm) -> Tensor:
        whole = [self.prompt + text for text in texts]
        before = bar.n
        features = frozen_tensor(
            lambda: self._read(whole, bar),
            identity=self.identity,
            items=(text.encode() for text in whole),
            cache_dir=self.cache_dir,
        )
        bar.update(before + len(whole) - bar.n)
        return features

    def _read(self, texts: list[str], bar: tqdm) -> Tensor:
        parts, order = [], []
        for rows, read in self.batches(texts):
            found = self.pooled(read["input_ids"], read["attention_mask"])
            assert found is not None
            parts.append(found.float().cpu())
            order += rows
            bar.update(len(rows))
        return torch.cat(parts)[torch.tensor(order).argsort()]

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Mapping[str, Tensor]]]:
        """Yields the positions and the tokens of some texts at a time, short texts first, with the encoder in
        evaluation mode."""
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        device = next(self.encoder.parameters()).device
        length = {"truncation": True, "max_length": self.max_length}
        with evaluation_mode(self.encoder), autocasting(device, self.precision):
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                chosen = [texts[row] for row in rows]
                yield rows, self.tokenizer(chosen, padding=True, return_tensors="pt", **length).to(device)
