"""The results that a card shows: all of them where they are few; else the means, and ten languages.

The complete tables are then in `results.md` next to the card. `recall.svg` shows the recall of each language.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from ..utils.errors import InputError, ModelFolderError
from ..utils.files import atomic_file
from .card_text import is_of_another_model
from .facts import ModelCardFacts, Result

_LANGUAGES = 10  # rows of single languages on a card, in all of its tables together
_TABLES_WITH_LANGUAGES = 3  # if there are more, all show only means
RESULTS_FILE, FIGURE_FILE = "results.md", "recall.svg"
CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class MeanResult(Result):
    """The mean over the languages with one kind of training data, `seen`."""

    seen: str


@dataclass(frozen=True)
class Row:
    """A line of a table: a language, or the mean over some, with the kind of training data that it had, its scores,
    and the numbers of images and texts."""

    language: str
    seen: str
    scores: list[str]
    sizes: list[str]


@dataclass(frozen=True)
class Table:
    """The results on one dataset by one command; `left_out` counts the languages without a row."""

    dataset: str
    command: str
    note: str
    results: list[Result]
    rows: list[Row]
    left_out: int = 0


def complete_tables(facts: ModelCardFacts) -> list[Table]:
    """Returns one table for each dataset and command, in their order."""
    groups = itertools.groupby(facts.results, lambda result: (result.dataset, result.command, result.note))
    return [_table(facts, list(results)) for _, results in groups]


def shown_tables(facts: ModelCardFacts) -> list[Table]:
    """Returns the tables of the card itself: complete if they have ten rows together. Otherwise each begins with the
    means, and they share ten rows of the languages with the highest and the lowest scores."""
    tables = complete_tables(facts)
    if sum(len(table.rows) for table in tables) <= _LANGUAGES:
        return tables
    quota = _LANGUAGES // len(tables) if len(tables) <= _TABLES_WITH_LANGUAGES else 0
    return [_shortened(facts, table, quota) for table in tables]


def _shortened(facts: ModelCardFacts, table: Table, quota: int) -> Table:
    if len(table.results) <= max(quota, 1):
        return table
    ordered = sorted(table.results, key=lambda result: -result.scores[facts.metrics[-1]])
    ends = ordered[: quota - quota // 2] + (ordered[-(quota // 2) :] if quota > 1 else [])
    shown = [result for result in table.results if result in ends]  # in the order of the whole table
    kinds: dict[str, list[Result]] = {}
    for result in table.results:
        kinds.setdefault(facts.training_of(result.language), []).append(result)
    means: list[Result] = [_mean(kind, members) for kind, members in kinds.items()]
    short = _table(facts, [*means, *shown], len(table.rows[0].sizes))
    return replace(short, left_out=len(table.results) - len(shown))


def _mean(kind: str, members: list[Result]) -> MeanResult:
    first = members[0]
    numbers = [name for name, value in first.scores.items() if isinstance(value, int | float) and name[0] != "n"]
    scores = {
        name: statistics.fmean(member.scores[name] for member in members)
        for name in numbers
        if all(name in member.scores for member in members)
    }
    given = {"dataset": first.dataset, "command": first.command, "note": first.note}
    return MeanResult(language=f"mean of {len(members)}", scores=scores, seen=kind, **given)


def _table(facts: ModelCardFacts, results: list[Result], sizes: int = 0) -> Table:
    first = results[0]
    return Table(first.dataset, first.command, first.note, results, [_row(facts, each, sizes) for each in results])


def _row(facts: ModelCardFacts, result: Result, sizes: int) -> Row:
    is_mean = isinstance(result, MeanResult)
    return Row(
        language=result.language,
        seen=result.seen if isinstance(result, MeanResult) else facts.training_of(result.language),
        scores=[f"{result.scores[metric]:.1f}" for metric in facts.metrics],
        sizes=[""] * sizes if is_mean else [str(n) for name, n in result.scores.items() if name.startswith("n")],
    )


# ---- The figure ----

_WIDTH, _ROW, _LEFT, _MOST = 640, 20, 90, 40


def recall_figure(values: Mapping[str, float], title: str) -> str:
    """Returns an SVG with a bar for each language, the highest first; of more than forty languages the first forty."""
    ordered = sorted(values.items(), key=lambda item: -item[1])[:_MOST]
    height = _ROW * (len(ordered) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13" role="img"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="8" y="{_ROW * 0.8:g}" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (language, value) in enumerate(ordered):
        top = _ROW * (index + 1.5)
        length = (_WIDTH - _LEFT - 60) * max(value, 0) / 100
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 12:g}" text-anchor="end">{escape(language)}</text>',
            f'<rect x="{_LEFT}" y="{top:g}" width="{length:.1f}" height="{_ROW - 5}" fill="#3b6fb6"/>',
            f'<text x="{_LEFT + length + 6:.1f}" y="{top + 12:g}">{value:.1f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


# ---- Results of published benchmarks, which are added to a card later ----
# https://huggingface.co/docs/hub/eval-results


def check_card(folder: str | Path) -> Path:
    """Returns the path of the card in a model's folder."""
    card = Path(folder) / CARD
    if not card.is_file():
        raise ModelFolderError(f"{folder} has no model card, {CARD}, to which results could be added")
    return card


def add_results(folder: str | Path, results: Sequence[EvalResult]) -> None:
    """Adds results to the `model-index` of a model's card; they replace those of the same data and metric."""
    path = check_card(folder)
    card = ModelCard.load(path)
    if is_of_another_model(card.data.to_dict(), folder):
        raise InputError(
            f"{path} has results of another model than the one in its folder: delete the file and evaluate again"
        )
    new = {_key(result) for result in results}
    kept = [result for result in card.data.eval_results or [] if _key(result) not in new]
    card.data.model_name = card.data.model_name or Path(folder).resolve().name
    card.data.eval_results = [*kept, *results]
    with atomic_file(path) as scratch:
        card.save(scratch)


def _key(result: EvalResult) -> tuple[object, str, str | None]:
    return result.unique_identifier, result.metric_type, result.metric_name
