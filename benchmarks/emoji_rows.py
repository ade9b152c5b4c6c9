"""Experiments of several rows and seeds on the emoji benchmark: a row is a recipe, trained once for each seed."""

import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """Runs in `output/<row>-<seed>`; one that is there is not trained again.

    Args:
        recipes: folder of the rows' recipes, such as `emoji/mla`.
        output: folder of the runs.
        settings: keys of every row's recipe, as for `babelens train --set`.
    """

    recipes: str
    output: Path
    settings: list[str] = field(default_factory=list)

    def folder(self, row: str, seed: int) -> Path:
        return self.output / f"{row}-{seed}"

    def finished(self, row: str, seed: int, stage: str) -> Path:
        """Where a run keeps the model that a stage ended with."""
        return self.folder(row, seed) / "checkpoints" / stage / "finished"

    def give_stage(self, model: Path, row: str, seed: int, stage: str) -> None:
        """Lets a run begin behind a stage that another run has trained."""
        target = self.finished(row, seed, stage)
        if not target.is_dir():
            target.mkdir(parents=True)
            for name in ("config.json", "model.safetensors"):
                shutil.copy(model / name, target)

    def train(self, row: str, seed: int) -> None:
        if self.report(row, seed) is not None:
            return
        options = [
            argument for setting in [f"training.seed={seed}", *self.settings] for argument in ("--set", setting)
        ]
        command = [sys.executable, "-m", "babelens", "train", f"{self.recipes}/{row}", "--resume", *options]
        subprocess.run([*command, "--output", str(self.folder(row, seed))], check=True, stdout=subprocess.DEVNULL)

    def report(self, row: str, seed: int) -> dict[str, Any] | None:
        """The emoji benchmark's answers for a run, or None while there are none."""
        file = self.folder(row, seed) / "evaluation" / "emoji.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    def reports(self, row: str, seeds: list[int]) -> list[dict[str, Any]]:
        """Those of the seeds that have been trained."""
        return [report for seed in seeds if (report := self.report(row, seed)) is not None]


def scores(report: dict[str, Any], question: str, score: str = "t2i_r10") -> dict[str, float]:
    """A score in per cent by language, for `unseen_vendor` or `unseen_concepts`."""
    groups = report[question]["groups"].values()
    return {language: numbers[score] for group in groups for language, numbers in group["languages"].items()}


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"
