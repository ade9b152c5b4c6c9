"""What a run's folder, or a file of results, holds for a report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.repocard import metadata_load
from yaml import YAMLError

from ..configuration.errors import ComparisonError
from ..evaluation.comparison import RunResults
from ..evaluation.found_images import Gallery, gallery_file, read_gallery
from ..model_cards.card_text import without_paths
from ..workflows.reporting import EVALUATION, FACTS, outdated_results, stage_log
from ..workflows.run_results import finished_runs, read_file, result_files
from ..workflows.training import CHECKPOINTS

_CARD = "README.md"


@dataclass(frozen=True)
class Evaluation:
    """A file of results, from every run that has it.

    Args:
        name: its name without the ending, such as `validation` or `emoji`.
        runs: the results of each run.
        details: what the results state about a test set beside its languages, such as the recalls of a random ranking.
        gallery: some queries with their images, of the first run that has them.
    """

    name: str
    runs: list[RunResults]
    details: Mapping[str, Mapping[str, Any]]
    gallery: Gallery | None


@dataclass(frozen=True)
class Run:
    """What is known of one run.

    Args:
        name: its folder.
        card: the facts of its model card: all of them (`run_facts`), or those of the card's metadata for a run of an
            earlier version.
        memory: the most memory that it took, in gigabytes.
        logs: the name and the log of each of its stages.
    """

    name: str
    card: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    logs: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Sources:
    """What a report is about.

    Args:
        name: the name of the folder or file.
        runs: the runs, one for each seed; none for a file of results.
        evaluations: their results.
    """

    name: str
    runs: list[Run]
    evaluations: list[Evaluation]


def read_sources(path: Path) -> Sources:
    """What a path holds: a run's folder, a folder with a run for each seed, or a file of `babelens evaluate --output`.

    Raises:
        ComparisonError: for a path without results, and for a file that is damaged.
    """
    if path.is_file():
        evaluation = _evaluation(path.stem, [path])
        if evaluation is None:
            raise ComparisonError(f"{path} has no results of a test set or of validation data")
        return Sources(path.stem, [], [evaluation])
    folders = finished_runs(path)
    files: dict[str, list[Path]] = {}
    for folder in folders:
        for file in result_files(folder):
            files.setdefault(file.stem, []).append(file)
    # What only some of the seeds have cannot be averaged over them.
    evaluations = [_evaluation(name, each) for name, each in files.items() if len(each) == len(folders)]
    runs = [_run(folder) for folder in folders]
    return Sources(path.resolve().name, runs, [evaluation for evaluation in evaluations if evaluation])


def _evaluation(name: str, files: list[Path]) -> Evaluation | None:
    """The results of a file; None for one that holds something else."""
    runs = [read_file(file) for file in files]
    if not all(run.scores for run in runs):
        return None
    galleries = (read_gallery(gallery_file(file)) for file in files)
    return Evaluation(name, runs, _details(files[0]), next((each for each in galleries if each), None))


def _details(file: Path) -> dict[str, Mapping[str, Any]]:
    parts = json.loads(file.read_text(encoding="utf-8"))
    return {name: part for name, part in parts.items() if isinstance(part, dict) and "groups" in part}


def _run(folder: Path) -> Run:
    name, facts = folder.resolve().name, folder / EVALUATION / f"{FACTS}.json"
    if facts.is_file() and facts.name not in outdated_results(folder):
        try:
            return Run(name=name, **without_paths(json.loads(facts.read_text(encoding="utf-8"))))
        except (ValueError, TypeError) as error:
            raise ComparisonError(
                f"{facts} is damaged, so that the facts of the run cannot be read: {error}"
            ) from error
    return Run(name, _card_metadata(folder), _measured_memory(folder), _stage_logs(folder / CHECKPOINTS))


def _card_metadata(folder: Path) -> dict[str, Any]:
    """What the metadata of a model card tell; nothing without a card."""
    if not (folder / _CARD).is_file():
        return {}
    try:
        data = metadata_load(folder / _CARD) or {}
    except (ValueError, YAMLError) as error:
        raise ComparisonError(f"{folder / _CARD} has metadata that cannot be read: {error}") from error
    languages = data.get("language_bcp47") or data.get("language") or []
    return {
        "license": data.get("license"),
        "license_name": data.get("license_name"),
        "languages": [languages] if isinstance(languages, str) else languages,
    }


def _measured_memory(folder: Path) -> dict[str, float]:
    """The memory of a run that `benchmarks/photos.py` measured."""
    file = folder / EVALUATION / "cost.json"
    return {"process": json.loads(file.read_text(encoding="utf-8"))["gigabytes"]} if file.is_file() else {}


def _stage_logs(checkpoints: Path) -> list[Mapping[str, Any]]:
    """The logs of the stages that have checkpoints; the only stage of most runs has no name."""
    folders = {"": checkpoints} | {path.name: path for path in sorted(checkpoints.glob("*")) if path.is_dir()}
    logs = [stage_log(name, folder) for name, folder in folders.items() if not name.startswith("checkpoint-")]
    return [each for each in logs if each["log"]]
