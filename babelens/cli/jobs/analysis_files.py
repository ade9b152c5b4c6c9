"""What the commands of `babelens analyze` read and write: corpora, figures, and numbers beside them."""

import json
from pathlib import Path
from typing import Any

import datasets
import typer

from ...configuration.defaults import BENCHMARK_LANGUAGES
from ...configuration.errors import SaveError
from ...configuration.files import atomic_file
from ...data.corpus.corpus import languages_of
from ...data.corpus.loading import load_captions, load_translations
from ...data.corpus.translation_files import TRANSLATION_FILES
from ...data.emoji.benchmark import load_emoji
from ...evaluation.analysis.numbers import as_json as json_of
from ...workflows.recipe import EMOJI
from ..console import plain_console

# The vendor of the emoji benchmark that is held out of training by default.
EMOJI_VENDOR = "noto"
# The name of the analysis, by which its file of numbers is told from other results.
_ANALYSIS = "analysis"


def load_images(data: str, split: str | None, languages: list[str] | None) -> datasets.Dataset:
    """The captioned images of an option --data."""
    if data == EMOJI:
        return load_emoji([EMOJI_VENDOR], split, languages or _benchmark_languages())
    return load_captions(data, split=split)


def load_texts(data: str, split: str | None, languages: list[str] | None) -> datasets.Dataset:
    """As `load_images`; also a file of translations."""
    if Path(data).suffix in TRANSLATION_FILES:
        return load_translations(data, split=split)
    return load_images(data, split, languages)


def default_languages(corpus: datasets.Dataset, data: str) -> list[str]:
    """The languages that an analysis compares when none are named."""
    return _benchmark_languages() if data == EMOJI else list(languages_of(corpus))


def _benchmark_languages() -> list[str]:
    return [language for group in BENCHMARK_LANGUAGES.values() for language in group]


def numbers_file(figure: Path) -> Path:
    """The file of the numbers that a figure shows."""
    return figure.with_suffix(".json")


def check_numbers_file(figure: Path) -> None:
    """Checks that the numbers would not replace other results.

    Raises:
        SaveError: when the file of the numbers holds something else than the numbers of an analysis.
    """
    file = numbers_file(figure)
    if not file.exists():
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or _ANALYSIS not in content:
        raise SaveError(f"{file} holds no numbers of an analysis, and would be replaced: give --output another name")


def show_analysis(name: str, result: Any, figure: Path, as_json: bool, summary: str) -> None:
    """Writes the numbers beside the figure, and prints them as JSON, or the summary and the names of the files."""
    text = json.dumps({_ANALYSIS: name} | json_of(result), ensure_ascii=False, indent=1)
    with atomic_file(numbers_file(figure)) as path:
        path.write_text(text, "utf-8")
    if as_json:
        typer.echo(text)
        return
    console = plain_console()
    console.print(summary)
    console.print(f"Figure: {figure}\nNumbers: {numbers_file(figure)}", soft_wrap=True)
