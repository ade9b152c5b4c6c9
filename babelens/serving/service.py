"""What is searched: a folder of images, the model that encodes queries, and the ids by which the page names images."""

import hashlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from torch import nn

from ..data.corpus.images import refuse_mostly_bad
from ..inference.embedder import Embedder
from ..inference.file_states import FileStates, image_states, model_states
from ..inference.fingerprint import image_fingerprint
from ..inference.image_index import ImageIndex
from ..inference.stated_languages import languages_of, warn_of_language
from ..processing.images import open_image
from ..processing.text_inputs import needs_language
from .batching import QueryBatcher
from .image_files import Thumbnails, leads_out, open_inside, version_of
from .limits import ServingLimits

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundImage:
    """An image that a search found.

    Args:
        id: the id of the image.
        file: its path in the folder.
        score: the cosine of its embedding and that of the query.
    """

    id: str
    file: str
    score: float


class ImageService:
    """Answers searches in a folder of images; queries that come at the same time are encoded together.

    Images have ids, digests of their paths in the folder, so that no request names a path. An image that leads out of
    the folder by a symbolic link is left out, with a warning that names it.

    Args:
        embedder: the model.
        index: the index of the folder.
        folder: the folder.
        model: the folder or the name of the model.
        states: size and time of modification of each image when the index was made, as `image_states` returns them.
        model_files: the same of the files of the model (`model_states`).
        limits: what one request may cost.
    """

    def __init__(
        self,
        embedder: Embedder,
        index: ImageIndex,
        folder: Path,
        *,
        model: str,
        states: FileStates,
        model_files: FileStates,
        limits: ServingLimits,
    ) -> None:
        self.embedder, self.index, self.folder, self.model, self.limits = embedder, index, folder, model, limits
        self.left_out = [path for path in index.paths if leads_out(path, folder)]
        if self.left_out:
            logger.warning(
                "left out %d images that lead out of %s by a symbolic link, such as %s",
                len(self.left_out),
                folder,
                self.left_out[0],
            )
        hidden = set(self.left_out)
        self._positions = {
            _id_of(path, folder): position for position, path in enumerate(index.paths) if path not in hidden
        }
        self._ids = {index.paths[position]: image_id for image_id, position in self._positions.items()}
        self.languages, self.takes_any_language = languages_of(embedder.processor, model)
        self.needs_language = needs_language(embedder.processor)
        self.fingerprint = image_fingerprint(embedder.model, embedder.processor)
        self._states, self._model_states = states, model_files
        # A model encodes one batch at a time, as it is in eval mode meanwhile.
        encoding = ThreadPoolExecutor(1, "encode")
        self._texts = QueryBatcher(self._encode_texts, encoding, limits)
        self._images = QueryBatcher(embedder.encode_image, encoding, limits)
        self.thumbnails = Thumbnails(limits)

    @classmethod
    def of_folder(
        cls,
        embedder: Embedder,
        folder: Path,
        *,
        model: str,
        cache: Path | None = None,
        skip_bad_images: bool = False,
        show_progress: bool | None = None,
        limits: ServingLimits | None = None,
    ) -> Self:
        """Encodes the images of a folder, with the arguments of `ImageIndex.of_folder`.

        Args:
            embedder, folder, cache, skip_bad_images, show_progress: as in `ImageIndex.of_folder`.
            model: the folder or the name of the model.
            limits: what one request may cost; by default `ServingLimits()`.

        Raises:
            CorpusError: when the folder holds no image.
            BadImageError: for an image that cannot be read; with `skip_bad_images`, when most images are such.
            ModelKindError: for an encoder of texts alone.
        """
        embedder.check_takes_images()
        _keep_weights(embedder.model)
        # Before the index, so that a change in between is noticed.
        states, model_files = image_states(folder), model_states(model)
        index = ImageIndex.of_folder(
            embedder, folder, skip_bad_images=skip_bad_images, cache=cache, show_progress=show_progress
        )
        refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
        limits = limits or ServingLimits()
        return cls(embedder, index, folder, model=model, states=states, model_files=model_files, limits=limits)

    def __len__(self) -> int:
        """The number of images."""
        return len(self._positions)

    async def text_embedding(self, query: str, language: str) -> np.ndarray:
        """The embedding [d] of a query in a language; raises what `Embedder.encode_text` and `QueryBatcher` raise."""
        warn_of_language(language, self.languages, self.takes_any_language, self.model)
        return await self._texts.embedding((query, language))

    async def image_embedding(self, image: Any) -> np.ndarray:
        """The embedding [d] of an image; raises what `Embedder.encode_image` and `QueryBatcher` raise."""
        return await self._images.embedding(image)

    def opened_upload(self, data: bytes) -> Any:
        """The image of an uploaded file; raises an `ImageError` when it cannot be read or has too many pixels."""
        return open_image(data, max_pixels=self.limits.upload_pixels, draft=self.embedder.draft)

    def found(self, embedding: np.ndarray, top: int) -> list[FoundImage]:
        """The `top` images that are nearest to an embedding [d], nearest first."""
        best = self.index.search(embedding, top + len(self.left_out))
        return [FoundImage(self._ids[path], self.file_of(path), score) for path, score in best if path in self._ids][
            :top
        ]

    def similar(self, image_id: str, top: int) -> list[FoundImage]:
        """The `top` images that are nearest to an image of the folder, without itself; KeyError for an unknown id."""
        embedding = np.asarray(self.index.embeddings[self._positions[image_id]], dtype=np.float32)
        return [image for image in self.found(embedding, top + 1) if image.id != image_id][:top]

    def path(self, image_id: str) -> Path:
        """The path of an image; KeyError for an unknown id."""
        return self.index.paths[self._positions[image_id]]

    def open(self, image_id: str) -> BinaryIO:
        """Opens the file of an image.

        Raises:
            KeyError: for an unknown id.
            OSError: when the file is gone, or leads out of the folder by now.
        """
        return open_inside(self.path(image_id), self.folder)

    def thumbnail(self, image_id: str) -> tuple[bytes, str]:
        """A small WebP image and its version; raises what `open` raises, and an `ImageError` for a broken image."""
        with self.open(image_id) as file:
            version = version_of(file)
            thumbnail = self.thumbnails.kept(image_id, version)
            return thumbnail or self.thumbnails.make(image_id, version, file), version

    def file_of(self, path: Path) -> str:
        """The path of an image in the folder; what is no Unicode in it is replaced."""
        return os.fsencode(path.relative_to(self.folder).as_posix()).decode("utf-8", errors="replace")

    def is_current(self) -> bool:
        """Whether the images and the files of the model are those that were there when the index was made."""
        try:
            return image_states(self.folder) == self._states and model_states(self.model) == self._model_states
        except OSError:  # the folder, or a file that was just listed, is gone
            return False

    def _encode_texts(self, queries: list[tuple[str, str]]) -> np.ndarray:
        texts, languages = zip(*queries, strict=True)
        return self.embedder.encode_text(list(texts), language=list(languages), show_progress=False)


def _keep_weights(model: nn.Module) -> None:
    """Copies the weights of a model into memory of this process.

    Loaded weights may lie in the file itself, of which the system reads a page when it is needed: a file that is
    overwritten would change answers in part, and one that is cut off would end the process.
    """
    for weight in (*model.parameters(), *model.buffers()):
        weight.data = weight.data.clone()


def _id_of(path: Path, folder: Path) -> str:
    return hashlib.blake2b(os.fsencode(path.relative_to(folder).as_posix()), digest_size=8).hexdigest()
