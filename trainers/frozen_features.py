"""A cache on disk for the features of a frozen model.

The key of a cached file is a digest of everything that the features depend on: the model, its processor, the version
of transformers, and every input.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from datasets import config
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..utils.errors import InputError
from ..utils.files import atomic_file, ensure_parents, one_at_a_time
from ..utils.identity import contents_digest

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "features"


def frozen_features(compute: Callable[[], np.ndarray], **key: Any) -> np.ndarray:
    """Like `frozen_tensor`, for float32 arrays [N, d]."""
    array: np.ndarray = frozen_tensor(compute, **key).numpy()
    return array


def frozen_tensor(
    compute: Callable[[], Tensor | np.ndarray],
    *,
    identity: str,
    items: Iterable[bytes],
    cache_dir: str | Path | None = None,
) -> Tensor:
    """Returns `compute()` or its cached result for the same model and items.

    The result is memory-mapped from the file, so the processes of one machine share it. While another process computes
    the same features, this process waits for them. If a file is damaged, its features are computed again.

    Args:
        compute: computes the features of all items, [N, ...], in any floating-point type.
        identity: a digest of the model and its processor, such as `model_identity` returns.
        items: the inputs as bytes, in order.
        cache_dir: the cache folder; by default a folder in the Hugging Face datasets cache.
    """
    folder = Path(cache_dir or DEFAULT_CACHE)
    file = folder / f"{contents_digest({}, f'{identity} {transformers.__version__}', items)}.safetensors"
    kept = _kept(file)
    if kept is not None:
        return kept
    with ensure_parents(folder), one_at_a_time(file):
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
