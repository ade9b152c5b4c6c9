"""Results that are added to a model's card after its training, in the two forms that the Hub reads: `model-index` in
the metadata of `README.md`, and `.eval_results/<benchmark>.yaml` beside it.

https://huggingface.co/docs/hub/eval-results
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries

from ..configuration.errors import ModelFolderError, ModelMismatchError
from ..configuration.files import atomic_file
from .card_text import CompactCard, is_of_another_model

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
    path = check_card(folder)
    card = CompactCard.load(path)
    if is_of_another_model(card.data.to_dict(), folder):
        raise ModelMismatchError(f"{path} has results of another model than the one beside it: write it anew")
    new = {_key(result) for result in results}
    kept = [result for result in card.data.eval_results or [] if _key(result) not in new]
    card.data.model_name = card.data.model_name or Path(folder).resolve().name
    card.data.eval_results = _few([*kept, *results])
    with atomic_file(path) as scratch:
        card.save(scratch)
    for name, of_name in entries.items():
        _add_entries(Path(folder) / EVAL_RESULTS / f"{name}.yaml", of_name)


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
        results = [each for each in results if each not in members] + _means(members)
    return results


def _means(members: Sequence[EvalResult]) -> list[EvalResult]:
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
