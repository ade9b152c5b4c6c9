"""Searches the images of a folder by a scan of all embeddings in memory, which a cache keeps for each model, so only
new and changed images are encoded. `babelens.search` has indexes for more images."""

import filecmp
import hashlib
import json
import logging
import os
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from datasets import config
from torch import nn

from ..data.corpus.images import skipped_line, unreadable, walk_images
from ..processing.images import readable_formats
from ..utils.errors import CorpusError
from ..utils.files import atomic_file
from ..utils.identity import contents_digest, model_identity, settings_of
from .embedder import Embedder

logger = logging.getLogger(__name__)

IMAGE_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "image_index"  # the command line's
_EQUAL = 1e-5  # scores of one image in two batches differ by rounding
_OF_IMAGES = ("vision_model.", "visual_projection.", "image_projection.")
_WITH_IMAGE_TOWER = ("align", "altclip", "chinese_clip", "clip", "etcl", "metaclip_2", "mural", "siglip", "siglip2")


def image_identity(model: nn.Module, processor: Any) -> str:
    """Returns a digest of everything that determines the embeddings of images, which an image index records: the image
    tower and the image processor, which languages do not change; else `model_identity`."""
    native: Any = getattr(model, "native_model", model)
    weights = {name: value for name, value in native.state_dict().items() if name.startswith(_OF_IMAGES)}
    kinds = (type(native), type(getattr(native, "vision_model", None)), type(processor))
    is_known = all(kind.__module__.startswith(("babelens.", "transformers.")) for kind in kinds)
    if not is_known or not weights or getattr(native.config, "model_type", "") not in _WITH_IMAGE_TOWER:
        return model_identity(model, processor)
    described = [settings_of(native.config.vision_config), getattr(native.config, "image_pooling", "")]
    return contents_digest(weights, json.dumps([*described, settings_of(processor.image_processor)]))[:32]


def _cached(file: Path) -> dict[str, np.ndarray]:
    """Embeddings by the states of their images (name, size, modification); a damaged file has none, with a warning."""
    try:
        if not file.exists():
            return {}
        with np.load(file, allow_pickle=False) as arrays:
            states, embeddings = arrays["states"].tolist(), arrays["embeddings"]
        if embeddings.dtype != np.float32 or embeddings.ndim != 2 or not np.isfinite(embeddings).all():
            raise ValueError("it holds no embeddings")
        return dict(zip(states, embeddings, strict=True))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        logger.warning("%s is damaged (%s): the images are encoded again", file, error)
        return {}


@dataclass(frozen=True)
class FoundImage:
    """An image that a search found, its cosine with the query, and the other files of the folder with its content."""

    path: Path
    score: float
    copies: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class ImageIndex:
    """The images of a folder, their embeddings, float32 [n_images, d], and the reasons why others cannot be read."""

    paths: list[Path]
    embeddings: np.ndarray
    skipped: dict[Path, str]

    @classmethod
    def of_folder(cls, embedder: Embedder, folder: Path, *, cache: Path | None = None) -> Self:
        """Encodes the images of a folder and its subfolders, in the order of their paths. Hidden and system folders
        are passed over; a warning counts and names images that cannot be read. `cache` keeps embeddings between calls,
        in a file for each folder, model and setting; a warning names a damaged file."""
        embedder.check_takes_images()
        skipped: dict[str, str] = {}
        found = walk_images(folder, skipped)
        states = {folder / name: f"{name}|{state.st_size}|{state.st_mtime_ns}" for name, state in found}
        if not states and not skipped:
            formats = ", ".join(readable_formats())
            raise CorpusError(f"{folder}: no images ({formats}) in this folder or in folders below")
        file, known = None, dict[str, np.ndarray]()
        if cache is not None:
            of_folder = hashlib.blake2b(os.fsencode(str(folder.resolve())), digest_size=12).hexdigest()
            settings = {"": embedder.draft, "dim": embedder.truncate_dim}
            given = "".join(f"-{name}{value}" for name, value in settings.items() if value is not None)
            file = cache / f"{image_identity(embedder.model, embedder.processor)}-{of_folder}{given}.npz"
            known = _cached(file)
        new = [path for path, state in states.items() if state not in known]
        bad = unreadable(new)
        skipped |= {str(path.relative_to(folder)): reason for path, reason in bad.items()}
        new = [path for path in new if path not in bad]
        states = {path: state for path, state in states.items() if path not in bad}
        if skipped:
            line = skipped_line(skipped, len(states))
            if not states:
                raise CorpusError(f"{folder}: no image can be read. {line}")
            logger.warning("%s", line)
        known |= dict(zip(map(states.__getitem__, new), embedder.encode_image(new), strict=True))
        embeddings = np.array([known[state] for state in states.values()])
        if file is not None and new:
            try:
                with atomic_file(file) as unfinished:
                    np.savez(unfinished, states=np.array([*states.values()]), embeddings=embeddings)
            except OSError as error:  # the embeddings are in memory all the same
                logger.warning("the embeddings of %s could not be kept: %s", folder, error)
        return cls([*states], embeddings, {folder / name: reason for name, reason in skipped.items()})

    def search(self, query: np.ndarray, top: int, leave_out: Collection[Path] = ()) -> list[FoundImage]:
        """The `top` images nearest to a query [d], nearest first, without `leave_out`; equal files are one image."""
        scores = self.embeddings @ query
        found: list[FoundImage] = []
        for position in np.argsort(-scores, kind="stable"):
            path, score = self.paths[position], float(scores[position])
            near = [image for image in found if image.score - score <= _EQUAL]
            if len(found) == top and not near:
                break
            if path in leave_out:
                continue
            if same := next((image for image in reversed(near) if _same_content(path, image.path)), None):
                same.copies.append(path)
            elif len(found) < top:
                found.append(FoundImage(path, score))
        return found


def _same_content(one: Path, other: Path) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:  # one of them is gone
        return False
