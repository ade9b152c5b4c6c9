"""Analyses of a dual encoder's embeddings, for `babelens analyze languages`, `captions` and `neighbors`."""

from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import typer

from ...configuration.configuration_consistency import CrossLingualConsistencyConfig
from ...configuration.errors import CorpusError
from ...configuration.files import atomic_file
from ...configuration.languages import normalize_languages
from ...configuration.suggestions import did_you_mean
from ...data.batching.retrieval_sets import retrieval_set
from ...data.corpus.sampling import evenly_spread
from ...evaluation.analysis.embedding_layout import embedding_map, label_map
from ...evaluation.analysis.figures.maps import draw_embedding_map, draw_label_map, draw_language_map
from ...evaluation.analysis.figures.style import save_figure
from ...evaluation.analysis.language_similarity import language_map
from ...evaluation.analysis.neighbors import draw_neighbors, nearest_neighbors
from ...evaluation.analysis.parallel import encode_parallel, parallel_texts
from ...evaluation.analysis.side_by_side import draw_side_by_side, side_by_side, with_consistency
from ...evaluation.class_labels import ClassifiedImages, read_labels
from ...evaluation.consistency import consistency_scores
from ...inference.embedder import Embedder
from ...model_cards.emoji import emoji_sources
from ...modeling.modeling_consistency import CrossLingualConsistency
from ...workflows.recipe import EMOJI
from ...workflows.run_results import row_names
from .analysis_files import (
    EMOJI_VENDOR,
    check_numbers_file,
    default_languages,
    load_images,
    load_texts,
    show_analysis,
)
from .models import load_retrieval_embedder, load_translator


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


def analyze_labels(
    embedder: Embedder,
    data: Path,
    labels: Path,
    languages: list[str] | None,
    *,
    method: Literal["tsne", "umap"],
    limit: int,
    seed: int,
    output: Path,
    as_json: bool,
) -> None:
    """Maps images and the labels of their classes; arguments as the command's options."""
    check_numbers_file(output)
    found = ClassifiedImages.of_folder(data)
    named = read_labels(labels, found.classes, languages)
    rows = evenly_spread(len(found.images), limit)
    embedded = {
        language: dict(
            zip(of_classes, embedder.encode_text(list(of_classes.values()), language=language), strict=True)
        )
        for language, of_classes in named.items()
    }
    images = embedder.encode_image([found.images[row] for row in rows])
    result = label_map(images, found.targets[rows].tolist(), embedded, found.classes, method=method, seed=seed)
    save_figure(draw_label_map(result), output)
    accuracies = ", ".join(f"{language} {value:.1f}" for language, value in result.accuracy.items())
    show_analysis(
        "labels", result, output, as_json, f"Images whose nearest label is that of their class, %: {accuracies}"
    )


def analyze_retrieval(
    models: list[str],
    data: str,
    languages: list[str] | None,
    *,
    split: str | None,
    direction: str,
    queries: int,
    top: int,
    differing: bool,
    consistency: bool,
    translator: str | None,
    fit_split: str | None,
    batch_size: int,
    trust_remote_code: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Draws what models find for the same queries; arguments as the command's options."""
    check_numbers_file(output)
    corpus = load_images(data, split, languages)
    tags = languages or default_languages(corpus, data)
    code = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    names = row_names(models)
    if len(set(names)) < len(names):
        twice = next(model for model in models if models.count(model) > 1)
        raise typer.BadParameter(f"{twice} is named twice", param_hint="MODELS")
    embedders = {name: load_retrieval_embedder(model, **code) for name, model in zip(names, models, strict=True)}
    options: dict[str, Any] = {"queries": queries, "top": top, "differing": differing}
    if consistency:
        (embedder,) = embedders.values()
        machine = translator and load_translator(translator, None, trust_remote_code, "--consistency-translator")
        tags = normalize_languages(tags)
        kind = "mlp" if fit_split else "mean"
        joint = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=tags, aggregation=kind))
        if fit_split:
            fitted_on = load_images(data, fit_split, languages)
            joint.fit(*consistency_scores(embedder, fitted_on, tags[0], tags, translator=machine or None))
        found = with_consistency(embedder, corpus, tags, joint, translator=machine or None, **options)
    else:
        way: Any = direction.replace("-", "_")
        found = side_by_side(embedders, corpus, tags, direction=way, **options)
    sources = emoji_sources([EMOJI_VENDOR]) if data == EMOJI else []
    gallery = draw_side_by_side(found, corpus, credits=[f"{each.attribution} {each.license}" for each in sources])
    with atomic_file(output) as path:
        gallery.save(path, "PNG")
    lines = [
        f"{language}: {', '.join(f'{name} {value:.1f}' for name, value in of_models.items())}"
        for language, of_models in found.first.items()
    ]
    show_analysis("retrieval", found, output, as_json, "\n".join(["Right answers that come first, %:", *lines]))


def _caption_of(corpus: datasets.Dataset, image_id: str, language: str) -> str:
    """The first caption of an image in a language."""
    queries = retrieval_set(corpus, language)
    if image_id not in queries.text_image_ids:
        known = did_you_mean(image_id, queries.text_image_ids)
        raise CorpusError(f"the data have no caption in {language} of an image {image_id!r}{known}")
    return queries.texts[queries.text_image_ids.index(image_id)]


def _mean_of_pairs(similarities: np.ndarray) -> float:
    return float(similarities[~np.eye(len(similarities), dtype=bool)].mean())
