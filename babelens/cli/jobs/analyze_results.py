"""Analyses of recall, for `babelens analyze agreement`, `data` and `forgetting`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import typer

from ...configuration.errors import ComparisonError
from ...configuration.languages import normalize_languages
from ...evaluation.analysis.agreement import language_agreement
from ...evaluation.analysis.data_recall import recall_by_data
from ...evaluation.analysis.figures.recall import draw_agreement, draw_data_recall, draw_forgetting
from ...evaluation.analysis.figures.style import save_figure
from ...evaluation.analysis.forgotten import forgetting
from ...evaluation.comparison import RunResults
from ...evaluation.query_ranks import CAPTIONS, QueryRanks
from ...evaluation.retrieval import evaluate_retrieval
from ...workflows.loading import load_recipe
from ...workflows.run_results import read_rows, read_seeds
from ...workflows.training_texts import training_texts
from .analysis_files import check_numbers_file, default_languages, load_images, show_analysis
from .models import load_retrieval_embedder

T = TypeVar("T")


def analyze_agreement(
    source: str,
    data: str | None,
    languages: list[str] | None,
    *,
    split: str | None,
    test_set: str | None,
    rank: int,
    batch_size: int,
    trust_remote_code: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Compares what languages find; arguments as the command's options."""
    check_numbers_file(output)
    image_ids: Sequence[str] | None = None
    if data is None:
        (run,) = _one_run(source)
        chosen = _test_set(run, test_set)
        ranks = {language: each for (name, language), each in run.ranks.items() if name == chosen}
        if not ranks:
            raise ComparisonError(f"{source} has no ranks of queries for {chosen}: give --data, and a model as SOURCE")
    else:
        corpus = load_images(data, split, languages)
        embedder = load_retrieval_embedder(source, batch_size=batch_size, trust_remote_code=trust_remote_code)
        ranks, image_ids = {}, list(corpus["image_id"])
        evaluate_retrieval(embedder, corpus, languages or default_languages(corpus, data), ranks=ranks)
    found = language_agreement(_chosen(ranks, languages), k=rank, image_ids=image_ids)
    save_figure(draw_agreement(found), output)
    alone = sum(map(len, found.found_alone.values()))
    show_analysis(
        "agreement",
        found,
        output,
        as_json,
        f"Of {found.n_images:,} images, {len(found.in_all):,} are found in all {len(found.languages)} languages, "
        f"{alone:,} in one alone, and {len(found.in_none):,} in none",
    )


def analyze_data(
    results: Path,
    recipe: str,
    languages: list[str] | None,
    *,
    metric: str,
    test_set: str | None,
    output: Path,
    as_json: bool,
) -> None:
    """Relates recall to training texts; arguments as the command's options."""
    check_numbers_file(output)
    runs = read_seeds(results)
    chosen = _test_set(runs[0], test_set)
    recalls: dict[str, float] = {}
    for language in (language for name, language in runs[0].scores if name == chosen):
        try:
            values = [float(run.scores[chosen, language][metric]) for run in runs]
        except KeyError as error:
            known = ", ".join(name for name in runs[0].scores[chosen, language] if not name.startswith("n_"))
            raise ComparisonError(f"{results} has no {error.args[0]!r} for {language}; there are {known}") from error
        recalls[language] = sum(values) / len(values)
    found = recall_by_data(
        training_texts(load_recipe(recipe)), _chosen(recalls, languages), metric=metric, test_set=chosen
    )
    save_figure(draw_data_recall(found), output)
    correlation = "as many texts in all" if found.correlation is None else f"{found.correlation:.2f}, p {found.p:.2g}"
    show_analysis(
        "data",
        found,
        output,
        as_json,
        f"Spearman's rank correlation of {metric} and training texts over {len(found.languages)} languages: "
        f"{correlation}",
    )


def analyze_forgetting(
    models: list[str],
    data: str | None,
    languages: list[str] | None,
    *,
    split: str | None,
    metric: str,
    test_set: str | None,
    batch_size: int,
    trust_remote_code: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Compares models in the order of their training; arguments as the command's options."""
    check_numbers_file(output)
    if data is None:
        rows: Mapping[str, Sequence[RunResults]] = read_rows([Path(model) for model in models])
    else:
        rows = _evaluated(models, data, languages, split, batch_size=batch_size, trust_remote_code=trust_remote_code)
    if languages is not None:
        rows = {
            name: [_restricted(run, normalize_languages(languages)) for run in runs] for name, runs in rows.items()
        }
    found = forgetting(rows, metric=metric, test_set=test_set)
    save_figure(draw_forgetting(found), output)
    lost = f"worse in {', '.join(found.forgotten)}" if found.forgotten else "worse in no language"
    show_analysis(
        "forgetting",
        found,
        output,
        as_json,
        f"{metric} over {len(found.languages)} languages: {found.mean_before:.1f} by {found.models[0]}, "
        f"{found.mean_after:.1f} by {found.models[-1]}, which is {lost}",
    )


def _evaluated(
    models: Sequence[str],
    data: str,
    languages: list[str] | None,
    split: str | None,
    *,
    batch_size: int,
    trust_remote_code: bool,
) -> dict[str, list[RunResults]]:
    """The results of models on the same data."""
    corpus = load_images(data, split, languages)
    tags = languages or default_languages(corpus, data)
    folders = [Path(model).name for model in models]
    names = [name if folders.count(name) == 1 else model for model, name in zip(models, folders, strict=True)]
    if len(set(names)) < len(names):
        raise ComparisonError(f"a model is named twice: {', '.join(names)}")
    rows = {}
    for model, name in zip(models, names, strict=True):
        embedder = load_retrieval_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
        ranks: dict[str, QueryRanks] = {}
        scores = evaluate_retrieval(embedder, corpus, tags, ranks=ranks)
        by_key = {(CAPTIONS, language): numbers for language, numbers in scores.items()}
        rows[name] = [RunResults(name, by_key, {(CAPTIONS, language): each for language, each in ranks.items()})]
    return rows


def _restricted(run: RunResults, languages: Sequence[str]) -> RunResults:
    """The results of a run in some languages, in their order."""
    known = list(dict.fromkeys(language for _, language in run.scores))
    _chosen(dict.fromkeys(known), list(languages))
    scores = {key: run.scores[key] for language in languages for key in run.scores if key[1] == language}
    return RunResults(run.name, scores, run.ranks, run.groups)


def _one_run(source: str) -> list[RunResults]:
    if not Path(source).exists():
        raise typer.BadParameter(f"{source}: there is no such file or folder", param_hint="SOURCE")
    runs = read_seeds(Path(source))
    if len(runs) > 1:
        raise ComparisonError(f"{source} has {len(runs)} runs: name one of them, such as {runs[0].name}")
    return runs


def _test_set(run: RunResults, test_set: str | None) -> str:
    """The test set that was asked for, or else the first of the results."""
    known = list(dict.fromkeys(name for name, _ in run.scores))
    if not known:
        raise ComparisonError(f"{run.name} has no results of a test set or of validation data")
    if test_set is not None and test_set not in known:
        raise ComparisonError(f"{run.name} has no test set {test_set!r}; there are {', '.join(known)}")
    return test_set or known[0]


def _chosen(by_language: Mapping[str, T], languages: list[str] | None) -> dict[str, T]:
    """What belongs to these languages, by default to all."""
    if languages is None:
        return dict(by_language)
    tags = normalize_languages(languages)
    if missing := [tag for tag in tags if tag not in by_language]:
        raise ComparisonError(f"there are no results in {', '.join(missing)}; there are {', '.join(by_language)}")
    return {tag: by_language[tag] for tag in tags}
