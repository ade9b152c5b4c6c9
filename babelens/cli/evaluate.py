"""`babelens evaluate`: a command for each kind of evaluation."""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..data.benchmarks import PROTOCOLS, benchmark_names, find_benchmark
from ..utils.errors import ModelFolderError
from .common import (
    Languages,
    Model,
    ResultsFile,
    SourceOptions,
    Split,
    TrustRemoteCode,
    begin_work,
    cells,
    check_path,
    check_source,
    plain_console,
    read_source,
    results_table,
    split_tags,
    tags_of,
)

if TYPE_CHECKING:
    from ..evaluation.ranking import QueryRanks
    from ..inference.translation import Translator

_ENGLISH = "en"  # the target language of translate-test

evaluate = typer.Typer(no_args_is_help=True, help="Measure how well a model does, language by language.")


# ---- Captions ----


@evaluate.command()
def captions(
    model: Model,
    data: Annotated[
        str,
        typer.Option(
            help="Images with captions: a folder, a file, a Hub or a published data set.", callback=check_source
        ),
    ],
    languages: Languages = None,
    split: Split = None,
    options: SourceOptions = None,
    protocol: Annotated[
        Literal["standard", "mla", "wit"],
        typer.Option(help="`mla`: images are ranked by their best caption. `wit`: each language has its own images."),
    ] = "standard",
    consistency: Annotated[
        bool, typer.Option("--consistency", help="Also search with each caption and its translations together: CLC.")
    ] = False,
    fit: Annotated[
        str | None, typer.Option(help="With --consistency: a split of --data, a folder or a file, to fit CLC-C on.")
    ] = None,
    translator: Annotated[
        str | None, typer.Option(help="A translation model or file: for CLC, or else for queries in English.")
    ] = None,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure retrieval on captioned images: recall at 1, 5 and 10 in percent, in both directions.

    In every language, each caption searches all images, and each image searches all captions of that language. If
    several images share a caption, word for word, a second score counts it as correct for all of them.
    """
    tags = tags_of(languages)
    if fit and (not consistency or fit in (split, data)):
        why = "CLC-C must be fitted and measured on different captions" if consistency else "requires --consistency"
        raise typer.BadParameter(why, param_hint="--fit")
    if consistency and protocol == "wit":
        raise typer.BadParameter(
            "--consistency does not support `wit`: captions in all languages search together", param_hint="--protocol"
        )
    begin_work()
    from ..data.corpus.corpus import languages_of
    from ..evaluation.consistency import compare_consistency
    from ..evaluation.retrieval import evaluate_retrieval, evaluate_translate_test
    from ..inference.embedder import Embedder
    from ..model_cards.card_text import public_name
    from .tables import new_results, print_consistency, print_recalls, print_translate_test

    code: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    translates = None if translator is None else _translator(translator, not consistency, **code)
    embedder = Embedder.from_pretrained(model, **code)
    corpus = read_source(data, options, split=split)
    tags = list(languages_of(corpus)) if tags is None else tags
    ranks: dict[str, QueryRanks] = {}
    ranking = "standard" if protocol == "wit" else protocol
    measured: dict[str, Any] = {"protocol": ranking, "only_captioned": protocol == "wit", "ranks": ranks}
    if translates is not None and not consistency:
        compared = evaluate_translate_test(embedder, corpus, tags, translates, to=_ENGLISH, **measured)
        recalls = {tag: each["untranslated"] for tag, each in compared.items() if each["untranslated"]}
        print_translate_test(data, compared, _ENGLISH)
    else:
        recalls = evaluate_retrieval(embedder, corpus, tags, **measured)
        print_recalls(data, recalls)
    if consistency:
        other = {"source": fit} if fit and Path(fit).exists() else {"source": data, "split": fit}
        fitted = read_source(options=options, **other) if fit else None
        given: dict[str, Any] = {"validation": fitted, "translator": translates, "protocol": ranking}
        print_consistency(compare_consistency(embedder, {data: corpus}, tags, **given))
    results = new_results()
    results.add(recalls, ranks, dataset=public_name(data), split=split or "")
    if output:
        results.save(output)


def _translator(given: str, into_english: bool, **code: Any) -> "Translator":
    """The translator of --translator, which caches its translations on disk: one model, a file of translations, or a
    model for each language, as in `de=MODEL,fr=MODEL`, into English."""
    from ..inference.translation import TranslatorsByPair, open_translator

    if not into_english or "=" not in given:
        return open_translator(given, **code)
    pairs = {(tag, _ENGLISH): name for tag, name in (part.split("=", 1) for part in given.split(","))}
    return TranslatorsByPair({pair: open_translator(name, pair=pair, **code) for pair, name in pairs.items()})


# ---- Classes ----


@evaluate.command()
def classes(
    model: Model,
    data: Annotated[Path, typer.Option(help="The images: a folder with a subfolder for each class.", file_okay=False)],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="The labels by language: JSON, a TSV with the header `class⇥en⇥de`, or Babel-ImageNet's file.",
            dir_okay=False,
        ),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(
            help="The templates: `photo` (one by language), `clip` (80 in English), `label` (none), or a JSON file "
            'such as {"de": ["ein Foto von {}."]}.'
        ),
    ] = "photo",
    languages: Languages = None,
    train_data: Annotated[
        Path | None, typer.Option(help="Other images of the same classes, for --knn.", file_okay=False)
    ] = None,
    knn: Annotated[
        int | None,
        typer.Option(help="Classify by a vote of the K nearest images of --train-data.", metavar="K", min=1),
    ] = None,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure image classification: top-1 and top-5 accuracy in percent.

    With --labels, each image is compared with the labels of the classes, language by language. A language is measured
    on the classes that have a label in it. With --knn, each image is compared with images of known classes.
    """
    tags = tags_of(languages)
    if labels is None and knn is None:
        raise typer.BadParameter("give --labels or --knn", param_hint="--labels")
    if labels is None and tags is not None:
        raise typer.BadParameter("no labels: --languages requires --labels", param_hint="--languages")
    if (knn is None) != (train_data is None):
        raise typer.BadParameter("--knn and --train-data go together", param_hint="--train-data")
    begin_work()
    import numpy as np

    from ..evaluation import classification as by
    from ..inference.embedder import Embedder
    from ..model_cards.card_text import public_name
    from .tables import new_results

    embedder = Embedder.from_pretrained(model, trust_remote_code=trust_remote_code)
    tested = by.ClassifiedImages.of_folder(data)
    named = None if labels is None else by.read_labels(labels, tested.classes, tags)
    templates = prompts if prompts in by.PROMPT_SETS else by.read_prompts(prompts)
    trained = None if train_data is None else by.ClassifiedImages.of_folder(train_data)
    targets = None if trained is None else tested.targets_among(trained.classes)
    features = embedder.encode_image(tested.images, normalize=False)
    results, name, console = new_results(), public_name(data), plain_console()
    if named is not None:
        ranks: dict[str, QueryRanks] = {}
        zero_shot = by.evaluate_classification(
            embedder, tested, named, prompts=templates, image_embeddings=features, ranks=ranks
        )
        results.add(zero_shot, ranks, dataset=name)
        headings = ("top 1", "top 5", "classes", "images", "templates")
        table = results_table("language", *headings, title=f"{data}, accuracy in %")
        for language, numbers in zero_shot.items():
            shown = ("top1", "top5", "n_classes", "n_images", "n_templates")
            table.add_row(language, *cells(map(numbers.get, shown)))
        table.add_section()
        groups = by.language_groups(named, len(tested.classes))
        for group, means in by.group_means(zero_shot, groups).items():
            table.add_row(f"mean, {group} ({len(means['languages'])})", *cells(map(means.get, ("top1", "top5"))))
        console.print(table)
        for language, numbers in zero_shot.items():
            if "n_equal_labels" in numbers:
                console.print(f"{language}: {numbers['n_equal_labels']} classes share their label with another class")
    if knn is not None and trained is not None and targets is not None:
        known, voted = embedder.encode_image(trained.images, normalize=False), list[int]()
        found = by.neighbor_accuracy(known, trained.targets, features, targets, neighbors=knn, ranks=voted)
        of_images = {"images": tested.query_ranks(np.array(voted))}
        results.add({"images": {"top1": found["top1"], "n": len(voted)}}, of_images, dataset=f"{name}, knn")
        console.print(f"{knn} nearest neighbors: top 1 {found['top1']:.1f} ({found['n_train']:,} training images)")
    if output:
        results.save(output)


# ---- The emoji benchmark ----


@evaluate.command()
def emoji(
    model: Model,
    consistency: Annotated[
        bool,
        typer.Option("--consistency", help="Also search with the names in all languages with images together: CLC."),
    ] = False,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure retrieval on the emoji benchmark: recall at 1, 5 and 10 in percent, in both directions.

    The benchmark answers four questions. How well does MODEL find concepts that it never saw? And how well does it
    find images by a vendor that it never saw, with queries in languages that had images in training, in languages that
    had only translations, and in languages that were not in training? Flags are reported separately. The languages are
    as in the recipes `emoji/…`; the report of a recipe uses its own.
    """
    begin_work()
    from ..evaluation.consistency import emoji_consistency
    from ..evaluation.emoji import EmojiBenchmark
    from ..inference.embedder import Embedder
    from .tables import new_results, print_consistency, print_emoji_report

    embedder = Embedder.from_pretrained(model, trust_remote_code=trust_remote_code)
    benchmark = EmojiBenchmark(embedder)
    ranks: dict[str, QueryRanks] = {}
    report = benchmark.report(ranks)
    print_emoji_report(report)
    if consistency:
        print_consistency(emoji_consistency(embedder, benchmark.groups["image"]))
    results = new_results()
    results.add_emoji(report, ranks)
    if output:
        results.save(output)


# ---- Published benchmarks ----


@evaluate.command()
def benchmark(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="The model: a folder, or a name on the Hugging Face Hub.",
            show_default="lists the benchmarks",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--benchmark", metavar="NAME", help="The benchmark, such as `xtd`.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="The folder with the published files.", callback=check_path, file_okay=False)
    ] = None,
    languages: Languages = None,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure a model on a published benchmark, by its own protocol, next to the results of papers.

    Without --benchmark, the benchmarks are listed. With --benchmark and without MODEL, its files, license and protocol
    are shown. The original files are read; nothing is fetched. Recalls are in percent.
    """
    if model is None and root is None:
        _describe(name)
        return
    for option, given in (("MODEL", model), ("--benchmark", name), ("--root", root)):
        if given is None:
            raise typer.BadParameter(f"give {option} too", param_hint=option)
    tags = tags_of(languages)
    find_benchmark(str(name)).chosen(tags)
    begin_work()

    from ..evaluation.benchmarks import load_benchmark
    from ..inference.embedder import Embedder
    from .tables import new_results, print_recalls

    results, benchmark = new_results(), load_benchmark(str(name), str(root), tags)
    embedder = Embedder.from_pretrained(str(model), trust_remote_code=trust_remote_code)
    report = benchmark.evaluate(embedder, ranks=results.ranks)
    for test_set, by_language in report["results"].items():
        results.add(by_language, dataset=test_set)
        if all("mean_recall" in numbers for numbers in by_language.values()):  # image-text retrieval
            print_recalls(test_set, by_language)
        else:
            _print_numbers(test_set, by_language)
    if output:
        results.save(output)
    if report["means"]:
        _print_numbers("means over languages", report["means"])
    for published in report["published"]:
        table = results_table("", *published["columns"])
        table.add_row(model, *cells(published["ours"]), style="bold", end_section=True)
        for row, values in published["rows"].items():
            table.add_row(row, *cells(values))
        metric = f", {published['metric']}" if published["metric"] else ""
        _print_titled(f"{published['test_set']}{metric}, next to {published['source']}", table)
        if published["note"]:
            plain_console().print(f"Note: {published['note']}\n")


def _print_numbers(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Prints rows of numbers with the same column names."""
    names = [name for name in next(iter(rows.values())) if not name.endswith("_equal_texts")]
    table = results_table("", *names)
    for row, numbers in rows.items():
        table.add_row(row, *cells(numbers[name] for name in names))
    _print_titled(title, table)


def _print_titled(title: str, table: Any) -> None:
    """Prints a table under its title, which may be wider than the table."""
    console = plain_console()
    console.print(f" {title}")
    console.print(table)


def _describe(name: str | None) -> None:
    """Prints the files, the license and the protocol of a benchmark, or a list of all."""
    if name is None:
        table = results_table("name", "benchmark", "languages", names=3)
        for each in map(find_benchmark, benchmark_names()):
            table.add_row(each.name, each.title, " ".join(each.languages))
        plain_console().print(table)
        return
    benchmark = find_benchmark(name)
    lines = [
        f"{benchmark.name}: {benchmark.title}",
        "",
        f"languages  {' '.join(benchmark.languages)}",
        f"protocol   {PROTOCOLS[benchmark.protocol]}",
        f"paper      {benchmark.paper}",
        f"source     {benchmark.url}",
        f"license    {benchmark.license}",
        "",
        "Files in the folder:",
    ]
    for file in benchmark.files:
        lines += [f"  {file['path']}", f"      {file['holds']}", f"      from {file['origin']}"]
    lines += ["", "Facts:", *(f"  - {fact}" for fact in benchmark.facts)]
    if benchmark.figures:
        lines += ["", "Results of papers that are shown next to the measured ones:"]
        lines += [f"  {figures.source}: {figures.metric or figures.test_set}" for figures in benchmark.figures]
    typer.echo("\n".join(lines))


# ---- mteb ----


@evaluate.command()
def mteb(
    model: Model,
    tasks: Annotated[
        str,
        typer.Option(
            help="mteb's names of the tasks, separated by commas: `XM3600T2IRetrieval,STS17`.", metavar="TASKS"
        ),
    ],
    languages: Languages = None,
    text_prompt: Annotated[
        str | None, typer.Option(help="The prompt of a text-only encoder, such as `query: ` for E5.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder in which mteb keeps its results, which are not measured again.",
            file_okay=False,
            show_default="`evaluation/mteb` in the model's folder",
        ),
    ] = None,
    card: Annotated[bool, typer.Option("--card", help="Add the results to the card in the model's folder.")] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure a model on tasks of mteb, on which embedding models are compared.

    The processor gets the language of each subset. mteb fetches its data from the Hub. The command needs the package
    mteb: `pip install mteb`.
    """
    names, tags = split_tags(tasks), tags_of(languages)
    if not names:
        raise typer.BadParameter(f"{tasks!r} names no task", param_hint="--tasks")
    begin_work()
    from ..evaluation.mteb import evaluate_mteb, model_index, mteb_model, mteb_tasks
    from ..model_cards.cards import add_results, check_card

    if card:
        try:
            check_card(model)
        except ModelFolderError as error:
            raise typer.BadParameter(str(error), param_hint="--card") from error
    chosen = mteb_tasks(names, tags)
    loading: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    loading |= {} if text_prompt is None else {"text_prompt": text_prompt}
    judged = mteb_model(model, **loading)
    if output is None and Path(model).is_dir():
        output = Path(model) / "evaluation" / "mteb"
    scores = evaluate_mteb(judged, chosen, cache=output, show_progress=True)
    if card:
        add_results(model, model_index(scores))
    for name, of_task in groupby(scores, lambda score: score.metadata.name):
        rows = [(score, score.shown()) for score in of_task]
        table = results_table("subset", "split", "languages", *rows[0][1], title=f"{name}, in %", names=3)
        for score, shown in rows:
            table.add_row(score.subset, score.split, ", ".join(score.languages), *cells(shown.values()))
        plain_console().print(table)
    if output is not None:
        plain_console().print(f"All of mteb's metrics: {output}")


# ---- The tasks of RC3 ----


@evaluate.command()
def task(
    model: Model,
    recipe: Annotated[
        str, typer.Option(help="The recipe with the `test` data: a file, or a name such as `rc3/xvnli`.")
    ],
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure a model on the task that it was fine-tuned on, by the task's own metrics.

    The tasks of RC3 are visual entailment, visual question answering, visual reasoning, image-text retrieval and
    translation. A fine-tuning recipe names the task and its test data.
    """
    begin_work()
    from ..training.rc3_tasks import Rc3TaskData, Rc3TaskRecipe, evaluate_task
    from ..training.schema import load_recipe
    from .tables import new_results, print_task_report

    loaded = load_recipe(recipe)
    if not isinstance(loaded, Rc3TaskRecipe) or not loaded.test:
        raise typer.BadParameter(f"{recipe} has no task with test data", param_hint="--recipe")
    results, code = new_results(), {"trust_remote_code": trust_remote_code}
    report = evaluate_task(loaded, Rc3TaskData(loaded).tests, model, results, **code)
    if output:
        results.save(output)
    print_task_report(report, loaded.rc3_task)
