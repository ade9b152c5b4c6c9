"""The results that a card shows: all of them where they are few; else the means, and ten languages.

A card with the results of a hundred languages is longer than anybody reads, and longer than the Hub renders well. The
complete tables are then in a file beside it.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries

from ..utils.errors import ModelFolderError, ModelMismatchError
from ..utils.files import atomic_file, wait_for_lock
from .card_text import CompactCard, is_of_another_model
from .facts import ModelCardFacts, Result

# Rows of single languages on a card, in all of its tables together.
_LANGUAGES = 10
_TABLES_WITH_LANGUAGES = 3  # where there are more, all have means alone
RESULTS_FILE = "results.md"


@dataclass(frozen=True)
class Row:
    """A line of a table: a language, or the mean over some.

    Args:
        language: the tag, or how many languages the mean is of.
        seen: the kind of training data that it had.
        scores: of the metrics that the card shows.
        sizes: the numbers of images and texts; empty for a mean.
    """

    language: str
    seen: str
    scores: list[str]
    sizes: list[str]


@dataclass(frozen=True)
class Table:
    """The results on one dataset by one command.

    Args:
        dataset, command, note: as in `Result`.
        results: those that are shown, and those that `means` has as means.
        rows: one for each result.
        left_out: of how many languages there is no row.
    """

    dataset: str
    command: str
    note: str
    results: list[Result]
    rows: list[Row]
    left_out: int = 0

    @property
    def summary(self) -> str:
        """What a shortened table shows."""
        has_languages = any(not isinstance(result, MeanResult) for result in self.results)
        ends = ", and the languages with the highest and the lowest scores" if has_languages else ""
        return f"The means over the languages with the same training data{ends}."


def complete_tables(facts: ModelCardFacts) -> list[Table]:
    """Results grouped into one table for each dataset and command, in their order."""
    groups = itertools.groupby(facts.results, lambda result: (result.dataset, result.command, result.note))
    return [_table(facts, *key, list(results)) for key, results in groups]


def shown_tables(facts: ModelCardFacts) -> list[Table]:
    """The tables of the card itself: complete if they have ten rows together.

    Otherwise each begins with the mean over the languages of each kind of training data; the ten rows are divided
    between the tables, and show the languages with the highest and the lowest scores.
    """
    tables = complete_tables(facts)
    if sum(len(table.rows) for table in tables) <= _LANGUAGES:
        return tables
    quota = _LANGUAGES // len(tables) if len(tables) <= _TABLES_WITH_LANGUAGES else 0
    return [_shortened(facts, table, quota) for table in tables]


def _shortened(facts: ModelCardFacts, table: Table, quota: int) -> Table:
    if len(table.results) <= max(quota, 1):
        return table
    score = facts.metrics[-1]
    ordered = sorted(table.results, key=lambda result: -result.scores[score])
    ends = ordered[: quota - quota // 2] + (ordered[-(quota // 2) :] if quota > 1 else [])
    shown = [result for result in table.results if result in ends]  # in the order of the whole table
    results = [*_means(facts, table.results), *shown]
    sizes = len(table.rows[0].sizes)
    short = _table(facts, table.dataset, table.command, table.note, results, sizes)
    return replace(short, left_out=len(table.results) - len(shown))


def _means(facts: ModelCardFacts, results: Sequence[Result]) -> list[Result]:
    """The mean scores of the languages with each kind of training data."""
    kinds: dict[str, list[Result]] = {}
    for result in results:
        kinds.setdefault(facts.training_of(result.language), []).append(result)
    return [_mean(kind, members) for kind, members in kinds.items()]


def _mean(kind: str, members: list[Result]) -> Result:
    # Results of the emoji benchmark have scores of their parts as well, as mappings.
    numbers = [name for name, value in members[0].scores.items() if isinstance(value, int | float)]
    common = [name for name in numbers if all(name in member.scores for member in members)]
    return MeanResult(
        dataset=members[0].dataset,
        language=f"mean of {len(members)}",
        scores={
            name: statistics.fmean(member.scores[name] for member in members)
            for name in common
            if not name.startswith("n")  # how many images and texts there were
        },
        command=members[0].command,
        note=members[0].note,
        seen=kind,
    )


@dataclass(frozen=True, kw_only=True)
class MeanResult(Result):
    """The mean over the languages with one kind of training data, `seen`."""

    seen: str


def _table(
    facts: ModelCardFacts, dataset: str, command: str, note: str, results: list[Result], sizes: int = 0
) -> Table:
    return Table(dataset, command, note, results, [_row(facts, result, sizes) for result in results])


def _row(facts: ModelCardFacts, result: Result, sizes: int) -> Row:
    """A line; `sizes` is how many empty cells the line of a mean has for them."""
    is_mean = isinstance(result, MeanResult)
    return Row(
        language=result.language,
        seen=result.seen if isinstance(result, MeanResult) else facts.training_of(result.language),
        scores=[f"{result.scores[metric]:.1f}" for metric in facts.metrics],
        sizes=[""] * sizes if is_mean else [str(n) for name, n in result.scores.items() if name.startswith("n")],
    )


# ---- Results of published benchmarks ----
# They are added to a model's card after its training, in the two forms that the Hub reads: `model-index` in
# the metadata of `README.md`, and `.eval_results/<benchmark>.yaml` beside it.
#
# https://huggingface.co/docs/hub/eval-results


CARD = "README.md"
EVAL_RESULTS = ".eval_results"
# Languages and subsets of benchmarks in `model-index`; those of a benchmark with more stand in `.eval_results` alone.
MAX_RESULTS = 20
_MEAN = "mean"


def check_card(folder: str | Path) -> Path:
    """The path of the card in a model's folder.

    Raises:
        ModelFolderError: when there is no card to which results could be added.
    """
    card = Path(folder) / CARD
    if not card.is_file():
        raise ModelFolderError(f"{folder} has no model card, {CARD}, to which results could be added")
    return card


def add_results(
    folder: str | Path, results: Sequence[EvalResult], entries: Mapping[str, Sequence[EvalResultEntry]]
) -> None:
    """Adds results to the card in a model's folder. Other results and the card's text stay as they are; results of
    the same data and metric are replaced. A benchmark with so many results that the card would be too long is shown by
    its means; its entries in `.eval_results` are complete.

    Args:
        folder: the model's folder.
        results: the entries of `model-index`.
        entries: the entries of `.eval_results/<name>.yaml`, by name.

    Raises:
        ModelFolderError: when there is no card, or a file of earlier results is damaged.
        ModelMismatchError: when the card has results of another model (`card_text.IDENTITY`).
    """
    with wait_for_lock(check_card(folder)):  # others may be evaluating the same model
        _add_results(Path(folder), results, entries)


def _add_results(
    folder: Path, results: Sequence[EvalResult], entries: Mapping[str, Sequence[EvalResultEntry]]
) -> None:
    path = check_card(folder)
    card = CompactCard.load(path)
    if is_of_another_model(card.data.to_dict(), folder):
        raise ModelMismatchError(f"{path} has results of another model than the one beside it: write it anew")
    new = {_key(result) for result in results}
    kept = [result for result in card.data.eval_results or [] if _key(result) not in new]
    card.data.model_name = card.data.model_name or folder.resolve().name
    card.data.eval_results = _few([*kept, *results])
    with atomic_file(path) as scratch:
        card.save(scratch)
    for name, of_name in entries.items():
        _add_entries(folder / EVAL_RESULTS / f"{name}.yaml", of_name)


def _few(results: list[EvalResult]) -> list[EvalResult]:
    """At most as many as a card has room for: the benchmark with the most results is replaced by their means until
    they are few enough."""
    results = list(results)
    while len({each.unique_identifier for each in results}) > MAX_RESULTS:
        subsets: dict[str, list[EvalResult]] = {}
        for each in results:
            if not str(each.dataset_config).startswith(_MEAN):
                subsets.setdefault(each.dataset_type, []).append(each)
        members = max(subsets.values(), key=lambda found: len({each.unique_identifier for each in found}), default=[])
        if len({each.unique_identifier for each in members}) < 2:
            break
        results = [each for each in results if each not in members] + _group_means(members)
    return results


def _group_means(members: Sequence[EvalResult]) -> list[EvalResult]:
    """The mean of each metric of one benchmark over its subsets."""
    metrics: dict[tuple[str, str | None], list[EvalResult]] = {}
    for each in members:
        metrics.setdefault((each.metric_type, each.metric_name), []).append(each)
    means = []
    for found in metrics.values():
        of = f"{_MEAN} of {len(found)}"
        name = f"{found[0].dataset_name.partition(' (')[0]} ({of})"
        value = round(statistics.fmean(each.metric_value for each in found), 2)
        means.append(replace(found[0], dataset_name=name, dataset_config=of, metric_value=value))
    return means


def _key(result: EvalResult) -> tuple[object, str, str | None]:
    return result.unique_identifier, result.metric_type, result.metric_name


def _add_entries(file: Path, entries: Sequence[EvalResultEntry]) -> None:
    new = {(entry.dataset_id, entry.task_id) for entry in entries}
    try:
        earlier = parse_eval_result_entries(yaml.safe_load(file.read_text("utf-8"))) if file.is_file() else []
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ModelFolderError(f"{file} is damaged: {error}") from error
    kept = [entry for entry in earlier if (entry.dataset_id, entry.task_id) not in new]
    with atomic_file(file) as scratch:
        scratch.write_text(
            yaml.safe_dump(eval_result_entries_to_yaml([*kept, *entries]), sort_keys=False, allow_unicode=True),
            "utf-8",
        )
