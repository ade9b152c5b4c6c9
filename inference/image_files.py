"""The image files of a folder, found by their endings, and their embeddings in the cache."""

import hashlib
import logging
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import PIL.Image
from huggingface_hub import constants

from ..configuration.errors import CorpusError
from ..configuration.files import atomic_file, made
from ..configuration.locks import in_turn
from ..processing.images import FORMATS


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


logger = logging.getLogger(__name__)


def image_cache() -> Path:
    """The folder of the cache where the command line keeps embeddings of images."""
    return cache_folder() / "image_index"


class ImageStore:
    """The file of the cache that holds the embeddings of a folder's images.

    An embedding is kept under the state of its image: name, size and time of modification.

    Args:
        cache: the folder of the cache.
        fingerprint: that of the model (`model_identity`).
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
