"""The losses side by side on photographs: one recipe, the same frozen towers, several seeds; what each finds at every
width of its embeddings.

    python benchmarks/photo_losses.py --photos TRAIN --validation VALIDATION --image google/efficientnet-b0 \
        --text sentence-transformers/all-MiniLM-L6-v2

The recipe is `photos/mla/clip`; TRAIN and VALIDATION are folders of images with captions (`load_captions`). No setting
was chosen for a loss: the rates are those that the recipe has for the softmax. Runs that are there are not repeated.
"""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rows import Experiment, OnlyTable, Output, Rows, Seeds, chosen, markdown, numbers, spread

from babelens import Embedder
from babelens.data import load_captions
from babelens.evaluation import evaluate_retrieval
from babelens.evaluation.ranking import embedding_ranks, percent_within
from babelens.inference.similarity import first_dimensions

WIDTHS = (512, 256, 128, 64, 32)
# The title of each row, and what it changes of the recipe.
ROWS = {
    "softmax": ("contrastive softmax", []),
    "sigmoid": (
        "sigmoid",
        ["model.overrides.image_text_loss=sigmoid", "model.overrides.temperature_init_value=0.1"],  # as of SigLIP
    ),
    "matryoshka": (
        "softmax at all these widths (Matryoshka)",
        [f"model.overrides.matryoshka_dims={json.dumps(WIDTHS[1:])}"],
    ),
}


def found(run: Path, validation: str) -> dict[str, float]:
    """Text -> image R@10 of a model in English at each width, stored next to it."""
    file = run / "widths.json"
    if not file.is_file():
        embeddings: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] = {}
        evaluate_retrieval(Embedder.from_pretrained(run), load_captions(validation), ["en"], embeddings=embeddings)
        texts, images, right = embeddings["en"]
        results = {}
        for width in WIDTHS:
            ranks = embedding_ranks(first_dimensions(images, width), first_dimensions(texts, width), right)
            results[str(width)] = percent_within(ranks.text_to_image, 10)
        file.write_text(json.dumps(results))
    stored: dict[str, float] = json.loads(file.read_text())
    return stored


def main(
    photos: Annotated[str, typer.Option(help="Captioned images to train on.")],
    validation: Annotated[str, typer.Option(help="Others, to search.")],
    image: Annotated[str, typer.Option(help="The image tower.")],
    text: Annotated[str, typer.Option(help="The text tower.")],
    steps: Annotated[int, typer.Option(help="A tenth of them warms up.")] = 400,
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    output: Output = Path("runs/photo-losses"),
    only_table: OnlyTable = False,
) -> None:
    """Print a table of the losses: the mean and the deviation over the seeds at each width."""
    given = {
        "model.image": image,
        "model.text": text,
        "train.image_text.source": photos,
        "training.max_steps": steps,
        "training.warmup_steps": steps // 10,
    }
    shared = [f"{key}={value}" for key, value in given.items()]
    experiment = Experiment(output, "photos/mla/clip", lambda row, _: [*shared, *ROWS[row][1]])
    names = chosen(rows, ROWS)
    if not only_table:
        experiment.train_all(names, numbers(seeds))
    lines = []
    for row in names:
        runs = [experiment.folder(row, seed) for seed in numbers(seeds)]
        each = [found(run, validation) for run in runs if (run / "README.md").is_file()]
        if each:
            lines.append([ROWS[row][0], *(spread([scores[str(width)] for scores in each]) for width in WIDTHS)])
    print(markdown(["", *map(str, WIDTHS)], lines))


if __name__ == "__main__":
    typer.run(main)
