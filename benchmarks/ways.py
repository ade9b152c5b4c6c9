"""The ways to add a language side by side: the same base, sentences and minutes, several sizes and seeds.

    python benchmarks/ways.py --base BASE --text-encoder intfloat/multilingual-e5-small --translations TABLE.tsv \
        --photos PHOTOS --languages de,fr,cs,mi --sizes 100,1000 --seeds 3 --minutes 5 --output runs/ways

Every run is a `babelens acquire`, whose result is kept as it was trained (`keep=trained`), and a folder in `--output`;
runs that are there are not repeated. TABLE is a table with a column for English and each language. Its last 200
rows are held out: what a text finds among the English sentences of the whole table. PHOTOS are images with captions
(`load_captions`) in English and some of the languages.

Printed is a table in Markdown: recall at 10 of photographs by captions, on the mean of the languages that have them,
with the difference to the first way by the paired bootstrap over photographs, and p corrected by Holm for all ways;
the share of held-out texts that find their own translation first; minutes, trained weights and size on disk.
"""

import csv
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from datasets import Dataset

from babelens import Embedder
from babelens.data import languages_of, load_captions
from babelens.evaluation.comparison import Difference, image_contributions, paired_bootstrap, spread
from babelens.evaluation.query_ranks import QueryRanks
from babelens.evaluation.ranking import embedding_ranks
from babelens.evaluation.retrieval import evaluate_retrieval

HELD_OUT, NATIVE, RESULT, METRIC = 200, "en", "result.json", "t2i_r10"


@dataclass(frozen=True)
class Way:
    """One way to add languages.

    Args:
        title: what the table calls it.
        settings: options of `babelens acquire`.
        reads_encoder: whether it takes the text encoder.
        trains: whether it takes minutes.
        one_language: whether each language is a run of its own.
        texts_alone: whether it learns from the English sentences alone.
    """

    title: str
    settings: tuple[str, ...] = ()
    reads_encoder: bool = False
    trains: bool = False
    one_language: bool = False
    texts_alone: bool = False


def _set(*settings: str) -> tuple[str, ...]:
    return tuple(part for setting in settings for part in ("--set", setting))


_STUDENT = ("--way", "student", *_set("keep=trained"))
WAYS = {
    "closed": Way("closed form: characters, names, glossary (the default)"),
    "characters": Way("closed form: characters alone", _set("names=false", "glossaries=false")),
    "encoder": Way("closed form: the default and the encoder", reads_encoder=True),
    "english": Way("closed form: the encoder, from English alone", reads_encoder=True, texts_alone=True),
    "head": Way("student: a projection", (*_STUDENT, *_set("freeze_encoder=true")), True, True),
    "upper": Way("student: three upper layers", (*_STUDENT, *_set("train_layers=3")), True, True),
    "bitfit": Way("student: biases (BitFit)", (*_STUDENT, *_set("training.towers.text.train=biases")), True, True),
    "lora": Way("student: LoRA", (*_STUDENT, *_set("training.towers.text.train=lora")), True, True),
    "student": Way("student: the whole encoder (Multilingual-CLIP)", _STUDENT, True, True),
    "adapter": Way(
        "MLA's acquirers, with a vocabulary of 4,000 pieces",
        ("--way", "adapter", "--assemble", *_set("keep=trained", "new_vocabulary=4000")),
        trains=True,
        one_language=True,
    ),
}


@dataclass(frozen=True)
class Board:
    """What all runs share."""

    base: str
    text_encoder: str
    rows: list[dict[str, str]]
    photos: str
    languages: list[str]
    minutes: float
    output: Path
    settings: tuple[str, ...] = ()

    @cached_property
    def corpus(self) -> Dataset:
        """The photographs with their captions."""
        return load_captions(self.photos)

    def run(self, way: str, size: int, seed: int) -> dict[str, Any]:
        """Learns all languages in one way, unless that was done before; returns what it finds and what it costs."""
        folder = self.output / f"{way}-{size}-{seed}"
        if not (folder / RESULT).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            groups = [[each] for each in self.languages] if WAYS[way].one_language else [self.languages]
            found: dict[str, Any] = {"seconds": 0.0, "weights": 0, "bytes": 0, "texts": {}, "photos": {}, "ranks": {}}
            for languages in groups:
                self._learn(WAYS[way], size, seed, languages, folder / "-".join(languages)[:40], found)
            (folder / RESULT).write_text(json.dumps(found), encoding="utf-8")
        return json.loads((folder / RESULT).read_text(encoding="utf-8"))

    def _learn(
        self, way: Way, size: int, seed: int, languages: list[str], folder: Path, found: dict[str, Any]
    ) -> None:
        known = np.random.default_rng(seed).permutation(len(self.rows) - HELD_OUT)[:size]
        sentences = folder.with_suffix(".txt" if way.texts_alone else ".tsv")
        with sentences.open("w", encoding="utf-8", newline="") as file:
            if way.texts_alone:
                file.writelines(f"{self.rows[row][NATIVE]}\n" for row in known)
            else:
                table = csv.DictWriter(file, [NATIVE, *languages], delimiter="\t", extrasaction="ignore")
                table.writeheader()
                table.writerows(self.rows[row] for row in known)
        data = ["--texts", str(sentences)] if way.texts_alone else ["--translations", str(sentences)]
        data += [] if way.texts_alone else ["--language", ",".join(languages)]
        budget = [f"--minutes={self.minutes}", *_set(f"training.seed={seed}", *self.settings)] if way.trains else []
        encoder = ["--text-encoder", self.text_encoder] if way.reads_encoder else []
        command = ["acquire", "--base", self.base, *data, *encoder, *way.settings, *budget, "--output", str(folder)]
        began = time.perf_counter()
        told = subprocess.run(
            [sys.executable, "-m", "babelens", *command, "--json"], check=True, stdout=subprocess.PIPE, text=True
        )
        found["seconds"] += time.perf_counter() - began
        if way.trains:
            found["weights"] += json.loads(told.stdout.splitlines()[-1])["costs"]["trained_parameters"]
        model = folder / "model" if (folder / "model").is_dir() else folder
        found["bytes"] += _size(folder) - _size(model if model != folder else Path(self.base))
        self._evaluate(Embedder.from_pretrained(model), languages, found)

    def _evaluate(self, embedder: Embedder, languages: list[str], found: dict[str, Any]) -> None:
        natives = list(dict.fromkeys(row[NATIVE] for row in self.rows))
        gallery, tested = embedder.encode_text(natives, language=NATIVE), self.rows[-HELD_OUT:]
        right = [[natives.index(row[NATIVE])] for row in tested]
        for language in languages:
            queries = embedder.encode_text([row[language] for row in tested], language=language)
            found["texts"][language] = embedding_ranks(gallery, queries, right).recalls()["t2i_r1"]
        captioned = [each for each in languages if each in languages_of(self.corpus)]
        ranks: dict[str, QueryRanks] = {}
        scores = evaluate_retrieval(embedder, self.corpus, captioned, ranks=ranks) if captioned else {}
        for language, numbers in scores.items():
            found["photos"][language] = numbers[METRIC]
            found["ranks"][language] = image_contributions([ranks[language]], METRIC).tolist()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _contributions(runs: Sequence[dict[str, Any]]) -> np.ndarray:
    """What each photograph adds to the recall, on the mean of seeds and languages."""
    return np.mean([each for run in runs for each in run["ranks"].values()], axis=0)


def _corrected(differences: dict[str, Difference]) -> dict[str, float]:
    """The p of each difference as Holm (1979) corrects it for all of them."""
    corrected, greatest = {}, 0.0
    for place, name in enumerate(sorted(differences, key=lambda each: differences[each].p)):
        greatest = max(greatest, min((len(differences) - place) * differences[name].p, 1.0))
        corrected[name] = greatest
    return corrected


def _table(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """The lines of the table of one size."""
    yield "| way | photographs, R@10 | difference, 95 % | p (Holm) | texts, R@1 | minutes | weights trained | MB |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    first = next(iter(found))
    differences = {
        way: paired_bootstrap(_contributions(runs) - _contributions(found[first]))
        for way, runs in found.items()
        if way != first and runs[0]["ranks"] and found[first][0]["ranks"]
    }
    corrected = _corrected(differences)
    shared = set.intersection(*(set(runs[0]["texts"]) for runs in found.values()))
    for way, runs in found.items():
        photos = spread([statistics.fmean(run["photos"].values()) for run in runs]) if runs[0]["photos"] else "–"
        texts = spread([statistics.fmean(run["texts"][each] for each in shared) for run in runs])
        seconds, size = (statistics.fmean(run[name] for run in runs) for name in ("seconds", "bytes"))
        compared = "| |"
        if way in differences:
            each = differences[way]
            compared = f"| {each.value:+.1f} ({each.low:+.1f} to {each.high:+.1f}) | {corrected[way]:.3f}"
        yield (
            f"| {WAYS[way].title} | {photos} {compared} | {texts} | {seconds / 60:.1f} | {runs[0]['weights']:,} | "
            f"{size / 2**20:.0f} |"
        )


def main(
    base: Annotated[str, typer.Option(help="The dual encoder that learns.")],
    text_encoder: Annotated[str, typer.Option(help="The multilingual text encoder.")],
    translations: Annotated[Path, typer.Option(help="A table with a column for each language.")],
    photos: Annotated[str, typer.Option(help="Images with captions.")],
    languages: Annotated[str, typer.Option(help="The languages, separated by commas.")],
    output: Annotated[Path, typer.Option(help="The folder of all runs.")],
    sizes: Annotated[str, typer.Option(help="Numbers of sentences.")] = "100,1000",
    seeds: Annotated[int, typer.Option(help="Runs of each way and size, with other sentences each.")] = 5,
    minutes: Annotated[float, typer.Option(help="Of each training.")] = 5.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Keys of each training's recipe, such as `steps=500`.")
    ] = None,
    ways: Annotated[str, typer.Option(help="Which ways, the first of which the others are compared with.")] = ",".join(
        WAYS
    ),
) -> None:
    """Print a table of each size."""
    with translations.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    board = Board(base, text_encoder, rows, photos, languages.split(","), minutes, output, tuple(settings or ()))
    for size in map(int, sizes.split(",")):
        found = {way: [board.run(way, size, seed) for seed in range(seeds)] for way in ways.split(",")}
        trained = ", ".join(settings or [f"{minutes:g} minutes of training"])
        print(f"\n{size:,} sentences, {languages}, {seeds} seeds, {trained}\n")
        print("\n".join(_table(found)))


if __name__ == "__main__":
    typer.run(main)
