"""Searching the images of a folder by text.

The embeddings of a folder's images can be kept in a cache, for each model; when the folder is searched again, only
images that are new or have changed (by name, size and time of modification) are encoded. A scan of all embeddings is
fast up to millions of images; beyond that, write them with `babelens embed --output images.parquet` and give
`Dataset.from_parquet` of that file a faiss index (`add_faiss_index("embedding")`).
"""

import hashlib
import logging
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import PIL.Image

from ..configuration.errors import BadImageError, CorpusError, ImageError
from ..configuration.files import atomic_file
from ..processing.images import FORMATS, check_image
from .embedder import Embedder
from .fingerprint import fingerprint

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageIndex:
    """The images of a folder with their embeddings.

    Args:
        paths: the images.
        embeddings: their embeddings, float32 [n_images, d].
        skipped: the images that could not be read, each with the reason.
    """

    paths: list[Path]
    embeddings: np.ndarray
    skipped: dict[Path, str]

    @classmethod
    def of_folder(
        cls,
        embedder: Embedder,
        folder: Path,
        *,
        skip_bad_images: bool = False,
        cache: Path | None = None,
        show_progress: bool | None = None,
    ) -> Self:
        """Encodes the images of a folder and its subfolders, in the order of their paths.

        Args:
            embedder: the model.
            folder: the folder of images; other files are ignored.
            skip_bad_images: leave out images that cannot be read, instead of raising an error.
            cache: a folder that keeps embeddings between calls; by default they are not kept. When a file of the
                cache is damaged or cannot be written, a warning names it, and the images are encoded.
            show_progress: as in `Embedder.encode_image`.

        Raises:
            CorpusError: when the folder holds no image.
            BadImageError: for an image that cannot be read.
            ModelKindError: for an encoder of texts alone.
        """
        embedder.check_takes_images()
        states = {path: _state(path, folder) for path in images_in(folder)}
        if not states:
            raise CorpusError(f"{folder}: no images ({', '.join(FORMATS)}) in this folder or in folders below")
        store = cache and cache / f"{_made_by(embedder)}-{_digest(str(folder.resolve()))}.npz"
        known = _load(store) if store else {}
        new = [path for path, state in states.items() if state not in known]
        skipped = {path: reason for path in new if (reason := _defect(path))}
        if skipped and not skip_bad_images:
            raise BadImageError("\n".join(skipped.values()))
        new = [path for path in new if path not in skipped]
        embeddings = embedder.encode_image(new, show_progress=show_progress)
        known |= zip((states[path] for path in new), embeddings, strict=True)
        paths = [path for path in states if path not in skipped]
        index = cls(paths, np.array([known[states[path]] for path in paths]), skipped)
        if store and new:
            try:
                _save(store, [states[path] for path in paths], index.embeddings)
            except OSError as error:  # what was encoded is there all the same
                logger.warning("the embeddings of %s could not be kept: %s", folder, error)
        return index

    def search(self, query: np.ndarray, top: int) -> list[tuple[Path, float]]:
        """The `top` images that are nearest to a query embedding [d], nearest first, with their cosines."""
        scores = self.embeddings @ query
        return [(self.paths[best], float(scores[best])) for best in np.argsort(-scores, kind="stable")[:top]]


def images_in(folder: Path) -> list[Path]:
    """The images of a folder and its subfolders, in the order of their paths."""
    suffixes = {suffix for suffix, name in PIL.Image.registered_extensions().items() if name in FORMATS}
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())


def _state(path: Path, folder: Path) -> str:
    facts = path.stat()
    return f"{path.relative_to(folder)}|{facts.st_size}|{facts.st_mtime_ns}"


def _defect(path: Path) -> str | None:
    """The reason why an image cannot be read; None for an image that can be read."""
    try:
        check_image(path)
    except ImageError as error:
        return str(error)
    return None


def _made_by(embedder: Embedder) -> str:
    """A digest of everything that an embedding depends on, other than the image."""
    return fingerprint(embedder.model, embedder.processor.image_processor.to_json_string())


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=12).hexdigest()


def _load(store: Path) -> dict[str, np.ndarray]:
    """The embeddings in a file of the cache; none for a damaged file, which is then written again."""
    if not store.exists():
        return {}
    try:
        with np.load(store, allow_pickle=False) as arrays:
            states, embeddings = arrays["states"].tolist(), arrays["embeddings"]
        if embeddings.dtype != np.float32 or embeddings.ndim != 2 or not np.isfinite(embeddings).all():
            raise ValueError("it holds no embeddings")
        return dict(zip(states, embeddings, strict=True))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        logger.warning("%s is damaged (%s): the images are encoded again", store, error)
        return {}


def _save(store: Path, states: list[str], embeddings: np.ndarray) -> None:
    with atomic_file(store) as path:
        np.savez(path, states=np.array(states), embeddings=embeddings)
