"""`babelens evaluate`: how well a model finds images by text and texts by image, in each language; or how well it
does a task that it was fine-tuned on."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..configuration.errors import HubUnreachableError, ModelFolderError, ModelKindError
from ..configuration.files import atomic_file
from ..configuration.pretrained import load_config
from ..data.corpus.corpus import languages_of
from ..data.corpus.loading import load_captions
from ..evaluation.emoji import BENCHMARK_LANGUAGES, EmojiBenchmark
from ..evaluation.retrieval import evaluate_retrieval
from ..inference.embedder import Embedder
from ..inference.reranking import Reranker
from ..registry import METHODS
from ..trainers.rc3_tasks import Rc3Task
from ..workflows.base import recipe_data
from ..workflows.rc3_tasks import Rc3TaskRecipe, TaskReport, evaluate_task
from ..workflows.recipe import load_recipe
from .embed import GRID_HELP, REGIONS_HELP, load_cross_encoder, load_embedder
from .options import TrustRemoteCode
from .tables import print_emoji_report, print_recalls, print_task_report

_EMOJI = "emoji"

_PANEL = "Emoji benchmark"


def evaluate(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the Hub.")],
    data: Annotated[
        str,
        typer.Option(
            help="`emoji`, or captioned images: a folder with a `metadata.jsonl`, parquet files, or a Hub data set."
        ),
    ] = _EMOJI,
    languages: Annotated[
        str | None,
        typer.Option(help="Of captioned images: tags with commas between, `en,de,zh-Hant`. By default all."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="The split of DATA to use, where it has several.")] = None,
    protocol: Annotated[
        Literal["standard", "mla"],
        typer.Option(
            help="`mla`: from image to text, rank images by their best caption, as MLA's paper does. "
            "On the emoji benchmark both are the same."
        ),
    ] = "standard",
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe of fine-tuning, `rc3/xvnli` or a file: MODEL does its task on its `test` data, not DATA."
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            help="A cross-encoder, its folder or its name on the Hub, that puts the best of every query in order."
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(help="How many items of a query it is shown.", min=1)] = 50,
    regions: Annotated[str | None, typer.Option(help=REGIONS_HELP)] = None,
    grid: Annotated[int | None, typer.Option(help=GRID_HELP, min=1)] = None,
    image_languages: Annotated[
        str, typer.Option(help="Languages that had images in training.", rich_help_panel=_PANEL)
    ] = ",".join(BENCHMARK_LANGUAGES["image"]),
    pair_languages: Annotated[
        str, typer.Option(help="Languages that had translations only.", rich_help_panel=_PANEL)
    ] = ",".join(BENCHMARK_LANGUAGES["pair"]),
    unseen_languages: Annotated[
        str, typer.Option(help="Languages that were not in training.", rich_help_panel=_PANEL)
    ] = ",".join(BENCHMARK_LANGUAGES["unseen"]),
    test_vendor: Annotated[
        str, typer.Option(help="The vendor that was not in training.", rich_help_panel=_PANEL)
    ] = "noto",
    seen_vendor: Annotated[
        str, typer.Option(help="A vendor that was in training.", rich_help_panel=_PANEL)
    ] = "twemoji",
    gallery: Annotated[
        Path | None,
        typer.Option(
            help="Draw some queries and the images found for them into this file (PNG).",
            dir_okay=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the results into this file (JSON), for model cards.", dir_okay=False)
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images or texts encoded at a time.", min=1)] = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure retrieval: recall at 1, 5 and 10 in percent, text to image and image to text, language by language.

    On captioned images, every language searches all images. On the emoji benchmark, four questions are answered
    together: unseen concepts; an unseen vendor in languages that had images; in languages that had translations
    only; in languages never seen. Say which languages were which in training; flags are reported apart.

    `--rerank` has a second model, a cross-encoder, judge what MODEL found: the best `--top-k` of each query, which
    costs as many passes of that model for every text and for every image.

    A model that was fine-tuned on a task (RC3: entailment, questions, reasoning, retrieval, translation) is evaluated
    with `--recipe`, on the task's own test data and by its own measure.
    """
    if recipe:
        report, task = _task_report(model, recipe, batch_size, trust_remote_code)
        _show(report, output, as_json, lambda: print_task_report(report, task))
        return
    if languages is not None and not _tags(languages):
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    if data == _EMOJI and (languages or split):
        raise typer.BadParameter("the emoji benchmark has its own splits, and takes --image-languages and the like")
    if data != _EMOJI and gallery:
        raise typer.BadParameter("galleries are drawn of the emoji benchmark", param_hint="--gallery")
    if rerank and gallery:
        raise typer.BadParameter("galleries show what MODEL finds by itself", param_hint="--gallery")
    embedder = _dual_encoder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    judge = load_cross_encoder(rerank, regions, grid, batch_size=batch_size, trust_remote_code=trust_remote_code)
    reranker = Reranker(judge, top_k) if judge else None
    if data == _EMOJI:
        try:
            benchmark = EmojiBenchmark(
                embedder,
                image_languages=_tags(image_languages),
                pair_languages=_tags(pair_languages),
                unseen_languages=_tags(unseen_languages),
                test_vendor=test_vendor,
                seen_vendor=seen_vendor,
                reranker=reranker,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        results = benchmark.report()
        if gallery:
            with atomic_file(gallery) as path:
                benchmark.gallery().save(path, "PNG")
    else:
        corpus = load_captions(data, split=split)
        tags = _tags(languages) if languages is not None else list(languages_of(corpus))
        results = evaluate_retrieval(embedder, corpus, tags, protocol=protocol, reranker=reranker)
    _show(
        results,
        output,
        as_json,
        lambda: print_emoji_report(results) if data == _EMOJI else print_recalls(data, results),
    )


def _show(results: Mapping[str, Any], output: Path | None, as_json: bool, draw: Callable[[], None]) -> None:
    text = json.dumps(results, ensure_ascii=False, indent=2)
    if output:
        with atomic_file(output) as path:
            path.write_text(text, "utf-8")
    if as_json:
        typer.echo(text)
    else:
        draw()


def _task_report(model: str, recipe: str, batch_size: int, trust_remote_code: bool) -> tuple[TaskReport, Rc3Task]:
    """The numbers of a model on the test data of a recipe of fine-tuning, and that recipe's task."""
    loaded = load_recipe(recipe)
    if not isinstance(loaded, Rc3TaskRecipe) or not loaded.test:
        raise typer.BadParameter(f"{recipe} has no task with test data", param_hint="--recipe")
    try:
        tests = recipe_data(loaded).tests
        report = evaluate_task(loaded, tests, model, batch_size=batch_size, trust_remote_code=trust_remote_code)
        return report, loaded.rc3_task
    except ModelKindError as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error


def _dual_encoder(model: str, **options: Any) -> Embedder:
    """The embedder, or for a model of tasks an error that says how those are evaluated."""
    try:
        return load_embedder(model, **options)
    except typer.BadParameter as error:
        if not isinstance(error.__cause__, HubUnreachableError) and _is_for_tasks(model):
            message = (
                f"{model} embeds nothing; say on which task: --recipe emoji/rc3/entailment, rc3/xvnli, or your own"
            )
            raise typer.BadParameter(message, param_hint="MODEL") from error
        raise


def _is_for_tasks(model: str) -> bool:
    try:
        method = METHODS.get(load_config(model).model_type)
    except ModelFolderError:
        return False
    return method is not None and method.task_workflow is not None


def _tags(languages: str) -> list[str]:
    return [tag.strip() for tag in languages.split(",") if tag.strip()]
