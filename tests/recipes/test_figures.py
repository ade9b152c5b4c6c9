"""The commands that draw the papers' figures (docs/results/published-experiments.yaml) start on published layouts."""

import json
from pathlib import Path

import pytest

from tests.support.published_layouts import PHOTO_LANGUAGES, caption, write_image, xtd
from tests.support.published_rc3 import write_text

WIT = ["--data", "wit", "--option", "files=data/wit"]
WIT += ["--option", "min_languages=1", "--option", "streaming=false", "--languages", "de,en"]
FLICKR = ["--data", "multi30k", "--option", "folder=data/multi30k", "--option", "images=data/flickr30k-images"]
# Paper and figure -> the analysis, the recipes of its models, and the data.
FIGURES = {
    "MURAL 3": ("languages", ["mural/base"], ["--data", "parallel.tsv"]),
    "MURAL 4 to 6, 9 to 14": ("retrieval", ["mural/base:align", "mural/base"], WIT),
    "MLA 1": ("retrieval", ["mla/cc300k"], ["--data", "xtd", "--option", "folder=data/xtd", "--languages", "en,de"]),
    "MLA 2": ("labels", ["mla/cc300k"], ["--data", "data/cifar10", "--labels", "labels.tsv"]),
    "RC3 5": ("distances", ["rc3/base", "rc3/base:no-kl"], [*FLICKR, "--option", "split=test", "--languages", "de"]),
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("figure", FIGURES)
def test_it_is_drawn(world, figure):
    analysis, recipes, data = FIGURES[figure]
    if analysis == "labels":
        for name in ("cat", "dog"):
            for number in range(3):
                write_image(Path(f"data/cifar10/{name}/{number}.png"), number)
        write_text(Path("labels.tsv"), "class\ten\tde", "cat\ta cat\tKatze", "dog\ta dog\tHund")
    if analysis == "languages":
        rows = ("\t".join(caption(tag, number) for tag in PHOTO_LANGUAGES) for number in range(100))
        write_text(Path("parallel.tsv"), "\t".join(PHOTO_LANGUAGES), *rows)
    if "xtd" in data:
        xtd(Path("data/xtd"))
    model, *others = [str(world.train(name)) for name in recipes]
    models = [model, *(("--baseline", *others) if analysis == "distances" else others)]
    world.run("analyze", analysis, *models, *data, "--output", "figure.svg")
    assert json.loads(Path("figure.json").read_text())["analysis"] == analysis
    assert Path("figure.svg").stat().st_size > 1000
