"""`babelens analyze`: draws the figures of the papers, and writes their numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.errors import ModelFolderError, ModelKindError, SaveError
from ..utils.files import atomic_file
from .common import (
    Languages,
    Model,
    SourceOptions,
    begin_work,
    check_model,
    check_path,
    plain_console,
    read_source,
    tags_of,
)
from .compare import named_rows

if TYPE_CHECKING:
    import datasets
    import numpy as np

    from ..evaluation.analysis import ParallelTexts

_EMOJI, _EMOJI_VENDOR = "emoji", "noto"  # the vendor is held out of training by default
_ANALYSIS = "analysis"  # the key that names the analysis, and distinguishes the file from other results
_RC3, _ENGLISH = "rc3", "en"
_MAP_ROWS, _DISTANCE_ROWS = 1000, 200  # compare at most this many rows, evenly spaced


def _figure_file(file: Path) -> Path:
    """Checks a figure's file name, and that its numbers do not replace other results."""
    if file.suffix.lower() not in (".svg", ".png"):
        raise typer.BadParameter(f"{file}: a figure is written as .svg or .png")
    numbers = file.with_suffix(".json")
    try:
        content = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else {_ANALYSIS: ""}
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or _ANALYSIS not in content:
        raise SaveError(f"{numbers} holds other results than an analysis: give --output another name")
    return file


Captions = Annotated[
    str, typer.Option("--data", help="Images with captions, as for `evaluate captions`, or `emoji`, the benchmark.")
]
Figure = Annotated[
    Path,
    typer.Option(
        "--output",
        help="The figure, `.svg` or `.png`; its numbers are written as `.json`.",
        dir_okay=False,
        callback=_figure_file,
    ),
]

analyze = typer.Typer(
    no_args_is_help=True,
    help="""Draw the papers' figures of what a model has learned.

    These commands need the extra `analysis`: scikit-learn, scipy and matplotlib.
    """,
)


@analyze.command()
def languages(
    model: Model,
    data: Annotated[
        str, typer.Option(help="Captioned images, translations (`.tsv`, `.jsonl`), or `emoji`, the benchmark.")
    ],
    output: Figure,
    languages: Languages = None,
    source_options: SourceOptions = None,
) -> None:
    """Map the languages of MODEL by the similarity of their embeddings: SVCCA, a tree and a Laplacian eigenmap.

    `babelens analyze languages runs/mural --data captions --output languages.svg`

    Up to 1,000 rows with a text in every language are compared; a few hundred are needed. Compare the similarities
    with the similarity of shuffled texts, which the figure states.
    """
    tags = tags_of(languages)
    begin_work()
    import numpy as np

    from ..data.corpus.tables import TRANSLATION_FILES
    from ..evaluation import analysis
    from ..inference.embedder import Embedder

    embedder = Embedder.from_pretrained(model)
    corpus, present = _load(data, tags, source_options, translations=Path(data).suffix in TRANSLATION_FILES)
    texts = analysis.parallel_texts(corpus, present, limit=_MAP_ROWS)
    found = analysis.language_map(analysis.encode_parallel(embedder, texts))
    off_diagonal = np.where(np.eye(len(found.languages), dtype=bool), np.nan, found.similarities)
    first, second = sorted(np.unravel_index(np.nanargmax(off_diagonal), off_diagonal.shape))
    summary = (
        f"{len(found.languages)} languages on {found.n_texts:,} texts: SVCCA {np.nanmean(off_diagonal):.2f} on "
        f"average, {off_diagonal[first, second]:.2f} between {found.languages[first]} and {found.languages[second]}, "
        f"{found.chance:.2f} for shuffled texts"
    )
    _show("languages", found, analysis.draw_language_map(found), output, summary)


@analyze.command()
def labels(
    model: Model,
    data: Annotated[
        Path, typer.Option(help="A folder with a subfolder of images for each class.", file_okay=False, exists=True)
    ],
    labels: Annotated[
        Path,
        typer.Option(
            help="The labels of the classes, as for `evaluate classes`.", dir_okay=False, callback=check_path
        ),
    ],
    output: Figure,
    languages: Languages = None,
) -> None:
    """Map images and the labels of their classes in all languages in one plane by t-SNE, colored by class.

    `babelens analyze labels runs/mla --data animals --labels labels.tsv --output animals.png`

    As in figure 2 of MLA's paper: if images and languages share a space, labels lie among their images. Up to 1,000
    images are drawn.
    """
    tags = tags_of(languages)
    begin_work()
    from ..data.corpus.corpus import evenly_spaced
    from ..evaluation import analysis
    from ..evaluation.classification import ClassifiedImages, read_labels
    from ..inference.embedder import Embedder

    embedder = Embedder.from_pretrained(model)
    found = ClassifiedImages.of_folder(data)
    rows = evenly_spaced(len(found.images), _MAP_ROWS)
    embedded = {
        language: dict(zip(named, embedder.encode_text(list(named.values()), language=language), strict=True))
        for language, named in read_labels(labels, found.classes, tags).items()
    }
    images = embedder.encode_image([found.images[row] for row in rows])
    result = analysis.label_map(images, found.targets[rows].tolist(), embedded, found.classes)
    accuracies = ", ".join(f"{language} {value:.1f}" for language, value in result.accuracy.items())
    summary = f"Images whose nearest label is the label of their class, %: {accuracies}"
    _show("labels", result, analysis.draw_label_map(result), output, summary)


@analyze.command()
def retrieval(
    models: Annotated[
        list[str], typer.Argument(metavar="MODELS...", help="The models: folders, or names on the Hub.")
    ],
    data: Captions,
    output: Figure,
    languages: Languages = None,
    source_options: SourceOptions = None,
) -> None:
    """Show what several models find for the same queries, one below the other, with correct results in green.

    `babelens analyze retrieval runs/align runs/mural --data photos --languages de --output found.svg`

    Three queries of each language are shown with five results. A hash of the images chooses them, independently of the
    results. R@1 of each model is printed.
    """
    tags = tags_of(languages)
    begin_work()
    from ..evaluation import analysis
    from ..inference.embedder import Embedder

    corpus, present = _load(data, tags, source_options)
    embedders = {name: Embedder.from_pretrained(model) for name, model in named_rows(models).items()}
    found = analysis.side_by_side(embedders, corpus, present)
    lines = [
        f"{language}: {', '.join(f'{name} {value:.1f}' for name, value in of_models.items())}"
        for language, of_models in found.first.items()
    ]
    summary = "\n".join(["Correct first results, %:", *lines])
    _show("retrieval", found, analysis.draw_side_by_side(found, corpus), output, summary)


@analyze.command()
def distances(
    model: Model,
    baseline: Annotated[
        str, typer.Option(help="The model that was trained without the term in question.", callback=check_model)
    ],
    data: Captions,
    output: Figure,
    languages: Languages = None,
    source_options: SourceOptions = None,
) -> None:
    """Show how training has moved languages closer to English: distance ratios, as in figure 5 of RC3's paper.

    `babelens analyze distances runs/rc3 --baseline runs/rc3-no-kl --data photos --output distances.svg`

    For each caption of up to 200 images, MODEL's distance to the English caption of the same image is divided by
    --baseline's distance. RC3 reads captions together with the patches of their images.
    """
    tags = tags_of(languages)
    begin_work()
    from ..evaluation import analysis
    from ..inference.embedder import Embedder

    names = [model, baseline]
    are_rc3 = [_is_rc3(name) for name in names]
    if len(set(are_rc3)) > 1:
        raise typer.BadParameter(f"only one of {model} and {baseline} is an RC3", param_hint="--baseline")
    corpus, present = _load(data, tags and [_ENGLISH, *tags], source_options)
    texts = analysis.parallel_texts(corpus, [_ENGLISH, *present], limit=_DISTANCE_ROWS)
    own, base = (
        _joint(name, corpus, texts) if are_rc3[0] else analysis.encode_parallel(Embedder.from_pretrained(name), texts)
        for name in names
    )
    found = analysis.distance_ratios(own, base, texts.ids, anchor=_ENGLISH)
    lines = [
        f"{language}: median ratio {found.median[language]:.3f}, below 1 for {found.nearer[language]:.0f} % of images"
        for language in found.languages
    ]
    _show("distances", found, analysis.draw_distance_ratios(found), output, "\n".join(lines))


def _is_rc3(model: str) -> bool:
    from ..utils.pretrained import load_config

    try:
        return load_config(model).model_type == _RC3
    except ModelFolderError:  # such as an adapter; loading it raises the exact error
        return False


def _joint(model: str, corpus: "datasets.Dataset", texts: "ParallelTexts") -> "dict[str, np.ndarray]":
    """The representations of texts with their images by an RC3 model, which sees the images as patches."""
    from transformers import AutoProcessor

    from ..data.batching.views import Images, images_of
    from ..evaluation.analysis import joint_representations
    from ..inference.embedder import default_device
    from ..registry import METHODS
    from ..utils.pretrained import load_config, load_model, load_processor

    names = load_config(model).architectures or []
    # The saved class, so no weight of its head is reported as unexpected; only the encoder is used.
    saved = next((each for each in METHODS[_RC3].models if each.__name__ in names), METHODS[_RC3].model)
    rc3: Any = load_model(saved, model).base_model.to(default_device())
    images = images_of(corpus.select(texts.rows))
    if not isinstance(images, Images):
        raise ModelKindError("RC3 reads images, but the data has features instead")
    return joint_representations(rc3, load_processor(AutoProcessor, model), texts.texts, images)


def _load(
    data: str, tags: list[str] | None, options: Sequence[str] | None, *, translations: bool = False
) -> "tuple[datasets.Dataset, list[str]]":
    """The captioned images, or the translations, of --data, and the languages to compare: `tags`, or all."""
    from ..data.corpus.corpus import languages_of
    from ..data.emoji.benchmark import load_emoji
    from ..evaluation.emoji import BENCHMARK_LANGUAGES

    if data == _EMOJI and not options:
        tags = tags or [tag for group in BENCHMARK_LANGUAGES.values() for tag in group]
        return load_emoji([_EMOJI_VENDOR], None, tags), tags
    corpus = read_source(data, options, translations=translations)
    return corpus, tags or list(languages_of(corpus))


def _show(name: str, result: Any, figure: Any, file: Path, summary: str) -> None:
    """Writes a figure of matplotlib and the numbers, a dataclass; prints a summary and the names of the files."""
    from ..evaluation.analysis import as_json, save_figure

    save_figure(figure, file)
    numbers = file.with_suffix(".json")
    with atomic_file(numbers) as path:
        path.write_text(json.dumps({_ANALYSIS: name} | as_json(result), ensure_ascii=False, indent=1), "utf-8")
    plain_console().print(f"{summary}\nFigure: {file}\nNumbers: {numbers}", soft_wrap=True)
