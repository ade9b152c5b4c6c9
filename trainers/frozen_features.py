"""A cache on disk for the features of a frozen model.

The key of a cached file is a digest of everything that the features depend on: the weights and the configuration of
the model, the settings of its processor, and every input. A change of any of them changes the key.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from datasets import config
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..configuration.errors import NonFiniteError
from ..configuration.files import atomic_file, made
from ..configuration.identity import contents_digest
from ..configuration.locks import in_turn
from .saving import removed_on_failure

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "features"
_CHECKED_AT_ONCE = 2**16  # rows


def frozen_features(
    compute: Callable[[], np.ndarray],
    *,
    weights: dict[str, Tensor],
    settings: str,
    items: Iterable[bytes],
    cache_dir: str | Path | None = None,
) -> np.ndarray:
    """Returns `compute()`, or its cached result, float32 [N, d]; otherwise as `frozen_tensor`."""
    found = frozen_tensor(
        lambda: torch.from_numpy(np.ascontiguousarray(compute())),
        weights=weights,
        settings=settings,
        items=items,
        cache_dir=cache_dir,
    )
    array: np.ndarray = found.numpy()
    return array


def frozen_tensor(
    compute: Callable[[], Tensor],
    *,
    weights: dict[str, Tensor],
    settings: str,
    items: Iterable[bytes],
    cache_dir: str | Path | None = None,
) -> Tensor:
    """Returns `compute()`, or its cached result for the same weights, settings and items.

    The result is mapped from the file: processes of one machine share its memory. While another process computes the
    same features, this one waits for them, and logs that it does.

    Args:
        compute: computes the features of all items, [N, ...] of any floating-point type.
        weights: the weights of the frozen model.
        settings: the configuration of the model and the settings of its processor, as text.
        items: the inputs as bytes, in order.
        cache_dir: the folder of the cache; by default a folder in the Hugging Face datasets cache. If a file in it is
            damaged, a warning names it, and the features are computed again.

    Raises:
        NonFiniteError: if a feature is NaN or infinite.
        SaveError: if the features cannot be written.
    """
    folder = Path(cache_dir or DEFAULT_CACHE)
    file = folder / f"{contents_digest(weights, settings, items)}.safetensors"
    kept = _kept(file)
    if kept is not None:
        return kept
    with made(folder), in_turn(file):
        # Another process may have computed them while this one waited for it.
        kept = _kept(file) if file.is_file() else None
        if kept is None:
            logger.info("computing features that are not in %s", folder)
            TemporaryDirectory(dir=folder).cleanup()  # raises before hours of computing if nothing can be written here
            features = compute()
            if not _is_finite(features):
                raise NonFiniteError(f"{len(features)} features of a frozen model: some are NaN or infinite")
            with atomic_file(file) as unfinished, removed_on_failure(unfinished.parent, called=file):
                save_file({"features": features.contiguous()}, unfinished)
            kept = load_file(file)["features"]
    return kept


def _kept(file: Path) -> Tensor | None:
    """The features in a file; None if there is no file or it is damaged."""
    if not file.is_file():
        return None
    try:
        features: Tensor = load_file(file)["features"]
        if not _is_finite(features):
            raise ValueError("it holds numbers that are NaN or infinite")
        return features
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        logger.warning("%s is damaged (%s): its features are computed again", file, error)
        return None


def _is_finite(features: Tensor) -> bool:
    return all(bool(part.isfinite().all()) for part in features.split(_CHECKED_AT_ONCE))
