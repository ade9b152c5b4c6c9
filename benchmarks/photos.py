"""Photographs: the methods side by side, and the losses, with the same frozen towers, the same data and several seeds.

    python benchmarks/photos.py methods --photos TRAIN --validation VALIDATION --translations TRANSLATIONS \\
        --image google/efficientnet-b0 --text intfloat/multilingual-e5-small \\
        --english-text sentence-transformers/all-MiniLM-L6-v2
    python benchmarks/photos.py losses --photos TRAIN --validation VALIDATION --image google/efficientnet-b0 \\
        --text sentence-transformers/all-MiniLM-L6-v2

TRAIN and VALIDATION are for `load_captions`, TRANSLATIONS for `load_translations`. Finished runs are not repeated.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer
from rows import Experiment, Output, Rows, Seeds, chosen, markdown, numbers, spread
from transformers import AutoModel

from babelens import Embedder
from babelens.data import load_captions
from babelens.evaluation import evaluate_retrieval
from babelens.evaluation.ranking import embedding_ranks, percent_within
from babelens.evaluation.results import RESULTS
from babelens.inference.embedder import first_dimensions
from babelens.trainers.tower_training import set_trained_towers
from babelens.training.schema import load_recipe

METRIC = "t2i_r10"  # a text finds its image among the first ten, in percent
NATIVE = "en"
METHODS = {
    "locked": "`locked`: English captions",
    "mural": "`mural`: and translations",
    "etcl": "`etcl`: and captions of the other languages, in triplets",
    "smalr": "`smalr`: captions of the trained languages",
    "mla/clip": "`mla/clip`: English captions; the base of the next two",
    "mla/mla": "`mla/mla`: translations, captions of the other languages",
    "mla/student": "`mla/student`: the same",
    "rc3/pretrain": "`rc3/pretrain`: translations, captions of the trained languages; the base of the next",
    "rc3/itr": "`rc3/itr`, which reads every pair: captions of the trained languages",
}
COSTS = "cost.json"  # of a run, in the folder of its results

app = typer.Typer(pretty_exceptions_enable=False)
Photos = Annotated[str, typer.Option(help="Captioned images to train on.")]
Validation = Annotated[str, typer.Option(help="Others, to search.")]
ImageTower = Annotated[str, typer.Option(help="The image tower.")]
TextTower = Annotated[str, typer.Option(help="The text tower.")]


# ---- The methods: costs and recalls ----


@dataclass(frozen=True)
class Measured(Experiment):
    def run(self, command: list[str], output: Path) -> None:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
        per_gigabyte = 2**30 if sys.platform == "darwin" else 2**20
        costs = {"minutes": (usage.ru_utime + usage.ru_stime) / 60, "gigabytes": usage.ru_maxrss / per_gigabyte}
        (output / COSTS).write_text(json.dumps(costs))

    def report(self, row: str, seed: int) -> dict[str, Any] | None:
        report = super().report(row, seed)
        return report and next(iter(report.values()))

    def most(self, row: str, seeds: list[int], cost: str) -> float:
        files = [self.folder(row, seed) / COSTS for seed in seeds]
        return max((json.loads(file.read_text())[cost] for file in files if file.is_file()), default=float("nan"))

    def trained_parameters(self, row: str, seed: int) -> int:
        model = AutoModel.from_pretrained(self.folder(row, seed))
        towers = load_recipe(self.recipe_of(row)).all_stages[-1].training.get("towers")
        set_trained_towers(model, towers)
        return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


@app.command()
def methods(
    photos: Photos,
    validation: Validation,
    translations: Annotated[str, typer.Option(help="Sentences in English and other languages.")],
    image: ImageTower,
    text: TextTower,
    english_text: Annotated[str, typer.Option(help="The text tower of `mla`.")],
    translated: Annotated[str, typer.Option(help="Languages with translations; others are not trained on.")] = "de,fr",
    rows: Rows = "",
    seeds: Seeds = "1,2,3",
    output: Output = Path("runs/photos"),
) -> None:
    """What each method costs, and what it finds in the language of the captions, in those with translations, and in
    those without any data."""
    languages = translated.split(",")
    pairs = [[NATIVE, tag] for tag in languages]
    captions = {"train.image_text.source": photos}
    to_translate = {"train.text_text.source": translations, "train.text_text.pairs": pairs}

    def in_every_language(source: str, *parts: str) -> dict[str, Any]:
        given = {"source": source, "languages": [NATIVE, *languages]}
        return {f"{part}.{key}": value for part in parts for key, value in given.items()}

    def settings(row: str, seed: int) -> list[str]:
        towers = {"model.image": image, "model.text": english_text if row == "mla/clip" else text}
        learner = {
            "model.from_pretrained": experiment.folder("mla/clip", seed),
            "model.overrides.languages": languages,
            "train.text_text.source": translations,
            "train.text_text.pairs": [[tag, NATIVE] for tag in languages],
            **captions,
            "train.image_text.languages": languages,
        }
        of_rows: dict[str, dict[str, Any]] = {
            "locked": towers | captions,
            "mural": towers | captions | to_translate,
            "etcl": towers | captions | to_translate | {"train.triplet.source": photos, "train.triplet.pairs": pairs},
            "smalr": {"backbone": image, **in_every_language(photos, "train.text_text", "train.image_text")},
            "mla/clip": towers | captions,
            "mla/mla": learner | {"multilingual_tokenizer.from_pretrained": text},
            "mla/student": learner | {"text_model.from_pretrained": text},
            "rc3/pretrain": {
                "backbone": image,
                "model.overrides.languages": [NATIVE, *languages],
                **in_every_language(translations, "train.parallel"),
                **in_every_language(photos, "train.strict", "train.weak"),
            },
            "rc3/itr": {
                "backbone": image,
                "model.from_pretrained": experiment.folder("rc3/pretrain", seed),
                **in_every_language(photos, "train.photos"),
                **in_every_language(validation, "test.photos"),
            },
        }
        given = of_rows[row] | ({} if row.startswith("rc3") else {"validation.source": validation})
        return [f"{name}={value}" for name, value in given.items()]

    experiment = Measured(output, "photos/{}", settings)
    for seed in numbers(seeds):
        for row in chosen(rows, METHODS):
            experiment.train(row, seed)
            print(methods_table(experiment, chosen(rows, METHODS), numbers(seeds), languages), flush=True)
    print(f"{os.cpu_count()} cores, {sys.version.split()[0]}", subprocess.getoutput("lscpu | grep 'Model name'"))


def methods_table(experiment: Measured, rows: list[str], seeds: list[int], translated: list[str]) -> str:
    """A row for each method: its cost, and the mean recall and its deviation over the seeds in each group of
    languages. Minutes are processor time of the slowest seed, whose features were not cached yet."""
    reports = {row: found for row in rows if (found := experiment.reports(row, seeds))}
    measured = dict.fromkeys(tag for found in reports.values() for tag in found[0])
    others = [tag for tag in measured if tag not in (NATIVE, *translated)]
    groups = {NATIVE: [NATIVE], ", ".join(translated): translated}
    groups |= {f"{', '.join(others)}: no data": others} if others else {}
    lines = []
    for row, found in reports.items():
        trained = experiment.trained_parameters(row, next(seed for seed in seeds if experiment.report(row, seed)))
        line = [METHODS[row], f"{trained / 1e6:.2f} M", f"{experiment.most(row, seeds, 'minutes'):.1f}"]
        line.append(f"{experiment.most(row, seeds, 'gigabytes'):.1f} GB")
        for tags in groups.values():
            reads = all(tag in report for report in found for tag in tags)
            means = [fmean(report[tag][METRIC] for tag in tags) for report in found] if reads else []
            line.append(spread(means) if reads else "cannot read")
        lines.append(line)
    return markdown(["", "trained", "minutes", "memory", *groups], lines)


# ---- The losses at every width of the embeddings ----

WIDTHS = (512, 256, 128, 64, 32)
# The title of each row, and its changes to the recipe.
LOSSES = {
    "softmax": ("contrastive softmax", []),
    "matryoshka": (
        "softmax at all these widths (Matryoshka)",
        [f"model.overrides.matryoshka_dims={json.dumps(WIDTHS[1:])}"],
    ),
}


@app.command()
def losses(
    photos: Photos,
    validation: Validation,
    image: ImageTower,
    text: TextTower,
    steps: Annotated[int, typer.Option(help="A tenth of them warms up.")] = 400,
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    output: Output = Path("runs/photo-losses"),
) -> None:
    """Text -> image R@10 in English of `photos/mla/clip` with each loss. No setting was chosen for a loss: the rates
    are those that the recipe has for the softmax."""
    given = {
        "model.image": image,
        "model.text": text,
        "train.image_text.source": photos,
        "training.max_steps": steps,
        "training.warmup_steps": steps // 10,
    }
    shared = [f"{key}={value}" for key, value in given.items()]
    experiment = Experiment(output, "photos/mla/clip", lambda row, _: [*shared, *LOSSES[row][1]])
    names = chosen(rows, LOSSES)
    experiment.train_all(names, numbers(seeds))
    lines = []
    for row in names:
        runs = [experiment.folder(row, seed) for seed in numbers(seeds)]
        found = [recall_by_width(run, validation) for run in runs if (run / RESULTS).is_file()]
        if found:
            lines.append([LOSSES[row][0], *(spread([each[str(width)] for each in found]) for width in WIDTHS)])
    print(markdown(["", *map(str, WIDTHS)], lines))


def recall_by_width(run: Path, validation: str) -> dict[str, float]:
    file = run / "widths.json"
    if not file.is_file():
        embeddings: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] = {}
        evaluate_retrieval(Embedder.from_pretrained(run), load_captions(validation), [NATIVE], embeddings=embeddings)
        texts, images, right = embeddings[NATIVE]
        results = {}
        for width in WIDTHS:
            ranks = embedding_ranks(first_dimensions(images, width), first_dimensions(texts, width), right)
            results[width] = percent_within(ranks.text_to_image, 10)
        file.write_text(json.dumps(results))
    return json.loads(file.read_text())


if __name__ == "__main__":
    app()
