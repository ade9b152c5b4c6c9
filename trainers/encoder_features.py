"""What a frozen text encoder gives for texts, read once and kept on disk."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from datasets.utils.logging import tqdm
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..configuration.identity import model_identity
from ..modeling.encoding import autocasting, evaluation_mode
from .frozen_features import frozen_tensor


@dataclass
class EncoderFeatures:
    """Reads texts with a frozen text encoder. Each group of texts has a file of its own in the cache, so that a
    language that was read once is not read again beside others.

    Args:
        encoder: the text encoder.
        tokenizer: its tokenizer.
        pooled: gives the pooled features [N, W] of `input_ids` [N, T] and `attention_mask` [N, T].
        pooling: how they are pooled.
        prompt: what stands before every text.
        max_length: number of tokens at which texts are cut.
        batch_size: texts that are read at a time.
        precision: `float32` or `bfloat16`.
        cache_dir: the folder of the cache; by default that of the features of frozen towers.
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
    def _identity(self) -> str:
        settings = self.pooling, self.precision, str(self.max_length)
        return model_identity(self.encoder, self.tokenizer, "pooled texts", *settings)

    def _kept(self, texts: Sequence[str], bar: tqdm) -> Tensor:
        whole = [self.prompt + text for text in texts]
        before = bar.n
        features = frozen_tensor(
            lambda: self._read(whole, bar),
            weights={},  # the identity has them
            settings=self._identity,
            items=(text.encode() for text in whole),
            cache_dir=self.cache_dir,
        )
        bar.update(before + len(whole) - bar.n)
        return features

    def _read(self, texts: list[str], bar: tqdm) -> Tensor:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        parts = []
        device = next(self.encoder.parameters()).device
        with evaluation_mode(self.encoder), autocasting(device, self.precision):
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                chosen = [texts[row] for row in rows]
                length = {"truncation": True, "max_length": self.max_length}
                read = self.tokenizer(chosen, padding=True, return_tensors="pt", **length).to(device)
                found = self.pooled(read["input_ids"], read["attention_mask"])
                assert found is not None
                parts.append(found.float().cpu())
                bar.update(len(rows))
        features = torch.cat(parts)
        return features[torch.tensor(order).argsort()]
