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
from ...inference.stated_languages import languages_of, warn_of_language
from ...processing.text_inputs import UNDETERMINED, default_language
from ..search_results import Found


def search_images(
    embedder: Embedder,
    model: str,
    folder: Path,
    query: str,
    language: str | None,
    *,
    top: int,
    cross_encoder: CrossEncoder | None,
    top_k: int,
    skip_bad_images: bool,
) -> tuple[ImageIndex, Found, str | None]:
    """The index of a folder, the best `top` images for a query with their scores, best first, and the language in
    which it was read, if it matters.

    With a cross-encoder, they are the best by its scores among the embedder's best `top_k`.
    """
    tag = language or default_language(embedder.processor)
    warn_of_language(tag, *languages_of(embedder.processor, model), model)
    index = ImageIndex.of_folder(embedder, folder, skip_bad_images=skip_bad_images, cache=image_cache())
    refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
    embedding = embedder.encode_text(query, language=tag)[0]
    read_as = None if language is None and tag == UNDETERMINED else tag
    if cross_encoder is None:
        return index, index.search(embedding, top), read_as
    paths = [path for path, _ in index.search(embedding, top_k)]
    scores = cross_encoder.score([query] * len(paths), paths, language=tag)
    best = np.argsort(-scores, kind="stable")[:top]
    return index, [(paths[position], float(scores[position])) for position in best], read_as


def remember(model: str, embedder: Embedder, states: FileStates) -> None:
    """Keeps what the next search needs to answer without loading the model (`inference.quick_search`); its files had
    these states before it was loaded."""
    remember_model(model, embedder, image_fingerprint(embedder.model, embedder.processor), states)
