"""Retrieve, then rerank, on the emoji benchmark's unseen concepts: recall and time for several k beside full scoring.

    python benchmarks/rerank.py runs/backbone runs/itr --backbone runs/backbone --languages en,de,zh

A dual encoder finds, a cross-encoder judges: the best k of every text among the images, and of every image among
the texts. The first row is the dual encoder alone, the last the cross-encoder on all pairs. Numbers are means over the
languages; seconds are wall-clock time of the scoring, of both directions together. The rows take turns in one process;
with `--rounds` they do so several times, and medians are shown.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import transformers
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from babelens import CrossEncoder, Embedder
from babelens.data import load_emoji, retrieval_set
from babelens.data.batching.retrieval_sets import RetrievalSet
from babelens.evaluation.ranking import RetrievalRanks, embedding_ranks, reranked_ranks, score_ranks
from babelens.inference.region_extraction import RegionExtractor

DUAL, FULL = "dual encoder", "all pairs"
_SHOWN = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r10", "mean_recall", "pairs", "seconds")


class Judge:
    """A cross-encoder on the texts of one language, and on images or their regions; counts the pairs that it scores,
    and the time."""

    def __init__(self, cross_encoder: CrossEncoder, queries: RetrievalSet, regions: np.ndarray | None) -> None:
        self.cross_encoder, self.queries, self.regions = cross_encoder, queries, regions
        self.pairs, self.seconds = 0, 0.0

    def __call__(self, pairs: np.ndarray) -> np.ndarray:
        queries, start = self.queries, time.perf_counter()
        images = queries.images if self.regions is None else None
        scores = self.cross_encoder.score_pairs(
            queries.texts, images, pairs, language=queries.language, regions=self.regions
        )
        self.pairs += len(pairs)
        self.seconds += time.perf_counter() - start
        return scores

    def ranks(self, images: np.ndarray, texts: np.ndarray, row: str) -> RetrievalRanks:
        """Of one row of the table, from the dual encoder's embeddings."""
        right = self.queries.text_to_images
        if row == DUAL:
            return embedding_ranks(images, texts, right)
        if row == FULL:
            pairs = np.indices((len(texts), len(images))).reshape(2, -1).T
            return score_ranks(self(pairs).reshape(len(texts), len(images)), right)
        return reranked_ranks(images, texts, right, self, int(row))


def main(
    dual_encoder: Annotated[Path, typer.Argument(help="Any model with text and image embeddings.")],
    cross_encoder: Annotated[Path, typer.Argument(help="An Rc3ForImageTextRetrieval.")],
    languages: Annotated[
        str, typer.Option(help="Comma-separated list of languages that both models know.")
    ] = "en,de,fr",
    top_k: Annotated[str, typer.Option(help="Comma-separated list.")] = "10,50,100",
    vendor: Annotated[str, typer.Option(help="Vendor of the images, which was seen in training.")] = "twemoji",
    backbone: Annotated[
        Path | None,
        typer.Option(help="A vision model, the cells of whose features the cross-encoder reads as regions."),
    ] = None,
    grid: Annotated[int, typer.Option(help="Use an N x N grid of features as regions.")] = 2,
    batch_size: Annotated[int, typer.Option(help="Number of pairs that are scored at a time.")] = 64,
    rounds: Annotated[int, typer.Option(help="Number of times that every row is timed.")] = 1,
    limit: Annotated[int | None, typer.Option(help="Maximum number of images, to try the script.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the numbers into this file (JSON).")] = None,
) -> None:
    """Measure and print the table."""
    tags, rows = languages.split(","), [DUAL, *top_k.split(","), FULL]
    corpus = load_emoji(vendors=vendor, split="test", languages=tags)
    corpus = corpus.select(range(limit)) if limit else corpus
    embedder = Embedder.from_pretrained(dual_encoder)
    judge = CrossEncoder.from_pretrained(cross_encoder, batch_size=batch_size)
    gallery = retrieval_set(corpus, tags[0]).images
    images = embedder.encode_image(gallery)
    regions = None
    if backbone:
        regions = RegionExtractor.from_pretrained(backbone, grid=grid)(gallery)
    measured: dict[str, list[dict[str, float]]] = {row: [] for row in rows}
    for language in tags:
        queries = retrieval_set(corpus, language)
        texts = embedder.encode_text(queries.texts, language=language)
        for row, numbers in _measure(partial(Judge, judge, queries, regions), images, texts, rows, rounds).items():
            measured[row].append(numbers)
    table = {row: _means(results) for row, results in measured.items()}
    _show(table, f"{len(corpus)} images by {vendor}, {', '.join(tags)}; torch {torch.__version__}, "
                 f"transformers {transformers.__version__}, {torch.get_num_threads()} thread(s)")  # fmt: skip
    if output:
        output.write_text(json.dumps(table, indent=2), encoding="utf-8")


def _measure(
    new_judge: Callable[[], Judge], images: np.ndarray, texts: np.ndarray, rows: list[str], rounds: int
) -> dict[str, dict[str, float]]:
    """Each row's recalls, pairs and seconds, in one language."""
    seconds: dict[str, list[float]] = {row: [] for row in rows}
    results: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for row in rows:
            asked = new_judge()
            results[row] = asked.ranks(images, texts, row).recalls() | {"pairs": asked.pairs}
            seconds[row].append(asked.seconds)
    return {row: numbers | {"seconds": statistics.median(seconds[row])} for row, numbers in results.items()}


def _means(results: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.mean(result[name] for result in results) for name in results[0]}


def _show(table: dict[str, dict[str, float]], caption: str) -> None:
    shown = Table(box=SIMPLE_HEAD, caption=caption)
    shown.add_column("k")
    for name in (*_SHOWN, "of full time"):
        shown.add_column(name, justify="right")
    full = table[FULL]["seconds"]
    for row, numbers in table.items():
        cells = [f"{numbers[name]:,.0f}" if name == "pairs" else f"{numbers[name]:.1f}" for name in _SHOWN]
        shown.add_row(row, *cells, f"{numbers['seconds'] / full:.1%}")
    Console().print(shown)


if __name__ == "__main__":
    typer.run(main)
