"""Reading the results of runs: of a run's folder, of a folder with one run for each seed, and of a file that
`babelens evaluate --output` wrote.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub.repocard import metadata_load
from yaml import YAMLError

from ..evaluation.comparison import Key, RunResults
from ..evaluation.emoji import GROUP_TITLES
from ..evaluation.query_ranks import CAPTIONS, QueryRanks, ranks_file, read_ranks
from ..inference.onnx.model import GRAPH_FOLDER, SETTINGS_FILE, GraphSettings
from ..model_cards.card_text import IDENTITY, is_of_another_model
from ..utils.errors import BabelensError, ComparisonError
from ..utils.identity import holds_weights
from .reporting import EVALUATION, MODELS, outdated_results

logger = logging.getLogger(__name__)

MEAN = "mean"
# The parts of a report of `evaluate --consistency` (with the emoji benchmark, its questions take the place of RECALLS)
# and of `--translate-test`. What is beside the recalls is of captions that search together, or translated.
RECALLS, CONSISTENCY, TRANSLATE_TEST = "recalls", "consistency", "translate_test"
# The parts of a report of `evaluate --labels`: results in each language with the languages of each group, and those of
# images alone.
ZERO_SHOT, GROUPS, NEIGHBORS, PROBE = "zero_shot", "groups", "knn", "linear_probe"
# The name of a result that is of no language.
OF_IMAGES = "images"
# The key of a report of `evaluate --benchmark` that names the benchmark.
BENCHMARK = "benchmark"


def read_rows(paths: Sequence[Path]) -> dict[str, list[RunResults]]:
    """The results of each path by its name, one for each seed.

    Args:
        paths: folders of runs, folders with one run for each seed, and files of results.

    Raises:
        ComparisonError: for a path without results, and one that is named twice.
    """
    rows = {row: read_seeds(Path(path)) for row, path in named_rows(paths).items()}
    for run in (run for runs in rows.values() for run in runs):
        if not run.scores:
            raise ComparisonError(f"{run.name} has no results of a test set or of validation data")
    return rows


def named_rows(sources: Sequence[str | Path]) -> dict[str, str]:
    """Folders, files or Hub ids by the names of their rows: of a path its last part where no other has the same.

    Raises:
        ComparisonError: for one that is named twice.
    """
    names = [Path(source).resolve().name if Path(source).exists() else str(source) for source in sources]
    rows: dict[str, str] = {}
    for source, name in zip(map(str, sources), names, strict=True):
        row = name.removesuffix(".json") if names.count(name) == 1 else source
        if row in rows:
            raise ComparisonError(f"{source} is named twice")
        rows[row] = source
    return rows


def read_seeds(path: Path) -> list[RunResults]:
    """The results of a path, one for each seed; a warning names the seeds whose run has not come to its end.

    Raises:
        ComparisonError: for a path without results.
    """
    if path.is_file():
        return [read_file(path)]
    return [_read_files(str(run), result_files(run)) for run in finished_runs(path)]


def finished_runs(path: Path) -> list[Path]:
    """The folders of the finished runs of a path: itself, or the runs with seeds in it; a warning names those that
    have not come to their end.

    Raises:
        ComparisonError: for a path without results.
    """
    if (path / EVALUATION).is_dir():
        return [path]
    seeds = seed_folders(path)
    finished = [seed for seed in seeds if is_finished_run(seed)]
    if not finished:
        raise ComparisonError(
            f"{path} has no results: it is no folder of a run, none with a run for each seed (`seed-1`, …), and no "
            "file of `babelens evaluate --output`"
        )
    for seed in seeds:
        if seed not in finished:
            logger.warning("%s: the run has not come to its end, and is left out", seed)
    return finished


def result_files(run: Path) -> list[Path]:
    """The files of results in the folder of a run. A warning names those that are left out, since they are of another
    model than the one in the folder."""
    outdated = outdated_results(run)
    files = sorted((run / EVALUATION).glob("*.json"))
    found = [file for file in files if file.name != MODELS]
    if left_out := [file.name for file in found if file.name in outdated]:
        logger.warning(
            "%s: left out %s, whose results are of another model than the one in the folder now",
            run / EVALUATION,
            ", ".join(left_out),
        )
    return [file for file in found if file.name not in outdated]


def outdated_problems(folder: Path) -> list[str]:
    """What a model's folder holds of another model, for which it cannot be published: graphs, and scores; one sentence
    each."""
    problems = []
    if (graphs := folder / GRAPH_FOLDER / SETTINGS_FILE).is_file():
        try:
            settings = GraphSettings.from_file(graphs, str(folder))
            settings.check_weights(folder)
            if settings.model is None and holds_weights(folder):
                problems.append(f"{graphs} does not state of which weights the graphs are: export the model again")
        except BabelensError as error:
            problems.append(str(error))
    card = folder / "README.md"
    with suppress(ValueError, TypeError, AttributeError, YAMLError, OSError):  # which `card_problems` reports
        if is_of_another_model(metadata_load(card) or {}, folder):
            problems.append(
                f"{card.name} was written for other weights, or another configuration or processor, than those in the "
                f"folder: evaluate the model and write its card again, or remove the results and `{IDENTITY}` from it"
            )
    outdated = [f"{EVALUATION}/{name}" for name in outdated_results(folder)]
    if outdated := [name for name in outdated if (folder / name).is_file()]:
        problems.append(f"{', '.join(outdated)}: the results are of another model: evaluate again, or remove them")
    return problems


def read_file(file: Path) -> RunResults:
    """The results of one file; those of a file that holds something else have no scores."""
    return _read_files(str(file), [file])


def _read_files(name: str, files: Sequence[Path]) -> RunResults:
    scores: dict[Key, Mapping[str, float]] = {}
    groups: dict[str, dict[str, list[str]]] = {}
    ranks: dict[str, QueryRanks] = {}
    for file in files:
        for test_set, parts in _test_sets(_json(file)).items():
            for title, languages in parts.items():
                scores |= {(test_set, language): numbers for language, numbers in languages.items()}
                groups.setdefault(test_set, {})[title] = list(languages)
        ranks |= read_ranks(ranks_file(file))
    by_key = {key: ranks["/".join(key)] for key in scores if "/".join(key) in ranks}
    return RunResults(name, scores, by_key, groups)


def _test_sets(report: Any) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Test set -> name of a mean -> language -> metric -> number, of a report of any kind; none of other files, such
    as `evaluation/tokenizer.json`."""
    if isinstance(report, dict) and BENCHMARK in report:
        report = report["results"]
    if isinstance(report, dict) and not report.keys().isdisjoint((CONSISTENCY, TRANSLATE_TEST)):
        report = {name: part for name, part in report.items() if name not in (CONSISTENCY, TRANSLATE_TEST)}
        report = report.get(RECALLS, report)
    if isinstance(report, dict) and not report.keys().isdisjoint((ZERO_SHOT, NEIGHBORS, PROBE)):
        return _classification(report)
    if (
        not isinstance(report, dict)
        or not report
        or not all(isinstance(part, dict) and part for part in report.values())
    ):
        return {}
    if all("groups" in part for part in report.values()):
        return {
            name: {
                f"{MEAN}, {GROUP_TITLES.get(group, group)}": {
                    language: _numbers(numbers) for language, numbers in answer["languages"].items()
                }
                for group, answer in part["groups"].items()
            }
            for name, part in report.items()
        }
    if all(isinstance(number, int | float) for part in report.values() for number in part.values()):
        return {CAPTIONS: {MEAN: report}}
    if not all(_holds_numbers(results) for part in report.values() for results in part.values()):
        return {}
    return {name: {MEAN: part} for name, part in report.items()}


def _holds_numbers(results: Any) -> bool:
    return isinstance(results, dict) and all(isinstance(number, int | float | dict) for number in results.values())


def _classification(report: Mapping[str, Any]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """The test sets of classes, as those of `_test_sets`."""
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    if ZERO_SHOT in report:
        groups = {name: group["languages"] for name, group in report[GROUPS].items()}
        found[ZERO_SHOT] = {
            f"{MEAN}, {name}": {language: report[ZERO_SHOT][language] for language in languages}
            for name, languages in groups.items()
        }
    for part in (NEIGHBORS, PROBE):
        if part in report:
            numbers = {name: number for name, number in report[part].items() if name != "neighbors"}
            found[part] = {MEAN: {OF_IMAGES: numbers}}
    return found


def _numbers(results: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of all queries, without those of some of them."""
    return {name: number for name, number in results.items() if not isinstance(number, dict)}


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ComparisonError(f"{file} cannot be read as results: {error}") from error


# ---- Seeds ----
# One run of a recipe for each of several seeds, in the folders `seed-1`, `seed-2`, … of an output folder.

_CARD = "README.md"
_SEED = re.compile(r"seed-(\d+)")


def seed_folders(output: Path) -> list[Path]:
    """The folders of the runs with seeds that `output` has, by ascending seed."""
    found = {int(match[1]): path for path in output.glob("seed-*") if (match := _SEED.fullmatch(path.name))}
    return [found[seed] for seed in sorted(found) if found[seed].is_dir()]


def is_finished_run(run: Path) -> bool:
    """Whether the run in a folder came to its end, which is its card."""
    return (run / _CARD).is_file()
