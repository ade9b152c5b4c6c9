"""A cache on disk for the features of a frozen model.

The key of a cached file is a digest of everything that the features depend on: the weights and the configuration of
the model, the settings of its processor, and every input.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import config
from datasets.utils.logging import tqdm
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling.encoding import autocasting, evaluation_mode
from ..utils.errors import InputError
from ..utils.files import atomic_file, ensure_parents, wait_for_lock
from ..utils.identity import contents_digest, model_identity

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "features"


def frozen_features(compute: Callable[[], np.ndarray], **key: Any) -> np.ndarray:
    """Like `frozen_tensor`, for float32 arrays [N, d]."""
    array: np.ndarray = frozen_tensor(compute, **key).numpy()
    return array


def frozen_tensor(
    compute: Callable[[], Tensor | np.ndarray],
    *,
    weights: dict[str, Tensor],
    settings: str,
    items: Iterable[bytes],
    cache_dir: str | Path | None = None,
) -> Tensor:
    """Returns `compute()` or its cached result for the same weights, settings and items.

    The result is memory-mapped from the file, so the processes of one machine share it. While another process computes
    the same features, this process waits for them. If a file is damaged, its features are computed again.

    Args:
        compute: computes the features of all items, [N, ...], in any floating-point type.
        weights: the weights of the frozen model.
        settings: the configuration of the model and the settings of its processor, as text.
        items: the inputs as bytes, in order.
        cache_dir: the cache folder; by default a folder in the Hugging Face datasets cache.
    """
    folder = Path(cache_dir or DEFAULT_CACHE)
    file = folder / f"{contents_digest(weights, settings, items)}.safetensors"
    kept = _kept(file)
    if kept is not None:
        return kept
    with ensure_parents(folder), wait_for_lock(file):
        kept = _kept(file)  # another process may have computed them while this one waited
        if kept is None:
            TemporaryDirectory(dir=folder).cleanup()  # raises before hours of computing if nothing can be written here
            logger.debug("computing features that are not in %s", folder)
            features = torch.as_tensor(compute())
            if not features.isfinite().all():
                raise InputError(f"{len(features)} features of a frozen model: some are NaN or infinite")
            with atomic_file(file) as unfinished:
                save_file({"features": features.contiguous()}, unfinished)
            kept = load_file(file)["features"]
    return kept


def _kept(file: Path) -> Tensor | None:
    """The features in a file; None if there is no file or it is damaged."""
    if not file.is_file():
        return None
    try:
        features: Tensor = load_file(file)["features"]
        if features.isfinite().all():
            return features
    except (OSError, SafetensorError, KeyError):
        pass
    logger.warning("%s is damaged: its features are computed again", file)
    return None


# ---- Text encoders ----


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
            weights={},  # the identity includes them
            settings=self.identity,
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
