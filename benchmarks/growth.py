"""How processor time and memory of the commands grow with batches, galleries, languages and corpora.

    python benchmarks/growth.py measure    # all: half an hour
    python benchmarks/growth.py measure --only "train mural" --quick
    python benchmarks/growth.py draw

Each command runs in a process of its own, on one thread, with an empty cache, on tiny random models and synthetic data
(`growth_inputs.py`), with sizes that grow by factors (`growth_commands.py`). The process is a fork of one that has
imported what commands import. Time and memory are fitted as a + b * size ** p, where a is what a command costs at its
start. Memory is what the process and those that it started hold themselves (Linux's `RssAnon`, at its highest); pages
of mapped files, which the system drops when it needs room, do not count. Where the growth is smaller than the noise,
there is no exponent.
"""

import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import typer
from growth_commands import CASES, Case
from growth_inputs import Command, Failed, Inputs, check, forked, run

import babelens

RESULTS = Path("growth.jsonl")
PLOT = Path(__file__).parents[1] / "docs/results/growth.svg"
MEBIBYTE = 2**20
# Growth below these is noise, and so is that of less than a share of what the smallest size takes.
LEAST, SHARE = {"processor": 0.3, "mebibytes": 16.0}, {"processor": 0.3, "mebibytes": 0.03}
ROUNDS, SHORT = 3, 3.0  # a command is measured so often, if it takes fewer seconds; the least counts
EXPONENTS = np.arange(0.05, 3.001, 0.01)

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def measure(
    only: Annotated[list[str] | None, typer.Option(help="Cases whose name begins so; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option(help="Divide all sizes by 4, to see that all of it runs.")] = False,
    results: Annotated[Path, typer.Option(help="The file that results are appended to.")] = RESULTS,
) -> None:
    """Measure commands, and print a row of the table for each."""
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        caches = {"HF_HOME": f"{folder}/cache", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        options = [part for name in only or () for part in ("--only", name)] + ["--quick"] * quick
        command = [sys.executable, __file__, "measure-alone", folder, str(results), *options]
        raise SystemExit(subprocess.run(command, env=os.environ | caches).returncode)


@app.command(hidden=True)
def measure_alone(folder: Path, results: Path, only: list[str] | None = None, quick: bool = False) -> None:
    """Measure in this process, whose caches are in the folder."""
    chosen = [case for case in CASES if only is None or case.name.startswith(tuple(only))]
    if not chosen:
        raise SystemExit(f"no such case; there are: {', '.join(dict.fromkeys(case.name for case in CASES))}")
    for room in ("evaluation", "inference", "workflows"):  # so that no command's time is that of its imports
        package = import_module(f"{babelens.__name__}.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    failed: list[str] = []
    inputs = Inputs(folder)
    for case in chosen:
        try:
            row = measured(case, tuple(size // 4 for size in case.sizes) if quick else case.sizes, inputs)
        except Failed as error:
            failed.append(case.name)
            print(f"{case.name} failed: {error}", flush=True)
            continue
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(table_row(row), flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def measured(case: Case, sizes: tuple[int, ...], inputs: Inputs) -> dict[str, Any]:
    """The processor time, wall time and memory of a case at each size."""
    output, cache = inputs.folder / "output", inputs.folder / "cache"
    points = []
    for size in sizes:
        runs: list[dict[str, float]] = []
        while len(runs) < ROUNDS and (not runs or runs[-1]["wall"] < SHORT):
            remove(cache, *inputs.folder.glob("output*"))
            command = case.command(inputs, size, output)  # writes its inputs
            for prepared in case.before(inputs, size, output):
                run(prepared)
            runs.append(cost(command, inputs.folder / "printed.txt"))
        points.append({"size": size} | {name: min(each[name] for each in runs) for name in runs[0]})
    return {"name": case.name, "grows": case.grows, "points": points}


def remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def cost(command: Command, printed: Path) -> dict[str, float]:
    """What a command takes: seconds of processors and of the clock, with those of its own children, and memory."""
    held, start = 0, time.perf_counter()
    process = forked(command, printed)
    while not (ended := os.wait4(process, os.WNOHANG))[0]:
        held = max(held, _held(process))
        time.sleep(0.01)
    _, status, used = ended
    check(status, command, printed)
    seconds = {"processor": used.ru_utime + used.ru_stime, "wall": time.perf_counter() - start}
    return seconds | {"mebibytes": held / MEBIBYTE}


def _held(pid: int) -> int:
    """The bytes that a process and its descendants hold themselves."""
    try:
        processes = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        return sum(map(_anonymous, processes))
    except psutil.NoSuchProcess:
        return 0


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def fit(sizes: list[int], values: list[float], least: float) -> tuple[float, float] | None:
    """The p and the a >= 0 of the a + b * size ** p that lies nearest to the values, relative to them; None where they
    grow by less than `least`."""
    if values[-1] - values[0] < least:
        return None
    found, ones = [], np.ones(len(sizes))
    for power in EXPONENTS:
        terms = np.stack([ones, (np.array(sizes) / sizes[-1]) ** power], axis=1) / np.array(values)[:, None]
        start, factor = np.linalg.lstsq(terms, ones)[0]
        if start < 0:
            start, factor = 0.0, terms[:, 1].sum() / (terms[:, 1] ** 2).sum()
        error = float(((terms @ [start, factor] - 1) ** 2).sum())
        found.append((error, float(power), float(start)))
    return min(found)[1:]


def fits(row: dict[str, Any]) -> dict[str, tuple[float, float] | None]:
    """The fits of time and memory."""
    sizes = [point["size"] for point in row["points"]]
    found = {}
    for name, least in LEAST.items():
        values = [point[name] for point in row["points"]]
        found[name] = fit(sizes, values, max(least, SHARE[name] * values[0]))
    return found


def case_of(row: dict[str, Any]) -> Case:
    return next(case for case in CASES if (case.name, case.grows) == (row["name"], row["grows"]))


def table_row(row: dict[str, Any]) -> str:
    """A row of the table in the documentation."""
    case = case_of(row)
    first, last = row["points"][0], row["points"][-1]
    fitted = {name: "–" if found is None else f"{found[0]:.2f}" for name, found in fits(row).items()}
    cells = [
        f"`{row['name']}`",
        row["grows"],
        f"{first['size']:,} … {last['size']:,}",
        f"{first['processor']:.1f} … {last['processor']:.1f}",
        fitted["processor"],
        f"{first['mebibytes']:,.0f} … {last['mebibytes']:,.0f}",
        fitted["mebibytes"],
        f"{case.limit.exponent:g}: {case.limit.why}" if case.limit.exponent > 1 else "1",
    ]
    return f"| {' | '.join(cells)} |"


@app.command()
def draw(
    results: Annotated[Path, typer.Option(help="The file with results.")] = RESULTS,
    plot: Annotated[Path, typer.Option(help="Output file of the plot.")] = PLOT,
) -> None:
    """Print the table of all results, and draw what is above the smallest size against the size."""
    from matplotlib import pyplot

    found = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    newest = {(row["name"], row["grows"]): row for row in found}
    rows = [newest[key] for case in CASES if (key := (case.name, case.grows)) in newest]
    print("| command | grows | sizes | processor s | exponent | MiB | exponent | allowed |")
    print(f"|{8 * '---|'}")
    for row in rows:
        print(table_row(row))
    panels = {"processor": "processor time above the start", "mebibytes": "memory above the start"}
    colors = {grows: f"C{index}" for index, grows in enumerate(dict.fromkeys(row["grows"] for row in rows))}
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(11, 6), layout="constrained")
    for axes, (name, title) in zip(all_axes, panels.items(), strict=True):
        for row in rows:
            if (found := fits(row)[name]) is None:
                continue
            last = row["points"][-1]
            shares = [
                (point["size"] / last["size"], (point[name] - found[1]) / (last[name] - found[1]))
                for point in row["points"]
            ]
            style = "--" if case_of(row).limit.exponent > 1 else "-"
            axes.plot(*zip(*shares, strict=True), style, marker=".", linewidth=1, color=colors[row["grows"]])
        for power in (1, 2):
            axes.axline((1, 1), slope=power, color="black", linestyle=":", linewidth=1)
        axes.set(xscale="log", yscale="log", title=title, ylim=(1e-3, 1.5))
        axes.set(xlabel="size, as a share of the largest", ylabel="as a share of that at the largest size")
        axes.grid(alpha=0.3)
    all_axes[0].legend([pyplot.Line2D([], [], color=color) for color in colors.values()], list(colors))
    figure.savefig(plot)
    print(f"\nwrote {plot.name}")


if __name__ == "__main__":
    app()
