"""Learning a language, for `babelens acquire`."""

import json
import shlex
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..configuration.output_lock import locked
from ..trainers.ridge import LanguageResult
from ..workflows.acquiring import Acquisition
from ..workflows.acquisition_advice import Advice, WayCosts, advise
from ..workflows.acquisition_choices import VOCABULARIES, Way
from ..workflows.acquisition_run import AcquisitionRun
from ..workflows.ridge_acquisition import RidgeAcquisition
from ..workflows.student_acquisition import StudentAcquisition
from .console import plain_console


def acquire_language(choices: dict[str, Any], *, way: Way, assemble: bool, resume: bool, as_json: bool) -> None:
    """Trains and saves an adapter or a student, and shows how well it does.

    Args:
        choices: arguments of `Acquisition`: what to learn, and from what.
        way: in which of the two ways.
        assemble: write the whole model with an adapter as well.
        resume: continue a run that was interrupted.
        as_json: print the result as JSON, and everything else on the error stream.
    """
    console = plain_console(stderr=as_json)
    run = Acquisition(**choices) if way == "adapter" else StudentAcquisition(**choices)
    advice = advise([*_compared_with(run, choices), run], needed=run)
    if assemble and isinstance(run, Acquisition):
        run.check_assembly()  # before anything is trained
    _show_samples(run, console)
    _show_advice(advice, run, console)
    folder = None
    with locked(run.output):
        with redirect_stdout(sys.stderr if as_json else sys.stdout):  # the trainer prints its log
            results = run.run(resume=resume)
        if assemble and isinstance(run, Acquisition):
            folder = run.assemble()
        run.save(results, command=shlex.join(["babelens", *sys.argv[1:]]))
    files = {"adapter": str(run.output), "model": folder and str(folder)}
    if way == "student":
        files = {"adapter": None, "model": str(run.output)}
    if as_json:
        typer.echo(json.dumps(files | {"held_out": results, "advice": advice.to_dict()}))
        return
    for language, numbers in ({run.language: results} if way == "adapter" else results).items():
        if numbers:
            texts = "texts" if way == "adapter" else f"texts in {language}"
            console.print(
                f"Of {numbers['pairs']} held-out {texts}, {numbers['r1']:.1f} % find their translation first, "
                f"{numbers['r10']:.1f} % among the first ten."
            )
    for name, path in files.items():
        if path:
            console.print(f"{name.capitalize()}: {path}")


def acquire_solved(choices: dict[str, Any], *, as_json: bool) -> None:
    """Learns languages in closed form, saves the model, and shows how well each is learned.

    Args:
        choices: arguments of `RidgeAcquisition`.
        as_json: print the result as JSON, and everything else on the error stream.
    """
    console = plain_console(stderr=as_json)
    run = RidgeAcquisition(**choices)
    run.load()
    language = run.languages[0]
    title = f"{len(run.pairs[language][0]):,} translations, such as"
    _show_pairs(run.samples(language), (language, run.model.config.native_language), title, console)
    with locked(run.output):
        results = run.run()
        run.save(command=shlex.join(["babelens", *sys.argv[1:]]))
    if as_json:
        held_out = {tag: result.to_dict() for tag, result in results.items()}
        typer.echo(json.dumps({"model": str(run.output), "held_out": held_out}))
        return
    _show_results(results, run, console)


def _show_results(results: Mapping[str, LanguageResult], run: RidgeAcquisition, console: Console) -> None:
    """A table of all languages, what is wrong with some, and what to do next."""
    title = "Share of texts that find their own translation, each solved without it, in percent"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for name in ("language", "sentences", "first", "first ten", "95 % interval", "by chance", "untaught"):
        table.add_column(name, justify="left" if name == "language" else "right")
    for tag, found in results.items():
        numbers = (found.r1, found.r10, found.chance, found.zero_shot)
        first, ten, chance, untaught = (f"{number:.1f}" for number in numbers)
        interval = f"{found.r10_low:.1f} to {found.r10_high:.1f}"
        table.add_row(tag, f"{found.pairs:,}", first, ten, interval, chance, untaught)
    console.print(table)
    if sources := {tag: found.names for tag, found in results.items() if found.names}:
        borrowed = [f"{tag} from {source}" for tag, source in sources.items() if tag.partition("-")[0] != source]
        relatives = f" ({', '.join(borrowed[:8])}{', …' if len(borrowed) > 8 else ''})" if borrowed else ""
        console.print(
            f"{len(sources)} of {len(results)} languages learned from Unicode CLDR's names of emoji too{relatives}; "
            "license: Unicode-3.0."
        )
    for tag, found in results.items():
        if warning := found.warning(tag):
            console.print(f"Warning: {warning}.")
    if len(results) > 1 and run.model.text_model is None:
        console.print(
            "Name the language of each text: without it, all languages share one map, which finds far less where no "
            "text encoder helps."
        )
    console.print(f"Model and card: {run.output}")
    console.print(f'Next: babelens search {run.output} "…" --language {run.languages[0]} --images FOLDER')


def print_advice(choices: dict[str, Any], *, as_json: bool) -> None:
    """Prints which way fits and what each costs, without training.

    Args:
        choices: as in `acquire_language`. A student is looked at if they have its text encoder.
        as_json: print the advice as JSON.
    """
    runs: list[AcquisitionRun] = []
    if "," not in choices["language"]:
        runs.append(Acquisition(**choices))
    if choices["text_encoder"] is not None:
        runs.append(StudentAcquisition(**choices))
    advice = advise(runs)
    if as_json:
        typer.echo(json.dumps({"advice": advice.to_dict()}))
    else:
        _show_advice(advice, runs[-1], plain_console())


def _compared_with(run: AcquisitionRun, choices: dict[str, Any]) -> list[AcquisitionRun]:
    """The acquisition in the other way, if its choices were made."""
    if run.way == "adapter":
        return [StudentAcquisition(**choices)] if run.text_encoder else []
    return [Acquisition(**choices)] if run.given(VOCABULARIES) and len(run.languages) == 1 else []


def _show_samples(run: AcquisitionRun, console: Console) -> None:
    """Some translations, by which a reader sees whether the columns are swapped."""
    title = f"{len(run.pairs):,} translations, such as"
    for language in run.languages:
        _show_pairs(run.samples(language), (language, run.model.config.native_language), title, console)
        title = ""


def _show_pairs(pairs: list[tuple[str, str]], tags: tuple[str, str], title: str, console: Console) -> None:
    table = Table(title=title, box=None)
    for tag in tags:
        table.add_column(tag)
    for pair in pairs:
        table.add_row(*pair)
    console.print(table)


def _show_advice(advice: Advice, run: AcquisitionRun, console: Console) -> None:
    """What each way costs, in a table, and which one fits."""
    table = Table(box=SIMPLE_HEAD, title="What it costs", title_justify="left")
    table.add_column("")
    for way in advice.ways:
        table.add_column(way, justify="right")
    for row in zip(*(_rows(way, costs, run) for way, costs in advice.ways.items()), strict=True):
        table.add_row(row[0][0], *(value for _, value in row))
    console.print(table)
    for way, problem in advice.impossible.items():
        console.print(f"The {way} is not possible: {problem}")
    console.print(f"The {advice.recommended} fits: {advice.reason}.")
    if "student" not in advice.ways and "student" not in advice.impossible:
        console.print("--text-encoder names a multilingual text encoder, with which a student is compared.")


def _rows(way: Way, costs: WayCosts, run: AcquisitionRun) -> list[tuple[str, str]]:
    native = run.native_language or "en"
    is_adapter = way == "adapter"
    about = "" if costs.is_measured else "about "
    once = f"{costs.seconds_once:,.0f} s + " if costs.seconds_once else ""
    time = f"{once}{costs.steps:,} × {about}{costs.seconds_per_step:.2g} s = {costs.minutes:,.0f} min"
    reads_native = not is_adapter and run.native_texts == "student"
    return [
        ("parameters trained", f"{costs.trained_parameters:,}"),
        ("parameters to download beside the base's", f"{costs.added_parameters:,}"),
        (f"texts in {native}", "read by the student" if reads_native else "bitwise as before"),
        ("further languages", "one adapter each" if is_adapter else "those of the text encoder, untrained"),
        ("pieces per word", f"{costs.pieces_per_word:.1f}"),
        ("[UNK] among the pieces", f"{costs.unknown_rate:.1f} %"),
        ("time of training on translations", time),
    ]
