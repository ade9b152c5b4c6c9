"""What is searched: a folder of images, the model that encodes queries, and the ids by which the page names images."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from torch import nn

from ..configuration.errors import ServerBusyError, UnknownLanguageError
from ..configuration.identity import model_identity
from ..configuration.languages import learned_language, normalize_language, normalize_languages
from ..inference.embedder import Embedder
from ..inference.image_index import FoundImage as Found, ImageIndex
from ..inference.texts import languages_of, warn_of_language
from ..processing.images import open_image
from ..processing.text_inputs import needs_language
from .gate import ServingLimits
from .image_files import Thumbnails, leads_out, open_inside, version_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundImage:
    """An image that a search found.

    Args:
        id: the id of the image.
        file: its path in the folder.
        score: the cosine of its embedding and that of the query.
        copies: the number of other files of the folder with the same content.
    """

    id: str
    file: str
    score: float
    copies: int


class ImageService:
    """Answers searches in a folder of images; queries that come at the same time are encoded together.

    Images have ids, digests of their paths in the folder, so that no request names a path. An image that leads out of
    the folder by a symbolic link is left out, with a warning that names it.

    Args:
        embedder: the model.
        index: the index of the folder.
        folder: the folder.
        model: the folder or the name of the model.
        limits: what one request may cost.
        languages: the languages that the page offers; by default those of the model.
        default_language: the language of queries that state none.
        title: the title of the page.

    Raises:
        LanguageTagError: for a tag of no language.
        UnknownLanguageError: for a language that the model does not take.
    """

    def __init__(
        self,
        embedder: Embedder,
        index: ImageIndex,
        folder: Path,
        *,
        model: str,
        limits: ServingLimits,
        languages: Sequence[str] = (),
        default_language: str | None = None,
        title: str | None = None,
    ) -> None:
        self.embedder, self.index, self.folder, self.model, self.limits = embedder, index, folder, model, limits
        self._left_out = {path for path in index.paths if leads_out(path, folder)}
        if self._left_out:
            logger.warning(
                "left out %d images that lead out of %s by a symbolic link, such as %s",
                len(self._left_out),
                folder,
                min(self._left_out),
            )
        self._positions = {
            _id_of(path, folder): position for position, path in enumerate(index.paths) if path not in self._left_out
        }
        self._ids = {index.paths[position]: image_id for image_id, position in self._positions.items()}
        self.languages, self.takes_any_language = languages_of(embedder.processor, model)
        self.needs_language = needs_language(embedder.processor)
        wanted, self.default_language = _asked_languages(embedder, model, languages, default_language)
        self.limited, self.offered = bool(wanted), wanted or self.languages
        self.title = title or None
        self.fingerprint = model_identity(embedder.model, embedder.processor)
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
        show_progress: bool | None = None,
        limits: ServingLimits | None = None,
        languages: Sequence[str] = (),
        default_language: str | None = None,
        title: str | None = None,
    ) -> Self:
        """Encodes the images of a folder, with the arguments of `ImageIndex.of_folder`.

        Args:
            embedder, folder, cache, show_progress: as in `ImageIndex.of_folder`.
            model: the folder or the name of the model.
            limits: what one request may cost; by default `ServingLimits()`.
            languages, default_language, title: as in the class.

        Raises:
            CorpusError: as in `ImageIndex.of_folder`.
            ModelKindError: for an encoder of texts alone.
        """
        embedder.check_takes_images()
        _asked_languages(embedder, model, languages, default_language)  # before all images are read
        _keep_weights(embedder.model)
        index = ImageIndex.of_folder(embedder, folder, cache=cache, show_progress=show_progress)
        return cls(
            embedder,
            index,
            folder,
            model=model,
            limits=limits or ServingLimits(),
            languages=languages,
            default_language=default_language,
            title=title,
        )

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
        """The `top` images that are nearest to an embedding [d], nearest first; files of the same content are one."""
        return self._named(self.index.search_distinct(embedding, top, self._left_out))

    def listed(self, top: int) -> list[tuple[str, str]]:
        """The ids and files of `top` images, in an order that is mixed and stays the same."""
        chosen = sorted(self._positions)[:top]  # ids are digests
        return [(image_id, self.file_of(self.path(image_id))) for image_id in chosen]

    def similar(self, image_id: str, top: int) -> list[FoundImage]:
        """The `top` images that are nearest to an image of the folder, without it and its copies; KeyError for an
        unknown id."""
        position = self._positions[image_id]
        path = self.index.paths[position]
        best = self.index.search_distinct(self.index.embeddings[position], top + 1, self._left_out)
        return self._named([image for image in best if path not in (image.path, *image.copies)][:top])

    def _named(self, images: list[Found]) -> list[FoundImage]:
        return [
            FoundImage(self._ids[image.path], self.file_of(image.path), image.score, len(image.copies))
            for image in images
        ]

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

    def _encode_texts(self, queries: list[tuple[str, str]]) -> np.ndarray:
        texts, languages = zip(*queries, strict=True)
        return self.embedder.encode_text(list(texts), language=list(languages), show_progress=False)


def _asked_languages(
    embedder: Embedder, model: str, languages: Sequence[str], default: str | None
) -> tuple[list[str], str | None]:
    """The languages to offer and the default one, normalized; refused where the model does not take them."""
    stated, takes_any = languages_of(embedder.processor, model)
    wanted, first = normalize_languages([*languages]), normalize_language(default) if default else None
    if not takes_any:
        for tag in (*wanted, *([first] if first else [])):
            learned_language(tag, stated)
    if wanted and first and first not in wanted:
        raise UnknownLanguageError(f"the default language {first} is not among those offered: {', '.join(wanted)}")
    return wanted, first


def _keep_weights(model: nn.Module) -> None:
    """Copies the weights of a model into memory of this process.

    Loaded weights may lie in the file itself, of which the system reads a page when it is needed: a file that is
    overwritten would change answers in part, and one that is cut off would end the process.
    """
    for weight in (*model.parameters(), *model.buffers()):
        weight.data = weight.data.clone()


def _id_of(path: Path, folder: Path) -> str:
    return hashlib.blake2b(os.fsencode(path.relative_to(folder).as_posix()), digest_size=8).hexdigest()


# ---- Batching ----
# Batches of concurrent queries: what comes in within a few milliseconds is encoded by one pass of the model.


class QueryBatcher:
    """Encodes queries that are asked at the same time in batches.

    While a batch is encoded, the queries that come in form the next one. A query that cannot be encoded fails alone:
    the other queries of its batch are encoded one by one.

    Args:
        encode: computes the embeddings of a list of queries, [N, d].
        executor: where `encode` runs; a model needs an executor with one thread.
        limits: the size of a batch, how long the first query waits for others, and how many queries may wait.
    """

    def __init__(self, encode: Callable[[list[Any]], np.ndarray], executor: Executor, limits: ServingLimits) -> None:
        self._encode, self._executor, self._limits = encode, executor, limits
        self._waiting: list[tuple[Any, asyncio.Future[np.ndarray]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def embedding(self, query: Any) -> np.ndarray:
        """The embedding of a query, [d].

        Raises:
            ServerBusyError: when too many queries wait already.
            Exception: what `encode` raises for this query.
        """
        if len(self._waiting) >= self._limits.waiting:
            raise ServerBusyError(f"{len(self._waiting)} queries are waiting already: ask again in a moment")
        answer: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._waiting.append((query, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._encode_waiting())
        return await answer

    async def _encode_waiting(self) -> None:
        """Encodes batches until no query waits."""
        try:
            await asyncio.sleep(self._limits.batch_seconds)
            while self._waiting:
                batch = self._waiting[: self._limits.batch_size]
                del self._waiting[: len(batch)]
                batch = [(query, answer) for query, answer in batch if not answer.done()]  # some have been cancelled
                results = await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._each, [query for query, _ in batch]
                )
                for (_, answer), result in zip(batch, results, strict=True):
                    if answer.done():
                        continue
                    if isinstance(result, Exception):
                        answer.set_exception(result)
                    else:
                        answer.set_result(result)
        finally:
            self._worker = None

    def _each(self, queries: list[Any]) -> Sequence[np.ndarray | Exception]:
        """The embedding of each query, or the error that it raises."""
        if not queries:
            return []
        try:
            return list(self._encode(queries))
        except Exception as error:
            if len(queries) == 1:
                return [error]
            return [result for query in queries for result in self._each([query])]
