"""Processor time of the analyses on 20 languages with 1,000 texts each, without encoding; figures included.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/analyses.py
    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/analyses.py --only UMAP

Embeddings and ranks are synthetic. UMAP is called twice: numba compiles it for the first time.
"""

import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from babelens.evaluation import QueryRanks, RunResults, analysis as a
from babelens.evaluation.ranking import RetrievalRanks

LANGUAGES = [
    "en",
    "de",
    "fr",
    "cs",
    "zh",
    "ja",
    "es",
    "ru",
    "ko",
    "tr",
    "hi",
    "id",
    "sw",
    "it",
    "pt",
    "nl",
    "sv",
    "pl",
    "uk",
    "ar",
]
N, D = 1000, 512
IDS = [str(index) for index in range(N)]


def embeddings(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Unit vectors whose variance falls from dimension to dimension, similar between languages."""
    scale = np.linspace(1, 0.02, D)
    shared = random.standard_normal((N, D)) * scale
    found = {tag: shared + 0.3 * scale * random.standard_normal((N, D)) for tag in LANGUAGES}
    return {tag: (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for tag, x in found.items()}


def results(random: np.random.Generator, name: str) -> RunResults:
    """Ranks of which every tenth or so is among the first ten."""
    ranks, scores = {}, {}
    for tag in LANGUAGES:
        drawn = RetrievalRanks(*random.integers(1, 101, (2, N)))
        scores["captions", tag] = drawn.recalls()
        ranks["captions", tag] = QueryRanks(drawn.text_to_image, drawn.image_to_text, np.arange(N), "same", "same")
    return RunResults(name, scores, ranks)


def analyses(file: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The name of each analysis, and a function that computes it and draws its figure."""
    random = np.random.default_rng(0)
    given = embeddings(random)
    runs = {name: [results(random, name)] for name in ("before", "after")}
    ranks = {tag: each for (_, tag), each in runs["before"][0].ranks.items()}
    amounts = {tag: a.TrainingTexts(captions=index * 100) for index, tag in enumerate(LANGUAGES)}
    recalls = {tag: numbers["t2i_r10"] for (_, tag), numbers in runs["before"][0].scores.items()}
    turned = {tag: each[::-1] for tag, each in given.items()}

    def drawn(draw: Callable[[Any], Any], compute: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: a.save_figure(draw(compute()), file)

    yield "languages", drawn(a.draw_language_map, lambda: a.language_map(given))
    yield "captions, t-SNE", drawn(a.draw_embedding_map, lambda: a.embedding_map(given, IDS))
    umap = drawn(a.draw_embedding_map, lambda: a.embedding_map(given, IDS, method="umap"))
    few = {tag: each[:20] for tag, each in given.items()}
    yield "captions, UMAP, compiling", lambda: a.embedding_map(few, IDS[:20], method="umap")
    yield "captions, UMAP", umap
    yield "agreement", drawn(a.draw_agreement, lambda: a.language_agreement(ranks))
    yield "forgetting", drawn(a.draw_forgetting, lambda: a.forgetting(runs))
    yield "data", drawn(a.draw_data_recall, lambda: a.recall_by_data(amounts, recalls))
    yield "distances", drawn(a.draw_distance_ratios, lambda: a.distance_ratios(given, turned, IDS, anchor="en"))


def main(only: Annotated[str, typer.Option(help="Time analyses whose name holds this.")] = "") -> None:
    typer.echo(f"{platform.machine()}, {len(LANGUAGES)} languages × {N} texts")
    with TemporaryDirectory() as folder:
        for name, analyze in analyses(Path(folder) / "figure.svg"):
            if only in name:
                start = time.process_time()
                analyze()
                typer.echo(f"{name:26} {time.process_time() - start:6.1f} s")


if __name__ == "__main__":
    typer.run(main)
