"""Searching the images of a folder by text.

The embeddings of a folder's images can be kept in a cache, for each model; when the folder is searched again, only
images that are new or have changed (by name, size and time of modification) are encoded. A search is a scan of all
embeddings in memory; `babelens.search` has indexes for more images than that.
"""

import filecmp
import hashlib
import logging
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import PIL.Image
from huggingface_hub import constants

from ..configuration.errors import BadImageError, CorpusError, ImageError
from ..configuration.files import atomic_file, made
from ..configuration.identity import image_identity
from ..configuration.locks import in_turn
from ..processing.images import FORMATS, check_image
from .embedder import Embedder
from .similarity import best_first

logger = logging.getLogger(__name__)


# ---- The image files of a folder, found by their endings, and their embeddings in the cache ----


def walk_images(folder: Path) -> Iterator[Path]:
    """The images of a folder and its subfolders, in the order of their paths.

    The names of one folder at a time are in memory. Links to files are followed, links to folders are not.
    """
    return (folder / name for name, _ in image_entries(folder))


def image_entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The images of `walk_images`, each as its path in the folder and its entry there, which knows its state."""
    suffixes = {suffix for suffix, name in PIL.Image.registered_extensions().items() if name in FORMATS}
    return _walk(folder, "", suffixes)


def images_in(folder: Path) -> list[Path]:
    """The images of `walk_images` as a list."""
    return list(walk_images(folder))


def utf8_name(path: Path, folder: Path) -> str:
    """The name of an image in a folder, as a column of text can hold it.

    Raises:
        CorpusError: for a name that is not UTF-8.
    """
    name = path.relative_to(folder).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CorpusError(f"{path}: its name is not UTF-8, as in a column of text it must be; rename it") from None
    return name


def _walk(folder: Path, inside: str, suffixes: set[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    # Strings: a Path for each of a million files takes longer than everything else here.
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{inside}{entry.name}{os.sep}", suffixes)
        elif os.path.splitext(entry.name)[1].lower() in suffixes and entry.is_file():
            yield f"{inside}{entry.name}", entry


# ---- The embeddings of a folder's images in the cache, one file for each model ----


def image_cache() -> Path:
    """The folder of the cache where the command line keeps embeddings of images."""
    return cache_folder() / "image_index"


class ImageStore:
    """The file of the cache that holds the embeddings of a folder's images.

    An embedding is kept under the state of its image: name, size and time of modification.

    Args:
        cache: the folder of the cache.
        fingerprint: that of the model (`image_identity`).
        folder: the folder of images.
        draft: the sides that are kept of large JPEG files (`Embedder.draft`), on which their embeddings depend.
        truncate_dim: the dimensions that are kept of embeddings, or None for all.
    """

    def __init__(
        self, cache: Path, fingerprint: str, folder: Path, draft: int | None, truncate_dim: int | None = None
    ) -> None:
        of_folder = hashlib.blake2b(os.fsencode(str(folder.resolve())), digest_size=12).hexdigest()
        self.file = cache / f"{fingerprint}-{of_folder}{'' if draft is None else f'-{draft}'}"
        self.file = self.file.with_name(f"{self.file.name}{'' if truncate_dim is None else f'-dim{truncate_dim}'}.npz")

    def load(self) -> dict[str, np.ndarray]:
        """The embeddings by the states of their images; none when the file is missing, or damaged, with a warning."""
        try:
            if not self.file.exists():
                return {}
            with np.load(self.file, allow_pickle=False) as arrays:
                states, embeddings = arrays["states"].tolist(), arrays["embeddings"]
            if embeddings.dtype != np.float32 or embeddings.ndim != 2 or not np.isfinite(embeddings).all():
                raise ValueError("it holds no embeddings")
            return dict(zip(states, embeddings, strict=True))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            logger.warning("%s is damaged (%s): the images are encoded again", self.file, error)
            return {}

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Keeps other processes from encoding the same images: they wait, and log for which process.

        Where nothing can be written, nobody waits.
        """
        with ExitStack() as stack:
            with suppress(OSError):
                stack.enter_context(made(self.file.parent))
                stack.enter_context(in_turn(self.file))
            yield

    def save(self, embeddings: Mapping[str, np.ndarray]) -> None:
        """Writes the embeddings.

        Raises:
            SaveError: if the file cannot be written.
        """
        with atomic_file(self.file) as path:
            np.savez(path, states=np.array([*embeddings]), embeddings=np.array([*embeddings.values()]))


def image_keys(folder: Path) -> dict[str, str]:
    """The images of a folder and its subfolders, in the order of their paths: the path of each in the folder, and the
    state under which its embedding is kept."""
    states = ((name, entry.stat()) for name, entry in image_entries(folder))
    return {name: f"{name}|{state.st_size}|{state.st_mtime_ns}" for name, state in states}


# ---- Cache ----
# Where babelens keeps what it can make again, beside what `datasets` keeps; without importing `datasets`.


def cache_folder() -> Path:
    """The folder: `babelens` in the cache of `datasets`, which `HF_DATASETS_CACHE` moves."""
    return Path(os.environ.get("HF_DATASETS_CACHE", f"{constants.HF_HOME}/datasets")) / "babelens"


# ---- The index ----

_EQUAL = 1e-5  # embeddings of one image in two batches differ by rounding


@dataclass(frozen=True)
class FoundImage:
    """An image that a search found.

    Args:
        path: the image.
        score: the cosine of its embedding and that of the query.
        copies: other files of the folder with the same content.
    """

    path: Path
    score: float
    copies: list[Path] = field(default_factory=list)


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
                cache is damaged or cannot be written, a warning names it, and the images are encoded. While another
                process encodes the same images for it, this one waits for them.
            show_progress: as in `Embedder.encode_image`.

        Raises:
            CorpusError: when the folder holds no image.
            BadImageError: for an image that cannot be read.
            ModelKindError: for an encoder of texts alone.
        """
        embedder.check_takes_images()
        states = {folder / name: state for name, state in image_keys(folder).items()}
        if not states:
            raise CorpusError(f"{folder}: no images ({', '.join(FORMATS)}) in this folder or in folders below")
        if cache is None:
            return cls._encoded(embedder, states, {}, skip_bad_images, show_progress)
        identity = image_identity(embedder.model, embedder.processor)
        store = ImageStore(cache, identity, folder, embedder.draft, embedder.truncate_dim)
        with store.in_turn():
            known = store.load()
            index = cls._encoded(embedder, states, known, skip_bad_images, show_progress)
            if any(states[path] not in known for path in index.paths):
                try:
                    store.save({states[path]: row for path, row in zip(index.paths, index.embeddings, strict=True)})
                except OSError as error:  # what was encoded is there all the same
                    logger.warning("the embeddings of %s could not be kept: %s", folder, error)
        return index

    @classmethod
    def _encoded(
        cls,
        embedder: Embedder,
        states: Mapping[Path, str],
        known: Mapping[str, np.ndarray],
        skip_bad_images: bool,
        show_progress: bool | None,
    ) -> Self:
        """The images with these states; those whose state is not among the `known` ones are encoded."""
        new = [path for path, state in states.items() if state not in known]
        skipped = {path: reason for path in new if (reason := _defect(path))}
        if skipped and not skip_bad_images:
            raise BadImageError("\n".join(skipped.values()))
        new = [path for path in new if path not in skipped]
        encoded = dict(zip(new, embedder.encode_image(new, show_progress=show_progress), strict=True))
        paths = [path for path in states if path not in skipped]
        rows = [encoded[path] if path in encoded else known[states[path]] for path in paths]
        return cls(paths, np.array(rows), skipped)

    def search(self, query: np.ndarray, top: int) -> list[tuple[Path, float]]:
        """The `top` images that are nearest to a query embedding [d], nearest first, with their cosines."""
        scores = self.embeddings @ query
        return [(self.paths[best], float(scores[best])) for best in best_first(scores, top)]

    def search_distinct(self, query: np.ndarray, top: int, leave_out: Collection[Path] = ()) -> list[FoundImage]:
        """As `search`, with files of the same content as one image.

        Args:
            query: the embedding of the query [d].
            top: how many different images to find.
            leave_out: images that are not found.
        """
        scores = self.embeddings @ query
        found: list[FoundImage] = []
        rows: list[np.ndarray] = []
        for position in best_first(scores, len(scores)):
            path, score, row = self.paths[position], float(scores[position]), self.embeddings[position]
            if len(found) == top and score < found[-1].score - _EQUAL:
                break
            if path in leave_out:
                continue
            for image, other in zip(found, rows, strict=True):
                is_equal = image.score - score <= _EQUAL and np.abs(row - other).max() <= _EQUAL
                if is_equal and _same_content(path, image.path):
                    image.copies.append(path)
                    break
            else:
                if len(found) < top:
                    found.append(FoundImage(path, score))
                    rows.append(row)
        return found


def _same_content(one: Path, other: Path) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:  # one of them is gone
        return False


def _defect(path: Path) -> str | None:
    """The reason why an image cannot be read; None for an image that can be read."""
    try:
        check_image(path)
    except ImageError as error:
        return str(error)
    return None
