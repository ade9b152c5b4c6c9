"""Analyses of a dual encoder's embeddings, for `babelens analyze languages`, `captions` and `neighbors`."""

from pathlib import Path
from typing import Literal

import datasets
import numpy as np

from ...configuration.errors import CorpusError
from ...configuration.files import atomic_file
from ...configuration.suggestions import did_you_mean
from ...data.batching.retrieval_sets import retrieval_set
from ...evaluation.analysis.embedding_layout import embedding_map
from ...evaluation.analysis.figures.maps import draw_embedding_map, draw_language_map
from ...evaluation.analysis.figures.style import save_figure
from ...evaluation.analysis.language_similarity import language_map
from ...evaluation.analysis.neighbors import draw_neighbors, nearest_neighbors
from ...evaluation.analysis.parallel import encode_parallel, parallel_texts
from ...inference.embedder import Embedder
from ...model_cards.emoji import emoji_sources
from ...workflows.recipe import EMOJI
from .analysis_files import (
    EMOJI_VENDOR,
    check_numbers_file,
    default_languages,
    load_images,
    load_texts,
    show_analysis,
)


def analyze_languages(
    embedder: Embedder,
    data: str,
    languages: list[str] | None,
    *,
    split: str | None,
    limit: int,
    seed: int,
    task: str | None,
    output: Path,
    as_json: bool,
) -> None:
    """Maps the languages; arguments as the command's options."""
    check_numbers_file(output)
    corpus = load_texts(data, split, languages)
    texts = parallel_texts(corpus, languages or default_languages(corpus, data), limit=limit)
    found = language_map(encode_parallel(embedder, texts, task=task), seed=seed)
    save_figure(draw_language_map(found), output)
    nearest = max(
        ((a, b) for a in range(len(found.languages)) for b in range(a)), key=lambda pair: found.similarities[pair]
    )
    show_analysis(
        "languages",
        found,
        output,
        as_json,
        f"{len(found.languages)} languages on {found.n_texts:,} texts: SVCCA {_mean_of_pairs(found.similarities):.2f} "
        f"on average, {found.similarities[nearest]:.2f} between {found.languages[nearest[1]]} and "
        f"{found.languages[nearest[0]]}, {found.chance:.2f} for shuffled texts",
    )


def analyze_captions(
    embedder: Embedder,
    data: str,
    languages: list[str] | None,
    *,
    split: str | None,
    limit: int,
    seed: int,
    method: Literal["tsne", "umap"],
    task: str | None,
    output: Path,
    as_json: bool,
) -> None:
    """Maps the captions; arguments as the command's options."""
    check_numbers_file(output)
    corpus = load_texts(data, split, languages)
    texts = parallel_texts(corpus, languages or default_languages(corpus, data), limit=limit)
    found = embedding_map(encode_parallel(embedder, texts, task=task), texts.ids, method=method, seed=seed)
    save_figure(draw_embedding_map(found), output)
    show_analysis(
        "captions",
        found,
        output,
        as_json,
        f"Of a caption's nearest {len(found.languages) - 1} captions, {found.same_image:.1f} % are of its image "
        f"(chance {found.chance_image:.1f} %), and {found.same_language:.1f} % in its language "
        f"(chance {found.chance_language:.1f} %)",
    )


def analyze_neighbors(
    embedder: Embedder,
    data: str,
    languages: list[str] | None,
    *,
    split: str | None,
    query: str | None,
    image_id: str | None,
    language: str,
    top: int,
    output: Path,
    as_json: bool,
) -> None:
    """Draws the neighbors of a query; arguments as the command's options."""
    check_numbers_file(output)
    corpus = load_images(data, split, languages and [*languages, language])
    text = _caption_of(corpus, image_id, language) if image_id is not None else query
    assert text is not None
    found = nearest_neighbors(
        embedder,
        corpus,
        text,
        language,
        languages=languages or default_languages(corpus, data),
        image_id=image_id,
        top=top,
    )
    sources = emoji_sources([EMOJI_VENDOR]) if data == EMOJI else []
    gallery = draw_neighbors(found, corpus, credits=[f"{each.attribution} {each.license}" for each in sources])
    with atomic_file(output) as path:
        gallery.save(path, "PNG")
    lines = [f"{each.score:.3f}  {each.image_id}" for each in found.images]
    show_analysis("neighbors", found, output, as_json, "\n".join([f"Images nearest to {text} [{language}]:", *lines]))


def _caption_of(corpus: datasets.Dataset, image_id: str, language: str) -> str:
    """The first caption of an image in a language."""
    queries = retrieval_set(corpus, language)
    if image_id not in queries.text_image_ids:
        known = did_you_mean(image_id, queries.text_image_ids)
        raise CorpusError(f"the data have no caption in {language} of an image {image_id!r}{known}")
    return queries.texts[queries.text_image_ids.index(image_id)]


def _mean_of_pairs(similarities: np.ndarray) -> float:
    return float(similarities[~np.eye(len(similarities), dtype=bool)].mean())
