"""What the analyses of `babelens analyze` share: options, the data that they read, and the numbers that they write."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..configuration.defaults import BENCHMARK_LANGUAGES, FIGURES
from ..configuration.errors import SaveError
from ..configuration.files import atomic_file
from .console import plain_console
from .options import CAPTIONED_IMAGES, locked_file

if TYPE_CHECKING:
    import datasets
    import numpy as np

    from ..evaluation.analysis.parallel import ParallelTexts
    from ..evaluation.found_images import GalleryRow, TextsRow

# The vendor of the emoji benchmark that is held out of training by default.
EMOJI_VENDOR = "noto"
# The key of a file of numbers that names the analysis, and tells it from other results.
_ANALYSIS = "analysis"
RESULTS = "a folder of a run, or a file that `babelens evaluate --output` wrote"
_EMOJI = "or `emoji`: Noto's images of the embedded benchmark"


def _figure_file(context: typer.Context, file: Path) -> Path:
    if file.suffix.lower() not in FIGURES:
        raise typer.BadParameter(f"{file}: a figure is written as {' or '.join(FIGURES)}")
    return _with_numbers(context, file)


def _page_file(context: typer.Context, file: Path) -> Path:
    if file.suffix.lower() != ".html":
        raise typer.BadParameter(f"{file}: a gallery is written as .html")
    return _with_numbers(context, file)


def _with_numbers(context: typer.Context, figure: Path) -> Path:
    """Locks a figure's file, whose numbers must not replace other results.

    Raises:
        SaveError: when the file of the numbers holds something else than the numbers of an analysis.
    """
    locked_file(context, figure)
    file = numbers_file(figure)
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {_ANALYSIS: ""}
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or _ANALYSIS not in content:
        raise SaveError(f"{file} holds no numbers of an analysis, and would be replaced: give --output another name")
    return figure


def numbers_file(figure: Path) -> Path:
    """The file of the numbers that a figure shows."""
    return figure.with_suffix(".json")


Captions = Annotated[str, typer.Option("--data", help=f"Images with captions: {CAPTIONED_IMAGES}; {_EMOJI}.")]
Texts = Annotated[
    str,
    typer.Option(
        "--data",
        help=f"Texts in several languages: images with captions ({CAPTIONED_IMAGES}), a `.tsv` or `.jsonl` file of "
        f"translations, {_EMOJI}. Rows that have a text in every language are compared.",
    ),
]
OptionalCaptions = Annotated[
    str | None,
    typer.Option("--data", help=f"Evaluate models on images with captions: {CAPTIONED_IMAGES}; {_EMOJI}."),
]
TestSet = Annotated[
    str | None,
    typer.Option(
        help="The test set, where the results have several, such as `unseen_vendor` of the emoji benchmark. Without "
        "this option, the first."
    ),
]
Figure = Annotated[
    Path,
    typer.Option(
        "--output",
        help="Draw the figure into this file, `.svg` or `.png`, and write its numbers beside it as `.json`.",
        dir_okay=False,
        callback=_figure_file,
    ),
]
Gallery = Annotated[
    Path,
    typer.Option(
        "--output",
        help="Write the gallery into this file, `.html`, and its numbers beside it as `.json`.",
        dir_okay=False,
        callback=_page_file,
    ),
]
Limit = Annotated[int, typer.Option(help="Compare at most this many rows, at even distances.", min=1)]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.", min=0)]
Metric = Annotated[str, typer.Option(help="The metric, such as `mean_recall`, `t2i_r1` or `i2t_r10`.")]


def check_source(data: str | None, split: str | None, test_set: str | None) -> None:
    """Checks that --split comes with data, and --test-set with results."""
    if split and not data:
        raise typer.BadParameter("there are no data of which it could be a split: give --data", param_hint="--split")
    if test_set and data:
        raise typer.BadParameter("--data is the test set: results may have several", param_hint="--test-set")


# ---- What the commands of `babelens analyze` read and write: corpora, figures, and numbers beside them ----


def load_images(
    data: str, split: str | None, languages: list[str] | None, options: Sequence[str] | None = None
) -> "datasets.Dataset":
    """The captioned images of an option --data; `options` are those of --option."""
    from ..data.emoji.benchmark import load_emoji
    from ..workflows.recipe import EMOJI
    from .inputs import read_source

    if data == EMOJI:
        return load_emoji([EMOJI_VENDOR], split, languages or _benchmark_languages())
    return read_source(data, options, split=split)


def load_texts(
    data: str, split: str | None, languages: list[str] | None, options: Sequence[str] | None = None
) -> "datasets.Dataset":
    """As `load_images`; also a file of translations."""
    from ..data.corpus.tables import TRANSLATION_FILES
    from .inputs import read_source

    if Path(data).suffix in TRANSLATION_FILES:
        return read_source(data, options, translations=True, split=split)
    return load_images(data, split, languages, options)


def default_languages(corpus: "datasets.Dataset", data: str) -> list[str]:
    """The languages that an analysis compares when none are named."""
    from ..data.corpus.corpus import languages_of
    from ..workflows.recipe import EMOJI

    return _benchmark_languages() if data == EMOJI else list(languages_of(corpus))


def _benchmark_languages() -> list[str]:
    return [language for group in BENCHMARK_LANGUAGES.values() for language in group]


def text_embeddings(
    model: str,
    data: str,
    languages: list[str] | None,
    split: str | None,
    options: Sequence[str] | None,
    *,
    limit: int,
    task: str | None,
    **loading: Any,
) -> "tuple[ParallelTexts, dict[str, np.ndarray]]":
    """The parallel texts of an option --data, and the embeddings of them by a model, by language.

    Args:
        model: the model of a command.
        data, split, languages, options: as in `load_texts`.
        limit: the largest number of rows.
        task: the head for texts.
        loading: arguments of `Embedder.from_pretrained`.
    """
    from ..evaluation.analysis.parallel import encode_parallel, parallel_texts
    from .inputs import load_embedder

    embedder = load_embedder(model, **loading)
    corpus = load_texts(data, split, languages, options)
    texts = parallel_texts(corpus, languages or default_languages(corpus, data), limit=limit)
    return texts, encode_parallel(embedder, texts, task=task)


def gallery_page(title: str, rows: "Sequence[GalleryRow | TextsRow]", data: str) -> "Callable[[Path], None]":
    """Writes a gallery to a file, with the owners of the images of an option --data."""
    from ..model_cards.facts import emoji_sources
    from ..reports.page import write_gallery_page
    from ..workflows.recipe import EMOJI

    sources = emoji_sources([EMOJI_VENDOR]) if data == EMOJI else []
    credits = [f"{each.attribution} {each.license}" for each in sources]
    return lambda file: write_gallery_page(file, title, rows, credits)


def show_analysis(name: str, result: Any, drawn: Any, file: Path, as_json: bool, summary: str) -> None:
    """Writes a figure and its numbers; prints the numbers as JSON, or a summary and the names of the files.

    Args:
        name: of the analysis.
        result: the numbers, a dataclass.
        drawn: matplotlib's figure; or writes a page to a file.
        file: where the figure goes.
        as_json: whether to print the numbers.
        summary: what they say.
    """
    from ..evaluation.analysis.figures.style import save_figure
    from ..evaluation.analysis.numbers import as_json as json_of

    if callable(drawn):
        drawn(file)
    else:
        save_figure(drawn, file)
    text = json.dumps({_ANALYSIS: name} | json_of(result), ensure_ascii=False, indent=1)
    with atomic_file(numbers_file(file)) as path:
        path.write_text(text, "utf-8")
    if as_json:
        typer.echo(text)
        return
    console = plain_console()
    console.print(summary)
    console.print(f"Figure: {file}\nNumbers: {numbers_file(file)}", soft_wrap=True)
