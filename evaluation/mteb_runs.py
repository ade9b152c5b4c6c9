"""Running mteb's tasks on a model, and their results in the forms that the Hub shows on a model's page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, EvalResultEntry

from ..utils.errors import InputError, ModelKindError, SourceUnavailableError, UnknownLanguageError
from ..utils.languages import normalize_languages
from .mteb_meta import mteb
from .mteb_models import MtebModel, subsets_in

_SOURCE = "https://github.com/embeddings-benchmark/mteb/"
# The metrics that are shown beside the one that mteb ranks models by, where a task has them. `hit_rate_at_k` is what
# `evaluate_retrieval` calls recall: the share of queries with a right answer among the first k.
SHOWN = ("hit_rate_at_1", "hit_rate_at_5", "hit_rate_at_10")

_PLURAL = {"image": "images", "text": "texts", "video": "videos"}


@dataclass(frozen=True, kw_only=True)
class MtebScore:
    """The scores of one subset of a task.

    Args:
        task, kind: the task, and mteb's name of its kind.
        dataset, revision: the data set on the Hub, and its commit.
        split, subset: the split and the subset of the data set.
        languages: the languages of the subset, as mteb writes them.
        main_metric: the metric that mteb ranks models by.
        scores: all metrics of mteb, whose values are mteb's: fractions, and not percentages.
        date: when they were measured, in ISO 8601.
        version: the version of mteb.
    """

    task: str
    kind: str
    dataset: str
    revision: str
    split: str
    subset: str
    languages: list[str]
    main_metric: str
    scores: dict[str, float]
    date: str | None
    version: str

    def shown(self) -> dict[str, float]:
        """The main metric and those of `SHOWN`, in percent."""
        names = dict.fromkeys([self.main_metric, *SHOWN])
        return {name: 100 * self.scores[name] for name in names if name in self.scores}


def mteb_tasks(names: Sequence[str], languages: Sequence[str] | None = None) -> list[Any]:
    """Tasks of mteb by their names, with their subsets in some languages.

    Args:
        names: such as `XM3600T2IRetrieval` and `STS17`.
        languages: BCP-47 tags; by default all languages. A subset of two languages needs one of them.
    """
    tasks, present = [], set()
    for name in names:
        try:
            task = mteb.get_task(name)
        except KeyError as error:
            raise InputError(f"mteb has no such task: {error.args[0].removeprefix('KeyError: ')}") from error
        if languages is not None:
            subsets = subsets_in(task.metadata, languages)
            task = task.filter_languages(None, hf_subsets=list(subsets))
            present |= set().union(*subsets.values())
        tasks.append(task)
    if absent := [tag for tag in normalize_languages(list(languages or [])) if tag not in present]:
        raise UnknownLanguageError(f"none of these tasks has texts in {', '.join(absent)}")
    return tasks


def evaluate_mteb(
    model: MtebModel, tasks: Sequence[Any], *, cache: str | Path | None = None, show_progress: bool = False
) -> list[MtebScore]:
    """Measures a model on tasks of mteb.

    Args:
        model: as `mteb_model` makes it.
        tasks: as `mteb_tasks` returns them, or as mteb does.
        cache: a folder in which mteb keeps its results (`results/<model>/<revision>/<task>.json`). Subsets whose
            results are there are not measured again.
        show_progress: whether to show a progress bar.

    Examples:
        >>> tasks = mteb_tasks(["XM3600T2IRetrieval"], ["uk", "sw"])
        >>> for score in evaluate_mteb(mteb_model("runs/mural"), tasks):
        ...     print(score.task, score.subset, score.shown())
    """
    described = model.mteb_model_meta
    for task in tasks:
        if unread := [each for each in task.metadata.modalities if each not in described.modalities]:
            named = " and ".join(_PLURAL.get(each, each) for each in unread)
            raise ModelKindError(f"{task.metadata.name} has {named}, which {described.name} does not read")
    model.tasks |= {task.metadata.name: task for task in tasks}
    results = mteb.evaluate(
        model,
        tasks,
        cache=None if cache is None else mteb.ResultCache(cache),
        encode_kwargs={"batch_size": model.embedder.batch_size, "show_progress_bar": False},
        co2_tracker=False,
        show_progress_bar=show_progress,
    )
    for failed in results.exceptions or []:  # data that are not public
        raise SourceUnavailableError(f"{failed.task_name}: {failed.exception}")
    scores = []
    for task, result in zip(tasks, results.task_results, strict=True):
        for split in task.eval_splits:
            for found in result.scores[split]:
                if found["hf_subset"] in task.hf_subsets:  # the cache may have others
                    scores.append(_score(task.metadata, result, split, found))
    return scores


def _score(metadata: Any, result: Any, split: str, found: dict[str, Any]) -> MtebScore:
    numbers = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    return MtebScore(
        task=metadata.name,
        kind=metadata.type,
        dataset=metadata.dataset["path"],
        revision=metadata.dataset["revision"],
        split=split,
        subset=found["hf_subset"],
        languages=list(found["languages"]),
        main_metric=metadata.main_score,
        scores=numbers,
        date=result.date.isoformat() if result.date else None,
        version=result.mteb_version,
    )


def model_index(scores: Sequence[MtebScore]) -> list[EvalResult]:
    """The scores as entries of a card's `model-index`, in percent."""
    return [
        EvalResult(
            task_type=score.kind,
            dataset_type=score.dataset,
            dataset_name=f"{score.task} ({score.subset})",
            dataset_config=score.subset,
            dataset_split=score.split,
            dataset_revision=score.revision,
            metric_type=metric,
            metric_name=metric,
            metric_value=round(value, 3),
            source_name=f"mteb {score.version}",
            source_url=_SOURCE,
        )
        for score in scores
        for metric, value in score.shown().items()
    ]


def eval_result_entries(scores: Sequence[MtebScore]) -> dict[str, list[EvalResultEntry]]:
    """The main scores, in percent, as the entries of `.eval_results/<task>.yaml`, by task.

    The Hub shows them on the model's page and on the page of the benchmark's data set. Their task ids are those that
    mteb gives to data sets: `<task>_<subset>_<split>`.
    """
    entries: dict[str, list[EvalResultEntry]] = {}
    for score in scores:
        entry = EvalResultEntry(
            dataset_id=score.dataset,
            task_id=f"{score.task}_{score.subset}_{score.split}",
            value=round(100 * score.scores[score.main_metric], 3),
            dataset_revision=score.revision,
            date=score.date,
            source_url=_SOURCE,
            source_name=f"mteb {score.version}",
            notes=f"{score.main_metric} in percent",
        )
        entries.setdefault(score.task, []).append(entry)
    return entries
