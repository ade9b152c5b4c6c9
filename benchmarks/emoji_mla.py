"""MLA's ablations and baselines on the emoji benchmark: every row of recipes/emoji/mla, several seeds, one table.

    babelens train emoji/mla/clip --output runs/mla/clip
    python benchmarks/emoji_mla.py --base runs/mla/clip --output runs/mla

All rows acquire the same twelve languages for the same frozen CLIP from the same data. A run that is there is not
trained again. Rows that begin with the same transfer take it from the row `mla` of their seed.
"""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

# Row, what it is, and the paper's figure: the mean AR of Multi30K (de, fr, cs) and MSCOCO 1K (ja, zh).
ROWS = {
    "transfer": ("NLT mse", (76.3, 74.2, 67.2, 72.1, 75.7)),
    "transfer-nce": ("NLT nce", (63.0, 58.5, 49.6, 57.6, 64.8)),
    "exposure-mse": ("LE mse", (47.2, 47.0, 37.4, 46.3, 54.9)),
    "exposure": ("LE nce", (68.2, 67.7, 58.6, 65.9, 71.7)),
    "transfer-exposure-mse": ("NLT mse, LE mse", (55.0, 51.3, 43.8, 50.9, 57.9)),
    "mla": ("NLT mse, LE nce (MLA)", (78.7, 77.7, 70.8, 74.9, 78.5)),
    "kept": ("NLT mse, LE nce + NLT mse", (78.4, 77.3, 69.9, 74.2, 78.1)),
    "kept-nce": ("NLT mse, LE nce + NLT nce", (78.1, 77.2, 69.5, 73.9, 78.2)),
    "linear": ("MLA, linear acquirers", (78.2, 77.6, 69.3, 74.6, 78.0)),
    "cma": ("CMA", (73.9, 72.8, 67.0, 69.8, 75.1)),
    "mkd": ("MKD", None),
}
_SAME_TRANSFER = ("transfer-exposure-mse", "kept", "kept-nce")
_QUESTIONS = ("unseen_vendor", "unseen_concepts")


def main(
    base: Annotated[Path, typer.Option(help="The English CLIP.")],
    output: Annotated[Path, typer.Option(help="Folder of the runs.")],
    seeds: Annotated[str, typer.Option(help="With commas between.")] = "1,2,3",
    rows: Annotated[str, typer.Option(help="With commas between.")] = ",".join(ROWS),
    only_table: Annotated[bool, typer.Option("--only-table", help="Of what has been trained already.")] = False,
) -> None:
    """Train the rows and print the table."""
    chosen = [(row, int(seed)) for seed in seeds.split(",") for row in sorted(rows.split(","), key=_order)]
    for row, seed in chosen:
        if not only_table and not (_folder(output, row, seed) / "evaluation" / "emoji.json").is_file():
            _train(base, output, row, seed)
    print(table(output, list(dict.fromkeys(row for row, _ in chosen)), [int(seed) for seed in seeds.split(",")]))


def _order(row: str) -> tuple[bool, int]:
    return row != "mla", list(ROWS).index(row)


def _folder(output: Path, row: str, seed: int) -> Path:
    return output / f"{row}-{seed}"


def _train(base: Path, output: Path, row: str, seed: int) -> None:
    folder = _folder(output, row, seed)
    transfer = Path("checkpoints", "transfer", "finished")
    if row in _SAME_TRANSFER and not (folder / transfer).is_dir():
        shutil.copytree(_folder(output, "mla", seed) / transfer, folder / transfer)
    settings = [f"model.from_pretrained={base}", f"training.seed={seed}"]
    options = [argument for setting in settings for argument in ("--set", setting)]
    command = [sys.executable, "-m", "babelens", "train", f"emoji/mla/{row}", "--output", str(folder), "--resume"]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


def table(output: Path, rows: list[str], seeds: list[int]) -> str:
    """Text to image R@10 in per cent, English and the acquired languages' mean: mean ± deviation over seeds."""
    lines = [
        "| row | vendor: English | vendor: acquired | concepts: English | concepts: acquired | paper's AR |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        reports = [_report(_folder(output, row, seed)) for seed in seeds]
        found = [report for report in reports if report is not None]
        if not found:
            continue
        cells = [spread([recalls(report, q)[part] for report in found]) for q in _QUESTIONS for part in (0, 1)]
        title, published = ROWS[row]
        paper = f"{statistics.mean(published):.1f}" if published else "–"
        lines.append(f"| {title} | {' | '.join(cells)} | {paper} |")
    return "\n".join(lines)


def _report(folder: Path) -> dict[str, Any] | None:
    file = folder / "evaluation" / "emoji.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def recalls(report: dict[str, Any], question: str, native: str = "en") -> tuple[float, float]:
    """Recall in the native language, and the mean over all others."""
    by_language = {
        language: scores["t2i_r10"]
        for group in report[question]["groups"].values()
        for language, scores in group["languages"].items()
    }
    return by_language.pop(native), statistics.mean(by_language.values())


def spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


if __name__ == "__main__":
    typer.run(main)
