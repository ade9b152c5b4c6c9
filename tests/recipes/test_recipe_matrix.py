"""Every recipe starts on published layouts by the command in its header, and its model is evaluated: two steps of tiny
models, in the folder of `recipe_world`. The settings in docs/results/published-experiments.yaml start, too."""

import pytest

from babelens.training.schema import load_recipe
from tests.recipes.test_published_experiments import ROWS, settings_of
from tests.support.recipe_world import NAMES, header_commands

# One recipe of each method, which every run of the tests starts; the others are `slow`.
IN_EVERY_RUN = {
    "photos/locked",
    "etcl/base",
    "mla/adapter",
    "mla/student",
    "rc3/base",
    "smalr/smalr",
    "smalr/liwe",
}


def with_marks(name):
    return name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.timeout(1200)  # whole commands, which take five minutes beside a dozen other processes
@pytest.mark.parametrize("name", [with_marks(name) for name in NAMES])
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
