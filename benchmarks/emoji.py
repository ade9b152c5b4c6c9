"""The comparisons of MLA's, ETCL's and SMALR's papers on the emoji benchmark: the rows of a folder of recipes, several
seeds, one table.

    babelens train emoji/mla/clip --output runs/clip
    python benchmarks/emoji.py mla --base runs/clip --output runs/mla
    python benchmarks/emoji.py mla --base runs/clip --output runs/mla-one-language --one-language
    python benchmarks/emoji.py etcl --output runs/etcl
    python benchmarks/emoji.py smalr --backbone runs/clip --output runs/smalr --counts 1,2,4,7,10
    python benchmarks/emoji.py weights --output runs/weights

Numbers are in percent, mean ± deviation over the seeds; rows that begin with the same stage take it from the same run.
RC3, whose rows are fine-tuned, has a script of its own (`emoji_rc3.py`).
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import torch
import typer
from rows import Changes, Experiment, OnlyTable, Output, Rows, Seeds, chosen, markdown, numbers, spread
from transformers import AutoConfig, AutoModel

from babelens import Embedder
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES
from babelens.evaluation.consistency import emoji_consistency
from babelens.evaluation.emoji import GROUP_TITLES
from babelens.evaluation.results import emoji_dataset
from babelens.training.schema import load_recipe

Report = dict[str, Any]
Column = Callable[[Report], float]

VENDOR, CONCEPTS = QUESTIONS = ("unseen_vendor", "unseen_concepts")
NATIVE = "en"

app = typer.Typer(pretty_exceptions_enable=False)


def by_language(report: Report, question: str, score: str = "t2i_r10") -> dict[str, float]:
    """A score in percent, in all languages that were asked."""
    groups = [emoji_dataset(question, group) for group in GROUP_TITLES]
    return {language: found[score] for name in groups for language, found in report.get(name, {}).items()}


def mean_of(question: str, languages: Collection[str], score: str = "t2i_r10") -> Column:
    return lambda report: fmean(by_language(report, question, score)[language] for language in languages)


def rows_of(experiment: Experiment, titles: dict[str, str], seeds: list[int], columns: Iterable[Column]) -> list[Any]:
    """[title, spread of each column] of the rows that have been trained, by their names."""
    columns = list(columns)
    found = {row: reports for row in titles if (reports := experiment.reports(row, seeds))}
    return [
        (row, [titles[row], *(spread([column(report) for report in reports]) for column in columns)])
        for row, reports in found.items()
    ]


# ---- MLA (Zhang et al. 2022, table 3) ----

# Row, what it is, and the paper's figure: the mean AR of Multi30K (de, fr, cs) and MSCOCO 1K (ja, zh).
MLA = {
    "mla": ("NLT mse, LE nce (MLA)", "76.1"),
    "transfer": ("NLT mse", "73.1"),
    "transfer-nce": ("NLT nce", "58.7"),
    "exposure-mse": ("LE mse", "46.6"),
    "exposure": ("LE nce", "66.4"),
    "transfer-exposure-mse": ("NLT mse, LE mse", "51.8"),
    "kept": ("NLT mse, LE nce + NLT mse", "75.6"),
    "kept-nce": ("NLT mse, LE nce + NLT nce", "75.4"),
    "linear": ("MLA, linear acquirers", "75.5"),
    "cma": ("CMA", "71.7"),
    "cma-pretrained": ("CMA, a pretrained encoder", "–"),
    "mkd": ("MKD", "–"),
}


@app.command()
def mla(
    base: Annotated[Path, typer.Option(help="The English CLIP.")],
    output: Output,
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    one_language: Annotated[
        bool, typer.Option("--one-language", help="One language a step, as in the paper, instead of mixed batches.")
    ] = False,
    only_table: OnlyTable = False,
) -> None:
    """MLA's ablations and baselines: twelve languages for the same frozen CLIP, from the same data."""
    settings = [f"model.from_pretrained={base}", f"training.mix_languages={str(not one_language).lower()}"]
    experiment = Experiment(output, "emoji/mla/mla:{}", settings)
    shared = dict.fromkeys(("transfer-exposure-mse", "kept", "kept-nce"), ("mla", "transfer"))
    names = chosen(rows, MLA)
    if not only_table:
        experiment.train_all(names, numbers(seeds), shared)
    print(mla_table(experiment, names, numbers(seeds)))


def mla_table(experiment: Experiment, rows: list[str], seeds: list[int]) -> str:
    """R@10 of English, and the mean of the acquired languages."""

    def acquired(question: str) -> Column:
        return lambda report: fmean(
            value for language, value in by_language(report, question).items() if language != NATIVE
        )

    columns = [column for each in QUESTIONS for column in (mean_of(each, [NATIVE]), acquired(each))]
    found = rows_of(experiment, {row: MLA[row][0] for row in rows}, seeds, columns)
    headings = ["vendor: English", "vendor: acquired", "concepts: English", "concepts: acquired"]
    return markdown(["row", *headings, "paper's AR"], [[*cells, MLA[row][1]] for row, cells in found])


# ---- ETCL (Lee et al. 2022, tables 5 to 7 and 13) ----

ETCL = {
    "mural": "MURAL",
    "plus-ja": "MURAL + ja",
    "plus-cs": "MURAL + cs",
    "plus-de": "MURAL + de",
    "6lang": "MURAL + 6lang",
    "etcl": "MURAL + ETCL",
}
IMAGED = ("de", "fr", "cs", "zh", "ja")
# Languages that never had an image, by the imaged languages that they are related to.
RELATED = {
    "like de": ("nl", "sv"),
    "like fr": ("es", "it", "pt"),
    "like cs": ("pl", "ru", "sk", "uk"),
    "like ja": ("ko",),
    "others": ("hi", "id", "sw", "tr"),
}
GROUPS = {
    NATIVE: (NATIVE,),
    "other five": IMAGED,
    "no images": tuple(language for languages in RELATED.values() for language in languages),
    **RELATED,
}


@app.command()
def etcl(
    output: Output,
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    score: Annotated[str, typer.Option(help="Such as `t2i_r10` or `mean_recall`.")] = "t2i_r10",
    settings: Changes = None,
    only_table: OnlyTable = False,
) -> None:
    """ETCL's comparisons: all rows of a seed go on from its `mural`, with as many steps.

    `--set model.overrides.text_text_temperature=0.01` fixes the temperature of translations, as MURAL does, where the
    recipes learn one for everything, as the paper does.
    """
    experiment = Experiment(output, "emoji/etcl/etcl:{}", settings or [])
    names = chosen(rows, ETCL)
    if not only_table:
        shared = {row: ("mural", "mural") for row in ETCL if row != "mural"}
        experiment.train_all(names, numbers(seeds), shared)
    for question in QUESTIONS:
        print(f"{question}, {score}\n{etcl_table(experiment, names, numbers(seeds), question, score)}\n")


def etcl_table(experiment: Experiment, rows: list[str], seeds: list[int], question: str, score: str) -> str:
    """A score, the mean of each group of languages."""
    columns = [mean_of(question, languages, score) for languages in GROUPS.values()]
    found = rows_of(experiment, {row: ETCL[row] for row in rows}, seeds, columns)
    return markdown(["row", *GROUPS], [cells for _, cells in found])


# ---- SMALR (Burns et al. 2020, tables 1 and 2, figures 1b and 3) ----

SMALR = {"smalr": "SMALR", "hem": "HEM", "la": "LA", "mule": "MULE", "par-embn": "PAR-EmbN", "liwe": "S-LIWE"}
CONSISTENCY = {"clc_a": "SMALR-CLC-A", "clc_c": "SMALR-CLC-C"}
COUNTED = ("smalr", "mule", "liwe")  # the rows of figure 1b
PLOTS = Path(__file__).parents[1] / "docs/results/images"  # next to the page that shows them


@dataclass(frozen=True)
class Point:
    """A row's results: mean recall by question, seed and language, and millions of parameters by seed."""

    title: str
    recalls: dict[str, list[dict[str, float]]]
    trained: list[float]
    at_test_time: list[float]

    def mean(self, question: str = VENDOR) -> float:
        return fmean(fmean(recall.values()) for recall in self.recalls[question])


@app.command()
def smalr(
    output: Output,
    backbone: Annotated[Path, typer.Option(help="The English CLIP.")] = Path("runs/clip"),
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    counts: Annotated[
        str, typer.Option(help=f"Numbers of languages to train {', '.join(COUNTED)} on, of the paper's ten.")
    ] = "10",
    plots: Annotated[Path, typer.Option(help="Folder of the plots, which need matplotlib.")] = PLOTS,
    only_table: OnlyTable = False,
) -> None:
    """SMALR's family and LIWE, on the same frozen CLIP's features of the same images.

    CLC-A and CLC-C stand on top of `smalr`; CLC-C is fitted on the validation split with English queries, and the
    translations are Unicode's own names, as good as translations can be: with CLC, the names of an emoji in all
    languages ask together, so that every language finds the same.
    """
    names, of_seeds = chosen(rows, SMALR), numbers(seeds)
    found: dict[int, dict[str, Point]] = {}
    for count in sorted({*numbers(counts), len(SMALR_LANGUAGES)}, reverse=True):
        experiment = smalr_experiment(output, backbone, count)
        own = names if count == len(SMALR_LANGUAGES) else [row for row in names if row in COUNTED]
        if not only_table:
            experiment.train_all(own, of_seeds, dict.fromkeys(("hem", "la"), ("smalr", "latent")))
        found[count] = {row: point for row in own if (point := smalr_point(experiment, row, of_seeds))}
    shown = list(found[len(SMALR_LANGUAGES)].values())
    if base := found[len(SMALR_LANGUAGES)].get("smalr"):
        runs = smalr_experiment(output, backbone, len(SMALR_LANGUAGES))
        shown += [consistent(runs, of_seeds, base, aggregation) for aggregation in CONSISTENCY]
    print(smalr_table(shown))
    if shown:
        draw_smalr(shown, found, plots)


def smalr_experiment(output: Path, backbone: Path, count: int) -> Experiment:
    """The runs on the first `count` of the paper's languages."""
    if count == len(SMALR_LANGUAGES):
        return Experiment(output, "emoji/smalr/smalr:{}", [f"backbone={backbone}"])
    languages = json.dumps(SMALR_LANGUAGES[:count])

    def settings(row: str, seed: int) -> list[str]:
        tasks = ["image_text"] if row == "liwe" else ["image_text", "text_text"]
        return [f"backbone={backbone}", *(f"train.{task}.languages={languages}" for task in tasks)]

    return Experiment(output / f"{count}-languages", "emoji/smalr/smalr:{}", settings)


def smalr_point(experiment: Experiment, row: str, seeds: list[int]) -> Point | None:
    """The results of the seeds that have been trained; None while there are none."""
    found = {seed: report for seed in seeds if (report := experiment.report(row, seed))}
    if not found:
        return None
    trained, used = [], []
    for seed in found:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(experiment.folder(row, seed))
            parts = AutoModel.from_config(config).parameter_parts()
        trained.append(sum(n for name, n in parts.items() if name != "backbone") / 1e6)
        # A text that SMALR's family reads is rows of a table, made before (section 5); LIWE needs all that it has.
        used.append(trained[-1] if row == "liwe" else (parts["image"] + parts["transformer"]) / 1e6)
    recalls = {}
    for question in QUESTIONS:  # in the languages that had images in training
        images = [report[emoji_dataset(question, "image")] for report in found.values()]
        recalls[question] = [{tag: each["mean_recall"] for tag, each in languages.items()} for languages in images]
    return Point(SMALR[row], recalls, trained, used)


def consistent(experiment: Experiment, seeds: list[int], base: Point, aggregation: str) -> Point:
    """CLC on top of the runs of SMALR; its results are kept in `consistency.json`."""
    found = []
    for folder in [experiment.folder("smalr", seed) for seed in seeds if experiment.report("smalr", seed)]:
        file = folder / "consistency.json"
        if not file.is_file():
            measured = emoji_consistency(Embedder.from_pretrained(folder), SMALR_LANGUAGES)
            file.write_text(json.dumps(measured, indent=1), encoding="utf-8")
        found.append(json.loads(file.read_text(encoding="utf-8"))[aggregation])
    recalls = {
        question: [{tag: each["mean_recall"] for tag, each in run["recalls"][question].items()} for run in found]
        for question in QUESTIONS
    }
    added = [run["parameters"] / 1e6 for run in found]
    trained, used = (
        [count + own for count, own in zip(counts, added, strict=True)] for counts in (base.trained, base.at_test_time)
    )
    return Point(CONSISTENCY[aggregation], recalls, trained, used)


def smalr_table(points: list[Point]) -> str:
    """Mean recall, the mean of the languages, and millions of parameters, the mean of the seeds, which differ in how
    many latent tokens are in use."""
    return markdown(
        ["row", "vendor", "concepts", "trained, M", "at test time, M"],
        [
            [
                point.title,
                *(spread([fmean(recall.values()) for recall in point.recalls[question]]) for question in QUESTIONS),
                *(f"{fmean(counts):.2f}" for counts in (point.trained, point.at_test_time)),
            ]
            for point in points
        ],
    )


def draw_smalr(points: list[Point], by_count: dict[int, dict[str, Point]], folder: Path) -> None:
    """Figure 3, recall against parameters, in training and, hollow, at test time; and figure 1b, recall against the
    number of training languages and, dashed, that in English alone."""
    from matplotlib import pyplot

    for name in ("parameters", "languages"):
        figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for point in points if name == "parameters" else ():
            ends, recall = [fmean(point.at_test_time), fmean(point.trained)], point.mean()
            (line,) = axes.plot(ends, [recall, recall], "-", alpha=0.3)
            axes.plot(ends[1], recall, "o", color=line.get_color(), label=point.title)
            axes.plot(ends[0], recall, "o", color=line.get_color(), markerfacecolor="none")
        for row in COUNTED if name == "languages" else ():
            curve = {count: found[row] for count, found in sorted(by_count.items()) if row in found}
            english = [fmean(recall[NATIVE] for recall in point.recalls[VENDOR]) for point in curve.values()]
            (line,) = axes.plot([*curve], [point.mean() for point in curve.values()], "o-", label=SMALR[row])
            axes.plot([*curve], english, "o--", color=line.get_color(), alpha=0.5)
        if name == "parameters":
            axes.set(xlim=0, xlabel="parameters in millions: trained (full), at test time (hollow)")
        else:
            axes.set(xlim=(0.5, 10.5), xlabel="languages trained on: their mean (solid), English (dashed)")
        axes.set(ylabel="mean recall, unseen vendor, %")
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(folder / f"emoji_smalr_{name}.png", dpi=110)


# ---- The weight of the text-text task relative to the image-text task (Jain et al. 2021, figure 7) ----


@app.command()
def weights(
    output: Output,
    by: Annotated[Literal["weights", "rates"], typer.Option(help="What the ratio is one of.")] = "weights",
    recipe: Annotated[str, typer.Option(help="A recipe with both tasks and validation data.")] = "emoji/mural",
    rows: Annotated[str, typer.Option(help="Ratios, text-text to image-text.")] = "1,0.5,0.1,0.05,0.01",
    seeds: Seeds = "1",
    settings: Changes = None,
) -> None:
    """A recipe of MURAL with several ratios, and the mean recall of each language on its validation data.

    With `--by rates`, every task has an optimizer of its own, as in the paper (section 3.2), and the ratio is that of
    the learning rates: weights would have no effect there. The recipe's rates for parts of the model are then left
    out, since both set the same rates. The paper's figure: `--recipe mural/base --set train.image_text.source=…`.
    """

    def of_ratio(row: str, seed: int) -> list[str]:
        if by == "weights":
            changes = {"task_weights": f"{{image_text: 1.0, text_text: {row}}}", "task_learning_rates": "null"}
        else:
            rate = load_recipe(recipe).training["learning_rate"]
            rates = f"{{image_text: {rate}, text_text: {rate * float(row)}}}"
            changes = {"task_learning_rates": rates, "task_weights": "null", "learning_rate_mapping": "null"}
        return [*(settings or []), *(f"training.{key}={value}" for key, value in changes.items())]

    experiment = Experiment(output, recipe, of_ratio)
    ratios = rows.split(",")
    experiment.train_all(ratios, numbers(seeds))
    [name] = experiment.reports(ratios[0], numbers(seeds))[0]  # the validation data
    languages = list(experiment.reports(ratios[0], numbers(seeds))[0][name])
    columns = [lambda report, tag=tag: report[name][tag]["mean_recall"] for tag in languages]
    found = rows_of(experiment, {row: f"{row} : 1" for row in ratios}, numbers(seeds), columns)
    print(markdown(["text-text : image-text", *languages], [cells for _, cells in found]))


if __name__ == "__main__":
    app()
