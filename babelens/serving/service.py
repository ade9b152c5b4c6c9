"""A folder of images, the model that encodes queries, and the ids by which requests name images."""

import hashlib
import logging
import os
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ..inference.embedder import Embedder
from ..inference.image_index import ImageIndex
from ..inference.texts import default_language, languages_of, warn_of_language
from ..processing.images import open_image
from ..utils.language_matching import learned_language
from ..utils.languages import UNDETERMINED, normalize_language

logger = logging.getLogger(__name__)

THUMBNAIL, LARGE = 320, 1600  # pixels of the longer side


Entry = dict[str, Any]  # an image in an answer, as `ImageService._entry` makes it


class ImageService:
    """Searches a folder of images, also from several threads, by the `model` of this folder or name; `language` is for
    queries that state none. Images outside it (symbolic links) are left out, with a warning; deleted ones are not
    found."""

    def __init__(
        self, embedder: Embedder, folder: Path, *, model: str, cache: Path | None = None, language: str | None = None
    ) -> None:
        embedder.check_takes_images()
        self.embedder, self.folder, self.model = embedder, folder, model
        self.languages, self.takes_any_language = languages_of(embedder.processor, model)
        self.language = None if language is None else normalize_language(language)
        if self.language and not self.takes_any_language:  # before all images are read
            self.language = learned_language(self.language, self.languages)
        for weight in (*embedder.model.parameters(), *embedder.model.buffers()):
            weight.data = weight.data.clone()  # it may be mapped from its file, which could be overwritten
        self.index = index = ImageIndex.of_folder(embedder, folder, cache=cache)
        self._root = os.path.realpath(folder)
        self._out = {path for path in index.paths if not self._is_inside(path)}
        if self._out:
            logger.warning(
                "left out %d images that links take out of the folder: %s, …", len(self._out), min(self._out)
            )
        self._positions = {self._id(path): row for row, path in enumerate(index.paths) if path not in self._out}
        self.needs_language = getattr(embedder.processor, "needs_language", False)
        self._encoding = Lock()  # the model encodes one query at a time

    def __len__(self) -> int:
        return len(self._positions)

    def by_text(self, query: str, language: str | None, top: int) -> tuple[list[Entry], str | None]:
        """The images that fit a text best, and the language in which it was read; None where none matters."""
        stated = language or self.language
        tag = normalize_language(stated) if stated else default_language(self.embedder.processor)
        warn_of_language(tag, self.languages, self.takes_any_language, self.model)
        with self._encoding:
            [embedding] = self.embedder.encode_text([query], language=tag, show_progress=False)
        return self._nearest(embedding, top), None if tag == UNDETERMINED and not stated else tag

    def by_image(self, data: bytes, top: int) -> list[Entry]:
        """Returns the images that resemble the image in a file; raises an `ImageError` if it cannot be read."""
        with self._encoding:  # a file of few bytes can be an image of many megabytes: one is decoded at a time
            [embedding] = self.embedder.encode_image(open_image(data, draft=self.embedder.draft), show_progress=False)
        return self._nearest(embedding, top)

    def similar(self, image_id: str, top: int) -> list[Entry]:
        """Returns the images that resemble one of the folder, without it and its copies; raises as `path` does."""
        return self._nearest(self.index.embeddings[self._positions[image_id]], top, leave_out=self.path(image_id))

    def listed(self, top: int) -> list[Entry]:
        """Images to look at, in an order that is mixed and stays the same."""
        paths = (self.index.paths[self._positions[image_id]] for image_id in sorted(self._positions))
        return [self._entry(path) for path in islice(filter(self._is_there, paths), top)]

    def path(self, image_id: str) -> Path:
        """The path; a `KeyError` for an unknown id, a `FileNotFoundError` if it is gone or outside the folder."""
        if not self._is_there(path := self.index.paths[self._positions[image_id]]):
            raise FileNotFoundError(path)
        return path

    def thumbnail(self, image_id: str, side: int) -> bytes:
        """Returns a WebP image with this longer side in pixels; raises the errors of `path`, and an `ImageError`."""
        path = self.path(image_id)
        return _thumbnail(path, path.stat().st_mtime_ns, side)

    def name(self, path: Path) -> str:
        """The path of an image in the folder; characters that are not Unicode are replaced."""
        return os.fsencode(path.relative_to(self.folder).as_posix()).decode("utf-8", errors="replace")

    def _nearest(self, embedding: np.ndarray, top: int, leave_out: Path | None = None) -> list[Entry]:
        wanted = top
        while True:
            best, found = self.index.search(embedding, wanted, self._out), []
            for hit in best:
                paths = [path for path in (hit.path, *hit.copies) if self._is_there(path)]
                if paths and leave_out not in paths:
                    found.append(self._entry(paths[0], hit.score, len(paths) - 1))
            if len(found) >= top or len(best) < wanted:
                return found[:top]
            wanted *= 2  # some are gone

    def _entry(self, path: Path, score: float | None = None, copies: int = 0) -> Entry:
        image_id = self._id(path)  # a digest of the path, so no request names paths
        urls = {"image": f"images/{image_id}", "thumbnail": f"thumbnails/{image_id}"}
        return {"id": image_id, "file": self.name(path), "score": score, "copies": copies} | urls

    def _id(self, path: Path) -> str:
        return hashlib.blake2b(os.fsencode(path.relative_to(self.folder).as_posix()), digest_size=8).hexdigest()

    def _is_inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self._root)

    def _is_there(self, path: Path) -> bool:
        return path.is_file() and self._is_inside(path)


@lru_cache(maxsize=512)
def _thumbnail(path: Path, changed: int, side: int) -> bytes:
    image = open_image(path, draft=side)
    image.thumbnail((side, side), reducing_gap=2.0)
    written = BytesIO()
    image.save(written, "WEBP", quality=80, method=2)
    return written.getvalue()
