"""Every recipe starts on published layouts by the command in its header, and its model is evaluated: two steps of tiny
models, in the folder of `recipe_world`. The settings in docs/results/published-experiments.yaml start, too."""

import json
from pathlib import Path

import pytest

from babelens.cli.demo import RECIPES
from babelens.training import schema
from babelens.training.recipe_file import parse
from babelens.training.schema import load_recipe
from tests.recipes.test_published_experiments import ROWS, settings_of
from tests.support.published_layouts import PHOTO_LANGUAGES, caption, write_image, xtd
from tests.support.published_rc3 import write_text
from tests.support.recipe_world import NAMES, header_commands

# One recipe of each method, which every run of the tests starts; the others are `slow`.
IN_EVERY_RUN = {"photos/locked", "etcl/base", "mla/adapter", "mla/student", "rc3/base", "smalr/smalr", "smalr/liwe"}


NAMED = [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.timeout(1200)  # whole commands, which take five minutes beside a dozen other processes
@pytest.mark.parametrize("name", NAMED)
def test_it_starts_and_is_evaluated(world, name):
    output = world.train(name)
    assert (output / "model.safetensors").is_file()
    assert (output / "adapter" / "adapter_model.safetensors").is_file() == (name == "mla/adapter")
    recipe = load_recipe(name)
    measured = world.evaluate(name) or (output / "results.json").is_file()
    assert measured or (recipe.method == "rc3" and recipe.task_name is None)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "settings"), sorted({(row["recipes"][-1], each) for _, row in ROWS for each in settings_of(row)})
)
def test_settings_of_the_table_start(world, name, settings):
    # The tiny translators repeat few words.
    settings = settings.replace("min_frequency=50", "min_frequency=1").replace("threshold: 50", "threshold: 5")
    assert (world.train(name, settings) / "model.safetensors").is_file()


def test_every_header_has_the_command():
    named = {name for name in NAMES for words in header_commands(name, own=True) if words[1:3] == ["train", name]}
    assert named == set(NAMES)


def test_recipes_of_every_method_are_started_in_every_run():
    assert set(NAMES) >= IN_EVERY_RUN
    started, known = ({load_recipe(name).method for name in names} for names in (IN_EVERY_RUN, NAMES))
    assert started == known


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


PRINTED = {"acquire": "were acquired in", "rc3": "mean of the others"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", RECIPES)
def test_it_runs(world, monkeypatch, method):
    def load_small(name, settings):
        small = {key: parse(value) if isinstance(value, str) else value for key, value in world.small(name).items()}
        return load(name, {**small, **settings})

    load = schema.load_recipe
    monkeypatch.setattr(schema, "load_recipe", load_small)
    command = ("demo", "--method", method, "--output", f"demo-{method}")
    assert PRINTED.get(method, "(sw):") in world.run(*command)
    if method == "acquire":
        # The second run measures what it learned, not a model that an earlier one left.
        assert "already held a model, which was kept" in world.run(*command)
