"""Experiments of several rows and seeds: a row is a recipe, or what settings make of one."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from babelens.evaluation.comparison import spread as spread
from babelens.evaluation.results import RESULTS, read_results

# Options of the scripts that train rows.
Output = Annotated[Path, typer.Option(help="Output folder of the runs; one that is there is not trained again.")]
Seeds = Annotated[str, typer.Option(help="Comma-separated list.")]
Rows = Annotated[str, typer.Option(help="Comma-separated list; default: all.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Keys of every run's recipe, such as `training.max_steps=10`.")
]


@dataclass(frozen=True)
class Experiment:
    """Runs in `output/<row>-<seed>`, each trained once, of a `recipe` such as `emoji/mla/{}` for the row's name, with
    `settings` of the recipe, as for `babelens train --set`, or a function from a row and a seed to them."""

    output: Path
    recipe: str
    settings: Sequence[str] | Callable[[str, int], Sequence[str]] = ()

    def folder(self, row: str, seed: int) -> Path:
        return self.output / f"{row}-{seed}"

    def train_all(
        self, rows: Iterable[str], seeds: Iterable[int], shared: Mapping[str, tuple[str, str]] | None = None
    ) -> None:
        """Trains rows, seed by seed. `shared` is a row -> (another row, a stage of it), after which the row begins."""
        rows = list(rows)
        for seed in seeds:
            for row in rows:
                if shared and row in shared:
                    source, stage = shared[row]
                    finished = Path("checkpoints", stage, "finished")
                    learned, target = self.folder(source, seed) / finished, self.folder(row, seed) / finished
                    if not learned.is_dir():  # a run of this stage alone
                        learned = self.folder(source, seed)
                    if not target.is_dir():
                        target.mkdir(parents=True)
                        for name in ("config.json", "model.safetensors"):
                            shutil.copy(learned / name, target)
                self.train(row, seed)

    def train(self, row: str, seed: int) -> None:
        output = self.folder(row, seed)
        if (output / RESULTS).is_file():  # a run ends with its results
            return
        given = self.settings(row, seed) if callable(self.settings) else self.settings
        changes = [part for each in (f"training.seed={seed}", *given) for part in ("--set", each)]
        command = [sys.executable, "-m", "babelens", "train", self.recipe_of(row), "--resume", *changes]
        self.run([*command, "--output", str(output)], output)

    def recipe_of(self, row: str) -> str:
        """The recipe of a row: a variant, unless the row is named as the file that has the variants."""
        name = self.recipe.format(row)
        file, _, variant = name.partition(":")
        return file if variant and file.endswith(f"/{variant}") else name

    def run(self, command: list[str], output: Path) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def report(self, row: str, seed: int) -> dict[str, Any] | None:
        if not (self.folder(row, seed) / RESULTS).is_file():
            return None
        report: dict[str, Any] = {}
        for found in read_results(self.folder(row, seed)):
            if found.dataset != "vocabulary":
                report.setdefault(found.dataset, {}).setdefault(found.language, {})[found.metric] = found.value
        return report or None

    def reports(self, row: str, seeds: Iterable[int]) -> list[dict[str, Any]]:
        return [report for seed in seeds if (report := self.report(row, seed)) is not None]


def chosen(given: str, known: Iterable[str]) -> list[str]:
    names = list(known)
    return sorted(given.split(","), key=names.index) if given else names


def numbers(given: str) -> list[int]:
    return [int(number) for number in given.split(",")]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---|" + "--:|" * (len(headings) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
