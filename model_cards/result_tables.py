"""The results that a card shows, and `recall.svg`, the recall of each language."""

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

_MOST_ROWS = 10  # on a card, in all of its tables together
FIGURE_FILE = "recall.svg"
CARD = "README.md"


@dataclass(frozen=True)
class Table:
    """The results on one dataset by one command. A card with many rows shows `means`, one over all languages with the
    same kind of training data, and folds the languages."""

    dataset: str
    command: str
    note: str
    results: list[Result]
    means: list[Result]
    facts: ModelCardFacts

    @property
    def shown(self) -> list[Result]:
        return self.means or self.results

    def row(self, result: Result) -> list[str]:
        scores = [f"{result.scores[metric]:.1f}" for metric in self.facts.metrics]
        counts = [str(result.scores.get(name, "")) for name in self.results[0].scores if name.startswith("n")]
        return [result.language, result.seen or self.facts.training_of(result.language), *scores, *counts]


def result_tables(facts: ModelCardFacts) -> list[Table]:
    tables = []
    for key, group in itertools.groupby(facts.results, lambda each: (each.dataset, each.command, each.note)):
        results = list(group)
        is_folded = len(facts.results) > _MOST_ROWS and len(results) > 1
        tables.append(Table(*key, results, _means(facts, results) if is_folded else [], facts))
    return tables


def _means(facts: ModelCardFacts, results: list[Result]) -> list[Result]:
    kinds: dict[str, list[Result]] = {}
    for result in results:
        kinds.setdefault(facts.training_of(result.language), []).append(result)
    return [
        replace(
            members[0],
            language=f"mean of {len(members)}",
            seen=kind,
            scores={metric: statistics.fmean(each.scores[metric] for each in members) for metric in facts.metrics},
        )
        for kind, members in kinds.items()
    ]


# ---- The figure ----

_WIDTH, _ROW, _LEFT, _MOST = 640, 20, 90, 40


def write_figure(folder: str | Path, values: Mapping[str, float], title: str) -> None:
    """Writes an SVG with a bar for each language, the highest first; of more than forty languages the first forty."""
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
    Path(folder, FIGURE_FILE).write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


# ---- Results of published benchmarks, which are added to a card later ----
# https://huggingface.co/docs/hub/eval-results


def check_card(folder: str | Path) -> Path:
    """Returns the path of the card in a model's folder."""
    card = Path(folder) / CARD
    if not card.is_file():
        raise ModelFolderError(f"{folder} has no model card, {CARD}, to which results could be added")
    return card


def add_results(folder: str | Path, results: Sequence[EvalResult]) -> None:
    """Adds results to the `model-index` of a model's card; they replace results of the same data and metric."""
    path = check_card(folder)
    card = ModelCard.load(path)
    if is_of_another_model(card.data.to_dict(), folder):
        raise InputError(
            f"{path} has results of another model than the one in its folder: delete the file and evaluate again"
        )
    given = [*(card.data.eval_results or []), *results]
    card.data.model_name = card.data.model_name or Path(folder).resolve().name
    latest = {(each.unique_identifier, each.metric_type, each.metric_name): each for each in given}
    card.data.eval_results = list(latest.values())
    with atomic_file(path) as scratch:
        card.save(scratch)
