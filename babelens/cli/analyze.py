"""`babelens analyze`: one command for each analysis, each of which draws a figure and writes its numbers beside it."""

import typer

from .analyze_distances import distances
from .analyze_embeddings import captions, languages, neighbors
from .analyze_images import labels, retrieval
from .analyze_results import agreement, data, forgetting

ANALYSES = (languages, captions, labels, distances, neighbors, retrieval, agreement, data, forgetting)

analyze = typer.Typer(
    no_args_is_help=True,
    help="""Look at what a model has learned: each analysis draws a figure and writes its numbers.

    The figures need the extra `babelens[analysis]`: scikit-learn, matplotlib and umap-learn.
    """,
)
for analysis in ANALYSES:
    analyze.command(rich_help_panel="Analyses")(analysis)
