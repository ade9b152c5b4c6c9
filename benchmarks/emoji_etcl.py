"""ETCL's comparisons on the emoji benchmark (Lee et al. 2022, tables 5 to 7 and 13): the rows of recipes/emoji/etcl,
several seeds, one table.

    python benchmarks/emoji_etcl.py --output runs/etcl
    python benchmarks/emoji_etcl.py --output runs/etcl-fixed --set model.overrides.text_text_temperature=0.01

The second one fixes the temperature of translations, as MURAL does, where the recipes learn one for everything, as the
paper does. All rows of a seed go on from that seed's `mural`, with as many steps. A run that is there is not trained
again.
"""

import statistics
from pathlib import Path
from typing import Annotated

import typer
from emoji_rows import Experiment, scores, spread

ROWS = {
    "mural": "MURAL",
    "plus-ja": "MURAL + ja",
    "plus-cs": "MURAL + cs",
    "plus-de": "MURAL + de",
    "6lang": "MURAL + 6lang",
    "etcl": "MURAL + ETCL",
}
IMAGED = ("en", "de", "fr", "cs", "zh", "ja")
# Languages that never had an image, by the imaged languages that they are related to.
RELATED = {
    "de": ("nl", "sv"),
    "fr": ("es", "it", "pt"),
    "cs": ("pl", "ru", "sk", "uk"),
    "ja": ("ko",),
    "none": ("hi", "id", "sw", "tr"),
}
UNIMAGED = tuple(language for languages in RELATED.values() for language in languages)
_GROUPS = {"en": ("en",), "other five": IMAGED[1:], "unimaged": UNIMAGED} | {
    f"like {language}" if language != "none" else "others": members for language, members in RELATED.items()
}


def main(
    output: Annotated[Path, typer.Option(help="Output folder of the runs.")],
    seeds: Annotated[str, typer.Option(help="Comma-separated list.")] = "1,2,3",
    rows: Annotated[str, typer.Option(help="Comma-separated list.")] = ",".join(ROWS),
    score: Annotated[str, typer.Option(help="Such as `t2i_r10` or `mean_recall`.")] = "t2i_r10",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Of every run, such as `training.max_steps=10`, to try the script."),
    ] = None,
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Do not train; make the table of the finished runs.")
    ] = False,
) -> None:
    """Train the rows and print the tables."""
    experiment = Experiment("emoji/etcl", output, settings or [])
    numbers, chosen = [int(seed) for seed in seeds.split(",")], sorted(rows.split(","), key=list(ROWS).index)
    for seed in [] if only_table else numbers:
        for row in chosen:
            if row != "mural":
                experiment.give_stage(experiment.folder("mural", seed), row, seed, "mural")
            experiment.train(row, seed)
    for question in ("unseen_vendor", "unseen_concepts"):
        print(f"{question}, {score}\n{table(experiment, chosen, numbers, question, score)}\n")


def table(experiment: Experiment, rows: list[str], seeds: list[int], question: str, score: str) -> str:
    """A score in per cent, the mean of each group of languages: mean ± deviation over seeds."""
    lines = ["| row | " + " | ".join(_GROUPS) + " |", "|---|" + "--:|" * len(_GROUPS)]
    for row in rows:
        found = [scores(report, question, score) for report in experiment.reports(row, seeds)]
        if found:
            cells = [
                spread([statistics.mean(recalls[language] for language in members) for recalls in found])
                for members in _GROUPS.values()
            ]
            lines.append(f"| {ROWS[row]} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
