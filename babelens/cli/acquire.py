"""`babelens acquire`: teaches a model more languages."""

import csv
import gzip
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model_folders import check_free
from ..utils.errors import LanguageTagError, did_you_mean, suggestion
from ..utils.language_matching import counts_as
from ..utils.languages import normalize_language, normalize_languages
from ..utils.redaction import typed_command
from .common import (
    AsJson,
    TrustRemoteCode,
    begin_work,
    check_model,
    check_source,
    check_tags,
    plain_console,
    results_table,
    show_next,
    split_tags,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ..acquire import Acquisition

_NAMED = 8  # largest number of languages in a sentence
_FEW = 300  # with fewer sentences, the results are not reliable
_OTHER_TESTS = {
    "captions": "learned from captions, and the test is how often a caption finds its own photograph",
    "words": "learned from a dictionary, and the test is how often a list of words finds its translation when "
    "every fifth word of the dictionary is left out",
}


def acquire(
    base: Annotated[
        str,
        typer.Option(
            callback=check_model,
            help="A model of transformers (CLIP-like), babelens or sentence-transformers, or vectors (`.parquet`).",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option(help="The folder for the model.", show_default=False)],
    language: Annotated[
        str | None, typer.Option(callback=check_tags, help="The language, such as `uk`; several: `uk,pl`; or `all`.")
    ] = None,
    translations: Annotated[
        str | None,
        typer.Option(
            callback=check_source,
            help="Sentences with their translations: `.tsv` (`en⇥uk`), `.jsonl`, OPUS's `.txt.zip`, a Hub data set.",
        ),
    ] = None,
    dictionary: Annotated[
        str | None, typer.Option(callback=check_source, help="Words and their translations, as for --translations.")
    ] = None,
    captions: Annotated[
        str | None, typer.Option(callback=check_source, help="Photographs with captions in the language.")
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(callback=check_source, help="Instead: English sentences (`.txt`), for --text-encoder."),
    ] = None,
    text_encoder: Annotated[
        str | None, typer.Option(callback=check_model, help="A multilingual text encoder, such as E5.")
    ] = None,
    text_prompt: Annotated[str | None, typer.Option(help="That encoder's prompt, such as `query: `.")] = None,
    native_language: Annotated[
        str | None,
        typer.Option(help="The language that BASE reads.", show_default="en, or as BASE states", callback=check_tags),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model more languages in seconds, from translations, a dictionary or captioned photographs.

    `babelens acquire --base openai/clip-vit-base-patch32 --language uk --translations pairs.tsv --output clip-uk`

    A thousand sentences are enough; so are a dictionary of a few thousand words, or a few thousand captioned
    photographs. OUTPUT is a complete model, and can be the --base for the next language; embeddings in all other
    languages stay bitwise the same. To train on more data: `train mla/adapter`, `train mla/student`.
    """
    if texts is not None and (language or translations or captions):
        raise typer.BadParameter(
            "the text encoder determines the languages: leave out --language, --translations and --captions",
            param_hint="--texts",
        )
    if texts is None and not (language and (translations or dictionary or captions)):
        raise typer.BadParameter(
            "name the language, and its translations, dictionary or captions; or --texts",
            param_hint="--language, --translations",
        )
    check_free(output)
    sources: Any = translations or ""
    if language and language != "all":
        sources = dict.fromkeys(normalize_languages(split_tags(language)), translations or "")
        for table in (translations, dictionary if len(sources) == 1 else None):
            _check_columns(table or "", list(sources), native_language or "en")
    begin_work()
    from ..acquire import Acquisition
    from ..utils.files import ensure_parents

    console = plain_console(stderr=as_json)
    given = {"texts": texts, "dictionary": dictionary, "captions": captions, "text_encoder": text_encoder}
    given |= {"text_prompt": text_prompt, "native_language": native_language}
    choices: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with ensure_parents(output):
        taught = Acquisition(base, sources, trust_remote_code=trust_remote_code, **choices)
        taught.load()
        _show_sources(taught, console)
        taught.learn()
        taught.save(output, command=typed_command("babelens"))
    if as_json:
        held_out = {tag: asdict(result) for tag, result in taught.results.items()}
        typer.echo(json.dumps({"model": str(output), "held_out": held_out}))
        return
    show_results(taught, output, console)


def _check_columns(source: str, languages: Sequence[str], native: str) -> None:
    """Refuses a table with a column in the native language and others in languages, but none in a language asked."""
    present = []
    for name in _column_names(Path(source)):
        try:
            present.append(normalize_language(re.sub(r"(?i)^(text|captions?)[_.-]", "", name)))
        except ValueError:
            continue
    has_native = len(present) > 1 and any(counts_as(column, [native]) for column in present)
    for tag in languages if has_native else ():
        if not any(counts_as(column, [tag]) for column in present):
            own = [each for each in present if each.partition("-")[0] == tag.partition("-")[0]]
            hint = suggestion(own[0]) if own else did_you_mean(tag, present)
            raise LanguageTagError(f"{source} has no text in {tag!r}, only in {', '.join(present)}{hint}")


def _column_names(file: Path) -> list[str]:
    """The columns of a table, from its header; empty for other files, such as JSON lines, where keys may come late."""
    kind = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    if not file.is_file() or kind not in (".tsv", ".csv"):
        return []
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8-sig", newline="") as lines:
            first = next(lines, "")
            if first.startswith("sep="):
                first = next(lines, "")
        separator = "\t" if kind == ".tsv" else max(",;\t", key=first.count)
        return [cell.strip() for cell in next(csv.reader([first], delimiter=separator), [])]
    except (OSError, ValueError, EOFError, csv.Error):  # the reader of the file reports it
        return []


def _show_sources(run: "Acquisition", console: "Console") -> None:
    """Prints the number of sentences and some pairs, so swapped columns are noticed."""
    from rich.table import Table

    if run.texts is not None:
        console.print(f"{len(run.native_texts):,} texts in {run.native}")
        return
    language = run.languages[0]
    if pairs := run.samples(language):
        count = len(run.pairs[language][0]) or len(run.dictionaries[language][0])
        table = Table(language, run.native, title=f"{count:,} translations, such as", box=None)
        for pair in pairs:
            table.add_row(*pair)
        console.print(table)


def show_results(run: "Acquisition", output: Path, console: "Console") -> None:
    """Prints how well each language was learned, any warnings, and what to do next."""
    results = run.results
    title = "Held-out test: how often a sentence finds its own translation (%)"
    headings = ("sentences", "first", "in ten", "95 % interval", "chance", "before")
    table = results_table("language", *headings, title=title)
    for tag, found in results.items():
        cells = [f"{found.r1:.1f}", f"{found.r10:.1f}", f"{found.r10_low:.1f}–{found.r10_high:.1f}"]
        before = "–" if found.zero_shot is None else f"{found.zero_shot:.1f}"
        table.add_row(tag, f"{found.pairs:,}", *cells, f"{found.chance:.1f}", before)
    console.print(table)
    told = []
    if run.texts is not None:
        told.append(
            f"These texts are in {run.native}. Languages that {run.text_encoder} reads should work; to improve and "
            "test one, give --translations."
        )
    for kind, how in _OTHER_TESTS.items():
        if tags := [tag for tag, found in results.items() if found.learned_from == kind]:
            told.append(f"{_enumerated(tags)}: {how}.")
    if named := [tag for tag, found in results.items() if found.names]:
        told.append(f"Also learned from Unicode CLDR's emoji names (license: Unicode-3.0): {_enumerated(named)}.")
    if few := [
        f"{found.pairs} in {tag}"
        for tag, found in results.items()
        if found.learned_from == "sentences" and found.pairs < _FEW
    ]:
        told += [
            f"Few sentences ({_enumerated(few)}): the numbers are not reliable yet.",
            "For comparison: of a thousand Māori captions, 34 % ranked first after 100 sentences, 75 % after 800.",
            "Use a thousand if you can: more sentences help more than any option.",
        ]
    told += [f"Warning: {warning}." for tag, found in results.items() if (warning := found.warning(tag))]
    if words := sum(len(glossary.entries) for glossary in run.processor.glossaries.values()):
        told.append(
            f"glossary.tsv holds {words:,} word translations that were found automatically. Correct them as you like; "
            "the model uses your edits the next time it loads."
        )
    elif len(results) > 1 and run.model.text_model is None:
        told.append(
            "Give the language of each text: without it, all languages share one map, which is much less accurate."
        )
    told.append(f"Model and card: {output}")
    if run.teacher is not None:
        told.append(f"It embeds texts into the space of {run.base}; the model behind that space embeds the rest.")
    for sentence in told:
        console.print(sentence)
    if run.teacher is None:
        show_next(console, output, run.languages[0])


def _enumerated(parts: Iterable[str]) -> str:
    parts = list(parts)
    return ", ".join(parts[:_NAMED]) + ", …" * (len(parts) > _NAMED)
