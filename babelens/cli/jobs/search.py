"""Searching a folder of images, for `babelens search`."""

from pathlib import Path

import numpy as np

from ...data.corpus.images import refuse_mostly_bad
from ...inference.cross_encoder import CrossEncoder
from ...inference.embedder import Embedder
from ...inference.file_states import FileStates
from ...inference.fingerprint import image_fingerprint
from ...inference.image_index import ImageIndex
from ...inference.image_store import image_cache
from ...inference.quick_search import remember_model
from ..search_results import Found


def search_images(
    embedder: Embedder,
    folder: Path,
    query: str,
    language: str,
    *,
    top: int,
    cross_encoder: CrossEncoder | None,
    top_k: int,
    skip_bad_images: bool,
) -> tuple[ImageIndex, Found]:
    """The index of a folder, and the best `top` images for a query with their scores, best first.

    With a cross-encoder, they are the best by its scores among the embedder's best `top_k`.
    """
    index = ImageIndex.of_folder(embedder, folder, skip_bad_images=skip_bad_images, cache=image_cache())
    refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
    embedding = embedder.encode_text(query, language=language)[0]
    if cross_encoder is None:
        return index, index.search(embedding, top)
    paths = [path for path, _ in index.search(embedding, top_k)]
    scores = cross_encoder.score([query] * len(paths), paths, language=language)
    return index, [(paths[best], float(scores[best])) for best in np.argsort(-scores, kind="stable")[:top]]


def remember(model: str, embedder: Embedder, states: FileStates) -> None:
    """Keeps what the next search needs to answer without loading the model (`inference.quick_search`); its files had
    these states before it was loaded."""
    remember_model(model, embedder, image_fingerprint(embedder.model, embedder.processor), states)
