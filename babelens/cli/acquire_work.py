"""Learning a language, for `babelens acquire`."""

import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from accelerate import PartialState
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..configuration.errors import BabelensError
from ..configuration.locks import locked
from ..configuration.redaction import typed_command
from ..processing.processing_ridge import GLOSSARY_FILE
from ..trainers.ridge_results import LanguageResult
from ..workflows.acquiring import Acquisition
from ..workflows.acquisition_choices import Way, WayCosts
from ..workflows.acquisition_recipe import acquisition
from ..workflows.acquisition_run import AcquisitionRun, costs
from ..workflows.ridge_acquisition import RidgeAcquisition
from ..workflows.ridge_trials import Forecast, closed_form_beside, forecast, try_beside
from ..workflows.training import CHECKPOINTS
from .console import next_commands, plain_console, results_table, show_next

_NAMED = 8  # languages


def acquire_language(
    recipe: dict[str, Any], *, output: Path, assemble: bool, resume: bool, trust_remote_code: bool, as_json: bool
) -> None:
    """Trains an adapter or a student, compares it with the closed form, saves the better one, and shows how well both
    do.

    Args:
        recipe: what to learn, from what, and in which of the two ways.
        output: the folder of the result.
        assemble: write the whole model with an adapter as well.
        resume: continue a run that was interrupted.
        trust_remote_code: run code that comes with models.
        as_json: print the result as JSON, and everything else on the error stream.
    """
    console = plain_console(stderr=as_json)
    run = acquisition(recipe, output=output, trust_remote_code=trust_remote_code)
    assert isinstance(run, AcquisitionRun)
    run.load()
    if assemble and isinstance(run, Acquisition):
        run.check_assembly()  # before anything is trained
    cost = costs(run)
    run.fit_into_minutes(cost, resume=resume)
    cost = replace(cost, steps=run.planned_steps)
    _show_samples(run, console)
    _show_costs(cost, run, console)
    command = typed_command("babelens")
    folder, kept = None, "trained"
    with locked(run.output):
        with redirect_stdout(sys.stderr if as_json else sys.stdout):  # the trainer prints its log
            results = run.run(resume=resume)
        trained = {run.language: results} if run.way == "adapter" else results
        trained = {language: numbers for language, numbers in trained.items() if numbers}
        solved = {} if run.keep == "trained" else _closed_form(run, console)
        if solved and _mean(solved) > _mean(trained):
            kept = "closed form"
            run.forget()
            closed = closed_form_beside(run)
            closed.load()
            closed.run()
            closed.save(command)
            shutil.rmtree(run.output / CHECKPOINTS)
        else:
            if assemble and isinstance(run, Acquisition):
                folder = run.assemble()
            run.save(results, command=command)
    files = {"adapter": str(run.output), "model": folder and str(folder)}
    if run.way == "student" or kept != "trained":
        files = {"adapter": None, "model": str(run.output)}
    if as_json:
        told = {"held_out": results, "closed_form": solved, "kept": kept, "costs": cost.to_dict()}
        typer.echo(json.dumps(files | told))
        return
    for title, found in ((f"the {run.way}", trained), ("the closed form", solved)):
        for language, numbers in found.items():
            texts = f"{next(iter(trained.values()))['pairs']} held-out texts in {language}"
            console.print(
                f"Of {texts}, {numbers['r1']:.1f} % find their translation first by {title}, {numbers['r10']:.1f} % "
                "among the first ten."
            )
    if kept != "trained":
        console.print(
            f"The closed form finds more than the {run.way}, and is what was saved. More sentences and more --minutes "
            f"help the {run.way}; --set keep=trained saves it in any case."
        )
    for name, path in files.items():
        if path:
            console.print(f"{name.capitalize()}: {path}")
    if where := files["model"] or files["adapter"]:
        show_next(console, next_commands(Path(where), next(iter(trained), None)))


def _closed_form(run: AcquisitionRun, console: Console) -> dict[str, dict[str, float]]:
    """`try_beside`; empty, with a sentence, where there is no closed form for this base and these sentences."""
    if not PartialState().is_main_process:
        return {}
    try:
        return try_beside(run)
    except BabelensError as error:
        console.print(f"Not compared with the closed form: {error}")
        return {}


def _mean(found: Mapping[str, Mapping[str, float]]) -> float:
    """The mean of `r1` and `r10` over languages. Of easy sentences nearly all are among the first ten, and few of
    hard ones are first."""
    return sum(numbers["r1"] + numbers["r10"] for numbers in found.values()) / max(2 * len(found), 1)


def acquire_solved(recipe: dict[str, Any], *, output: Path, trust_remote_code: bool, as_json: bool) -> None:
    """Learns languages in closed form, saves the model, and shows how well each is learned.

    Args:
        recipe: what to learn, and from what.
        output: the folder of the model.
        trust_remote_code: run code that comes with models.
        as_json: print the result as JSON, and everything else on the error stream.
    """
    console = plain_console(stderr=as_json)
    run = acquisition(recipe, output=output, trust_remote_code=trust_remote_code)
    assert isinstance(run, RidgeAcquisition)
    run.load()
    if run.texts is not None:
        console.print(f"{len(run.native_texts_alone):,} texts in {run.model.config.native_language}")
    else:
        language = run.languages[0]
        title = f"{len(run.pairs[language][0]):,} translations, such as"
        _show_pairs(run.samples(language), (language, run.model.config.native_language), title, console)
    command = typed_command("babelens")
    with locked(run.output):
        results = run.run()
        run.save(command=command)
    if as_json:
        held_out = {tag: result.to_dict() for tag, result in results.items()}
        typer.echo(json.dumps({"model": str(run.output), "held_out": held_out}))
        return
    _show_results(results, run, console)


def _show_results(results: Mapping[str, LanguageResult], run: RidgeAcquisition, console: Console) -> None:
    """A table of all languages, what is wrong with some, and what to do next."""
    title = "Share of texts that find their own translation, each solved without it, in percent"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for name in ("language", "sentences", "first", "first ten", "95 % interval", "chance", "untaught"):
        table.add_column(name, justify="left" if name == "language" else "right", no_wrap=name == "95 % interval")
    for tag, found in results.items():
        first, ten, chance = (f"{number:.1f}" for number in (found.r1, found.r10, found.chance))
        untaught = "–" if found.zero_shot is None else f"{found.zero_shot:.1f}"
        interval = f"{found.r10_low:.1f}–{found.r10_high:.1f}"
        table.add_row(tag, f"{found.pairs:,}", first, ten, interval, chance, untaught)
    console.print(table)
    if run.texts is not None:
        console.print(
            f"These are texts in {run.model.config.native_language}. No other language was read: those that "
            f"{run.text_encoder} reads are expected to work, the better the more of them it has read. A file of "
            "--translations is the next step for a language that matters, and the only one for a language that it "
            "does not read."
        )
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
    counts = {tag: len(glossary.entries) for tag, glossary in run.processor.glossaries.items()}
    if words := sum(counts.values()):
        most = sorted(counts, key=lambda tag: -counts[tag])[:_NAMED]
        named = ", ".join(f"{counts[tag]:,} in {tag}" for tag in most) + ", …" * (len(counts) > _NAMED)
        how = "aligned" if run.dictionary is None else "aligned, or found in the dictionary"
        console.print(
            f"{GLOSSARY_FILE} translates {words:,} words ({named}), as they were {how}. Whoever knows the language "
            "can correct the file, and texts are read as it says."
        )
    elif len(results) > 1 and run.model.text_model is None:
        console.print(
            "Name the language of each text: without it, all languages share one map, which finds far less where no "
            "text encoder helps."
        )
    console.print(f"Model and card: {run.output}")
    if run.teacher is not None:
        console.print(f"It embeds texts, into the space of {run.base}; what made that embeds the rest as before.")
        return
    show_next(console, next_commands(run.output, run.languages[0]))


def print_advice(recipe: dict[str, Any], *, trust_remote_code: bool, as_json: bool) -> None:
    """Prints how far the sentences lead, and more of them would, by the closed form; for another way also what it
    costs. Nothing is written.

    Args:
        recipe: what to learn, from what, and in which way.
        trust_remote_code: run code that comes with models.
        as_json: print JSON.
    """
    console = plain_console(stderr=as_json)
    cost = None
    run = acquisition(recipe, output=Path(), trust_remote_code=trust_remote_code)
    if isinstance(run, RidgeAcquisition):
        closed = run
    else:
        run.load()
        cost = costs(run)
        _show_costs(cost, run, console)
        run.forget()
        closed = closed_form_beside(run)
    closed.load()
    found = forecast(closed)
    if as_json:
        told = {language: each.to_dict() for language, each in found.items()}
        typer.echo(json.dumps({"forecast": told, "costs": cost and cost.to_dict()}))
        return
    for language, each in found.items():
        _show_forecast(language, each, console)
    console.print("Photographs are harder to find than translations of the same collection: measure on your own.")


def _show_forecast(language: str, found: Forecast, console: Console) -> None:
    title = f"{language}: of {found.tested} held-out texts, in percent, find their own among {found.candidates:,}"
    table = results_table("sentences to learn from", "first", "first ten", "", title=title, names=0)
    for note, points in (("measured", found.measured), ("expected", found.expected)):
        for size, numbers in points.items():
            table.add_row(f"{size:,}", f"{numbers['r1']:.1f}", f"{numbers['r10']:.1f}", note)
    console.print(table)
    if found.exponents is not None:
        power = found.exponents["r10"]
        console.print(f"What is not among the first ten falls with the sentences to the power of {-power:.2f}.")


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


def _show_costs(cost: WayCosts, run: AcquisitionRun, console: Console) -> None:
    """What the training costs, in a table."""
    table = results_table("", run.way, title="What it costs")
    for row in _rows(run.way, cost, run):
        table.add_row(*row)
    console.print(table)


def _rows(way: Way, cost: WayCosts, run: AcquisitionRun) -> list[tuple[str, str]]:
    native = run.native_language or "en"
    is_adapter = way == "adapter"
    about = "" if cost.is_measured else "about "
    once = f"{cost.seconds_once:,.0f} s + " if cost.seconds_once else ""
    time = f"{once}{cost.steps:,} × {about}{cost.seconds_per_step:.2g} s = {cost.minutes:,.0f} min"
    reads_native = not is_adapter and run.native_texts == "student"
    return [
        ("parameters trained", f"{cost.trained_parameters:,}"),
        ("parameters to download beside the base's", f"{cost.added_parameters:,}"),
        (f"texts in {native}", "read by the student" if reads_native else "bitwise as before"),
        ("further languages", "one adapter each" if is_adapter else "those of the text encoder, untrained"),
        ("pieces per word", f"{cost.pieces_per_word:.1f}"),
        ("[UNK] among the pieces", f"{cost.unknown_rate:.1f} %"),
        ("time of training on translations", time),
    ]
