"""`babelens analyze agreement`, `data` and `forgetting`: analyses of recall."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..configuration.errors import ComparisonError
from ..configuration.languages import normalize_languages
from .analysis_options import (
    RESULTS,
    Figure,
    Metric,
    OptionalCaptions,
    TestSet,
    check_source,
    default_languages,
    load_images,
    show_analysis,
)
from .options import AsJson, BatchSize, Languages, SourceOptions, Split, TrustRemoteCode, tags_of
from .starting import begin_work

if TYPE_CHECKING:
    from ..evaluation.comparison import RunResults


def agreement(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help=f"With --data, a model. Without it, results: {RESULTS}.")
    ],
    output: Figure,
    data: OptionalCaptions = None,
    languages: Languages = None,
    split: Split = None,
    source_options: SourceOptions = None,
    test_set: TestSet = None,
    rank: Annotated[
        int, typer.Option(help="An image is found when it is among the first N.", metavar="N", min=1)
    ] = 10,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show which images every language finds, and which only one.

    `babelens analyze agreement runs/mural --data photos --output agreement.svg`

    An image is found in a language when one of its captions in that language has it among the first --rank. With
    --data, the model SOURCE is evaluated, and the numbers name images by their `image_id`. Without it, the ranks
    beside the results are read, and images are named by their index.
    """
    tags = tags_of(languages)
    check_source(data, split, test_set)
    begin_work()
    from ..evaluation.analysis.data_recall import language_agreement
    from ..evaluation.analysis.figures.recall import draw_agreement
    from ..evaluation.retrieval import evaluate_retrieval
    from .inputs import load_retrieval_embedder

    image_ids: Sequence[str] | None = None
    if data is None:
        (run,) = _one_run(source)
        chosen = _test_set(run, test_set)
        ranks = {language: each for (name, language), each in run.ranks.items() if name == chosen}
        if not ranks:
            raise ComparisonError(f"{source} has no ranks of queries for {chosen}: give --data, and a model as SOURCE")
    else:
        corpus = load_images(data, split, tags, source_options)
        embedder = load_retrieval_embedder(source, batch_size=batch_size, trust_remote_code=trust_remote_code)
        ranks, image_ids = {}, list(corpus["image_id"])
        evaluate_retrieval(embedder, corpus, tags or default_languages(corpus, data), ranks=ranks)
    found = language_agreement(_chosen(ranks, tags), k=rank, image_ids=image_ids)
    alone = sum(map(len, found.found_alone.values()))
    show_analysis(
        "agreement",
        found,
        draw_agreement(found),
        output,
        as_json,
        f"Of {found.n_images:,} images, {len(found.in_all):,} are found in all {len(found.languages)} languages, "
        f"{alone:,} in one alone, and {len(found.in_none):,} in none",
    )


def data(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help=f"The results: {RESULTS}.", exists=True)],
    recipe: Annotated[
        str, typer.Option(help="The recipe of the training: a file, or a recipe of the package such as `emoji/mural`.")
    ],
    output: Figure,
    languages: Languages = None,
    metric: Metric = "t2i_r10",
    test_set: TestSet = None,
    as_json: AsJson = False,
) -> None:
    """Show recall against the amount of training text in each language, with Spearman's rank correlation.

    `babelens analyze data runs/mural --recipe emoji/mural --output data.svg`

    The data of the recipe are read, and the texts in each language are counted, each once.
    """
    tags = tags_of(languages)
    begin_work()
    from ..evaluation.analysis.data_recall import recall_by_data
    from ..evaluation.analysis.figures.recall import draw_data_recall
    from ..workflows.loading import load_recipe
    from ..workflows.run_results import read_seeds
    from ..workflows.trimming import training_texts

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
    found = recall_by_data(training_texts(load_recipe(recipe)), _chosen(recalls, tags), metric=metric, test_set=chosen)
    correlation = "as many texts in all" if found.correlation is None else f"{found.correlation:.2f}, p {found.p:.2g}"
    show_analysis(
        "data",
        found,
        draw_data_recall(found),
        output,
        as_json,
        f"Spearman's rank correlation of {metric} and training texts over {len(found.languages)} languages: "
        f"{correlation}",
    )


def forgetting(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS...",
            help="Two or more in the order of their training. With --data, models. Without it, results: folders of "
            "runs, folders with a run for each seed, or files that `babelens evaluate --output` wrote.",
        ),
    ],
    output: Figure,
    data: OptionalCaptions = None,
    languages: Languages = None,
    split: Split = None,
    source_options: SourceOptions = None,
    metric: Metric = "mean_recall",
    test_set: TestSet = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show what a training has forgotten: the recall in all languages before and after it.

    `babelens analyze forgetting runs/clip runs/clip-de --data photos --output forgetting.svg`

    Stars mark differences to the first of MODELS that are larger than chance, by the paired bootstrap over images.
    """
    tags = tags_of(languages)
    if len(models) < 2:
        raise typer.BadParameter("what was forgotten shows between two models or more", param_hint="MODELS")
    check_source(data, split, test_set)
    begin_work()
    from ..evaluation.analysis.data_recall import forgetting
    from ..evaluation.analysis.figures.recall import draw_forgetting
    from ..workflows.run_results import read_rows
    from .inputs import evaluated

    rows: Mapping[str, Sequence[RunResults]]
    if data is None:
        rows = read_rows([Path(model) for model in models])
    else:
        corpus = load_images(data, split, tags, source_options)
        chosen = tags or default_languages(corpus, data)
        loading: dict[str, Any] = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
        rows = evaluated(models, corpus, chosen, **loading)
    if tags is not None:
        rows = {name: [_restricted(run, normalize_languages(tags)) for run in runs] for name, runs in rows.items()}
    found = forgetting(rows, metric=metric, test_set=test_set)
    lost = f"worse in {', '.join(found.forgotten)}" if found.forgotten else "worse in no language"
    show_analysis(
        "forgetting",
        found,
        draw_forgetting(found),
        output,
        as_json,
        f"{metric} over {len(found.languages)} languages: {found.mean_before:.1f} by {found.models[0]}, "
        f"{found.mean_after:.1f} by {found.models[-1]}, which is {lost}",
    )


T = TypeVar("T")


def _restricted(run: "RunResults", languages: Sequence[str]) -> "RunResults":
    """The results of a run in some languages, in their order."""
    from ..evaluation.comparison import RunResults

    known = list(dict.fromkeys(language for _, language in run.scores))
    _chosen(dict.fromkeys(known), list(languages))
    scores = {key: run.scores[key] for language in languages for key in run.scores if key[1] == language}
    return RunResults(run.name, scores, run.ranks, run.groups)


def _one_run(source: str) -> "list[RunResults]":
    from ..workflows.run_results import read_seeds

    if not Path(source).exists():
        raise typer.BadParameter(f"{source}: there is no such file or folder", param_hint="SOURCE")
    runs = read_seeds(Path(source))
    if len(runs) > 1:
        raise ComparisonError(f"{source} has {len(runs)} runs: name one of them, such as {runs[0].name}")
    return runs


def _test_set(run: "RunResults", test_set: str | None) -> str:
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
