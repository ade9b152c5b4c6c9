"""The comparisons of the papers on the emoji benchmark: the rows of a folder of recipes, several seeds, one table.

    babelens train emoji/mla/clip --output runs/clip
    python benchmarks/emoji.py mla --base runs/clip --output runs/mla
    python benchmarks/emoji.py mla --base runs/clip --output runs/mla-one-language --one-language
    python benchmarks/emoji.py etcl --output runs/etcl
    python benchmarks/emoji.py smalr --backbone runs/clip --output runs/smalr --counts 1,2,4,7,10
    babelens train emoji/rc3/backbone --output runs/backbone
    python benchmarks/emoji.py rc3 --backbone runs/backbone --output runs/rc3

Numbers are in percent, mean ± deviation over the seeds; rows that begin with the same stage take it from the same run.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import torch
import typer
from rows import Changes, Experiment, Output, Rows, Seeds, chosen, markdown, numbers, spread
from transformers import AutoConfig, AutoModel

from babelens import Embedder
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES
from babelens.evaluation.consistency import emoji_consistency
from babelens.evaluation.emoji import GROUP_TITLES
from babelens.evaluation.results import emoji_dataset
from babelens.trainers.checkpoints import newest_checkpoint

Report = dict[str, Any]
Column = Callable[[Report], float]

VENDOR, CONCEPTS = QUESTIONS = ("unseen_vendor", "unseen_concepts")
NATIVE = "en"

app = typer.Typer(pretty_exceptions_enable=False)


def by_language(report: Report, question: str, score: str = "t2i_r10") -> dict[str, float]:
    groups = [emoji_dataset(question, group) for group in GROUP_TITLES]
    return {language: found[score] for name in groups for language, found in report.get(name, {}).items()}


def mean_of(question: str, languages: Collection[str], score: str = "t2i_r10") -> Column:
    return lambda report: fmean(by_language(report, question, score)[language] for language in languages)


def rows_of(experiment: Experiment, titles: dict[str, str], seeds: list[int], columns: Iterable[Column]) -> list[Any]:
    columns = list(columns)
    found = {row: reports for row in titles if (reports := experiment.reports(row, seeds))}
    return [
        (row, [titles[row], *(spread([column(report) for report in reports]) for column in columns)])
        for row, reports in found.items()
    ]


# ---- MLA (Zhang et al. 2022, table 3) ----

# Row, title, and the paper's figure: the mean AR of Multi30K (de, fr, cs) and MSCOCO 1K (ja, zh).
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
) -> None:
    """MLA's ablations and baselines: twelve languages for the same frozen CLIP, from the same data."""
    settings = [f"model.from_pretrained={base}", f"training.mix_languages={str(not one_language).lower()}"]
    experiment = Experiment(output, "emoji/mla/mla:{}", settings)
    shared = dict.fromkeys(("transfer-exposure-mse", "kept", "kept-nce"), ("mla", "transfer"))
    names = chosen(rows, MLA)
    experiment.train_all(names, numbers(seeds), shared)
    print(mla_table(experiment, names, numbers(seeds)))


def mla_table(experiment: Experiment, rows: list[str], seeds: list[int]) -> str:
    def acquired(question: str) -> Column:
        return lambda report: fmean(r for tag, r in by_language(report, question).items() if tag != NATIVE)

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
) -> None:
    """ETCL's comparisons: all rows of a seed go on from its `mural`, with as many steps.

    `--set model.overrides.text_text_temperature=0.01` fixes the temperature of translations, as MURAL does, where the
    recipes learn one for everything, as the paper does.
    """
    experiment = Experiment(output, "emoji/etcl/etcl:{}", settings or [])
    names = chosen(rows, ETCL)
    shared = {row: ("mural", "mural") for row in ETCL if row != "mural"}
    experiment.train_all(names, numbers(seeds), shared)
    for question in QUESTIONS:
        print(f"{question}, {score}\n{etcl_table(experiment, names, numbers(seeds), question, score)}\n")


def etcl_table(experiment: Experiment, rows: list[str], seeds: list[int], question: str, score: str) -> str:
    columns = [mean_of(question, languages, score) for languages in GROUPS.values()]
    found = rows_of(experiment, {row: ETCL[row] for row in rows}, seeds, columns)
    return markdown(["row", *GROUPS], [cells for _, cells in found])


# ---- SMALR (Burns et al. 2020, tables 1 and 2, figures 1b and 3) ----

SMALR = {"smalr": "SMALR", "hem": "HEM", "la": "LA", "mule": "MULE", "par-embn": "PAR-EmbN", "liwe": "S-LIWE"}
CONSISTENCY = {"clc_a": "SMALR-CLC-A", "clc_c": "SMALR-CLC-C"}
COUNTED = ("smalr", "mule", "liwe")  # the rows of figure 1b


@dataclass(frozen=True)
class Point:
    title: str
    recalls: dict[str, list[dict[str, float]]]
    trained: list[float]
    used: list[float]  # at test time

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
) -> None:
    """SMALR's family and LIWE, on the same frozen CLIP's features of the same images.

    CLC-A and CLC-C are computed from `smalr`; CLC-C is fitted on the validation split with English queries, and the
    translations are Unicode's own names, as good as translations can be: with CLC, the names of an emoji in all
    languages ask together, so that every language finds the same.
    """
    names, of_seeds = chosen(rows, SMALR), numbers(seeds)
    found: dict[int, dict[str, Point]] = {}
    for count in sorted({*numbers(counts), len(SMALR_LANGUAGES)}, reverse=True):
        experiment = smalr_experiment(output, backbone, count)
        own = names if count == len(SMALR_LANGUAGES) else [row for row in names if row in COUNTED]
        experiment.train_all(own, of_seeds, dict.fromkeys(("hem", "la"), ("smalr", "latent")))
        found[count] = {row: point for row in own if (point := smalr_point(experiment, row, of_seeds))}
    shown = list(found[len(SMALR_LANGUAGES)].values())
    if base := found[len(SMALR_LANGUAGES)].get("smalr"):
        runs = smalr_experiment(output, backbone, len(SMALR_LANGUAGES))
        shown += [consistent(runs, of_seeds, base, aggregation) for aggregation in CONSISTENCY]
    print(smalr_table(shown))
    if len(found) > 1:
        print(f"\n{smalr_counts_table(found)}")


def smalr_experiment(output: Path, backbone: Path, count: int) -> Experiment:
    if count == len(SMALR_LANGUAGES):
        return Experiment(output, "emoji/smalr/smalr:{}", [f"backbone={backbone}"])
    languages = json.dumps(SMALR_LANGUAGES[:count])

    def settings(row: str, seed: int) -> list[str]:
        tasks = ["image_text"] if row == "liwe" else ["image_text", "text_text"]
        return [f"backbone={backbone}", *(f"train.{task}.languages={languages}" for task in tasks)]

    return Experiment(output / f"{count}-languages", "emoji/smalr/smalr:{}", settings)


def smalr_point(experiment: Experiment, row: str, seeds: list[int]) -> Point | None:
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
    images = {question: emoji_dataset(question, "image") for question in QUESTIONS}  # languages with images
    reports = [{question: report[name] for question, name in images.items()} for report in found.values()]
    return Point(SMALR[row], mean_recalls(reports), trained, used)


def mean_recalls(reports: list[dict[str, dict[str, dict[str, float]]]]) -> dict[str, list[dict[str, float]]]:
    return {
        question: [{tag: each["mean_recall"] for tag, each in report[question].items()} for report in reports]
        for question in QUESTIONS
    }


def consistent(experiment: Experiment, seeds: list[int], base: Point, aggregation: str) -> Point:
    """CLC on top of the runs of SMALR; its results are kept in `consistency.json`."""
    found = []
    for folder in [experiment.folder("smalr", seed) for seed in seeds if experiment.report("smalr", seed)]:
        file = folder / "consistency.json"
        if not file.is_file():
            measured = emoji_consistency(Embedder.from_pretrained(folder), SMALR_LANGUAGES)
            file.write_text(json.dumps(measured, indent=1), encoding="utf-8")
        found.append(json.loads(file.read_text(encoding="utf-8"))[aggregation])
    added = [run["parameters"] / 1e6 for run in found]
    trained, used = ([n + own for n, own in zip(all_, added, strict=True)] for all_ in (base.trained, base.used))
    return Point(CONSISTENCY[aggregation], mean_recalls([run["recalls"] for run in found]), trained, used)


def smalr_table(points: list[Point]) -> str:
    """Mean recall and millions of parameters; the seeds differ in how many latent tokens are in use."""
    lines = []
    for point in points:
        recalls = [spread([fmean(recall.values()) for recall in point.recalls[question]]) for question in QUESTIONS]
        lines.append([point.title, *recalls, f"{fmean(point.trained):.2f}", f"{fmean(point.used):.2f}"])
    return markdown(["row", "vendor", "concepts", "trained, M", "at test time, M"], lines)


def smalr_counts_table(by_count: dict[int, dict[str, Point]]) -> str:
    """Mean recall on the unseen vendor by the number of training languages: their mean / English (figure 1b)."""
    counts, lines = sorted(by_count), []
    for row in COUNTED:
        points = [by_count[count].get(row) for count in counts]
        english = [point and fmean(recall[NATIVE] for recall in point.recalls[VENDOR]) for point in points]
        cells = [f"{p.mean():.1f} / {e:.1f}" if p else "–" for p, e in zip(points, english, strict=True)]
        lines.append([SMALR[row], *cells])
    return markdown(["languages", *map(str, counts)], lines)


# ---- RC3 (Zhou et al. 2023, tables 1, 2 and 4) ----

# Task -> its columns, each the mean of these metrics.
TASKS: dict[str, dict[str, list[str]]] = {
    "entailment": {"entailment": ["accuracy"]},
    "vqa": {"questions": ["accuracy"]},
    "itr": {"R@1": ["t2i_r1", "i2t_r1"], "R@10": ["t2i_r10", "i2t_r10"]},
}
# Row -> what it is, its pre-training, what it is fine-tuned and tested with, and the paper's figures (table 4, for
# patches and both tables 1 and 2): accuracy on XVNLI and xGQA and recall at 1 of retrieval, in English / the mean of
# the other languages (fr; de, id, zh; de, ja, zh).
PAPER = ("paper: XVNLI", "paper: xGQA", "paper: ITR R@1")
RC3 = {
    "full": ("full", "pretrain", "regions", ("77.9 / 71.7", "54.1 / 35.2", "41.1 / 33.9")),
    "no-kl": ("w/o KL", "no-kl", "regions", ("76.3 / 70.7", "53.4 / 33.7", "40.6 / 33.0")),
    "no-rxvtcl": ("w/o R-XVtCL", "no-rxvtcl", "regions", ("74.3 / 70.3", "52.6 / 35.6", "40.8 / 33.3")),
    "no-contrast": ("w/o R-XVtCL & XTCL", "no-contrast", "regions", ("76.2 / 70.5", "52.4 / 28.1", "39.2 / 32.8")),
    "patches": ("full, patches", "pretrain", "patches", ("71.2 / 64.4", "41.4 / 24.3", "–")),
    "both": ("full, regions and patches", "pretrain", "both", ("78.4 / 72.4", "55.9 / 38.4", "41.3 / 34.2")),
}


@app.command()
def rc3(
    output: Output,
    backbone: Annotated[Path, typer.Option(help="Its features are an image's regions.")] = Path("runs/backbone"),
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    steps: Annotated[int | None, typer.Option(help="Pre-training steps; default: the recipe's.")] = None,
    settings: Changes = None,
) -> None:
    """RC3's ablations: pre-trained in seven languages, fine-tuned on each task in English alone.

    As in table 4, the ablations and the full pre-training that they are compared with are fine-tuned on regions; the
    last two rows are the full pre-training, fine-tuned on patches and on both, as in tables 1 and 2.
    """
    names, given = chosen(rows, RC3), [f"backbone={backbone}", *(settings or [])]
    more = [] if steps is None else [f"training.max_steps={steps}"]
    pretraining = Experiment(output / "pretrain", "emoji/rc3/pretrain:{}", [*given, *more])

    def start(row: str, seed: int) -> list[str]:
        _, trained, visual, _ = RC3[row]
        learned = f"model.from_pretrained={pretraining.folder(trained, seed)}"
        return [*given, learned, f"model.overrides.visual={visual}"]

    recipes = {task: "emoji/rc3/entailment" + f":{task}" * (task != "entailment") for task in TASKS}
    fine_tuning = {task: Experiment(output / task, recipe, start) for task, recipe in recipes.items()}
    for seed in numbers(seeds):
        for row in names:
            pretraining.train(RC3[row][1], seed)
            for experiment in fine_tuning.values():
                experiment.train(row, seed)
    print(rc3_table(pretraining, fine_tuning, names, numbers(seeds)))


def rc3_table(pretraining: Experiment, fine_tuning: dict[str, Experiment], rows: list[str], seeds: list[int]) -> str:
    """For each test set, English / the mean of the other languages in percent: mean ± deviation over seeds."""
    reports = {row: {task: each.reports(row, seeds) for task, each in fine_tuning.items()} for row in rows}
    of_rows = [found for by_task in reports.values() for found in by_task.values()]
    tables = []
    for test in dict.fromkeys(test for found in of_rows for report in found for test in report):
        lines = []
        for row, by_task in reports.items():
            title, trained, _, paper = RC3[row]
            cells = [
                native_and_others([report[test] for report in found if test in report], metrics)
                for task, found in by_task.items()
                for metrics in TASKS[task].values()
            ]
            if any(by_task.values()):
                lines.append([title, spread_of(matching_accuracies(pretraining, trained, seeds)), *cells, *paper])
        headings = [heading for columns in TASKS.values() for heading in columns]
        body = markdown(["row", "ITM in pre-training", *headings, *PAPER], lines)
        tables.append(f"{test}, English / other languages\n\n{body}")
    return "\n\n".join(tables)


def native_and_others(found: list[dict[str, dict[str, float]]], metrics: list[str]) -> str:
    scores = [{tag: fmean(each[name] for name in metrics) for tag, each in results.items()} for results in found]
    others = [fmean(score for tag, score in each.items() if tag != NATIVE) for each in scores]
    return f"{spread_of([each[NATIVE] for each in scores])} / {spread_of(others)}"


def matching_accuracies(pretraining: Experiment, row: str, seeds: list[int]) -> list[float]:
    """Image-text matching in percent, on the held-out vendor's images, at the end of each run."""
    found = []
    for seed in seeds:
        if checkpoint := newest_checkpoint(pretraining.folder(row, seed) / "checkpoints"):
            history = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
            measured = [entry["eval_itm_accuracy"] for entry in history if "eval_itm_accuracy" in entry]
            found += [100 * value for value in measured[-1:]]
    return found


def spread_of(values: list[float]) -> str:
    return spread(values) if values else "–"


if __name__ == "__main__":
    app()
