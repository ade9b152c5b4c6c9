"""Every recipe of the repository starts on the files that were published, by the command in its header, and its model
is evaluated: two steps of tiny models, in the folder of `recipe_world`."""

import os

import pytest

from babelens.training.loading import load_recipe
from tests.support.recipe_world import NAMES, World, header_commands

CACHES = (
    *(f"babelens.data.readers.{name}.DEFAULT_CACHE" for name in ("bitext", "wit")),
    *(f"babelens.data.readers.conceptual_captions.{name}_CACHE" for name in ("CC3M", "CC12M", "CC300K")),
    "babelens.inference.translation_cache.DEFAULT_CACHE",
    "babelens.trainers.frozen_features.DEFAULT_CACHE",
)

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


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("world"), os.getcwd()
    with pytest.MonkeyPatch.context() as patched:
        for cache in CACHES:
            patched.setattr(cache, folder / "cache" / cache.rpartition(".")[0])
        table = folder / "emoji.parquet"
        patched.setattr("babelens.data.emoji.benchmark._table_path", lambda image_size, cache_dir: table)
        os.chdir(folder)
        try:
            yield World(folder)
        finally:
            os.chdir(before)


@pytest.mark.timeout(1200)  # whole commands, which take five minutes beside a dozen other processes
@pytest.mark.parametrize("name", [with_marks(name) for name in NAMES])
def test_it_starts_and_is_evaluated(world, name):
    output = world.train(name)
    assert (output / "model.safetensors").is_file()
    assert (output / "adapter" / "adapter_model.safetensors").is_file() == (name == "mla/adapter")
    recipe = load_recipe(name)
    measured = world.evaluate(name) or (output / "results.json").is_file()
    assert measured or (recipe.method == "rc3" and recipe.task_name is None)


@pytest.mark.parametrize("name", NAMES)
def test_its_header_has_the_command(name):
    assert any(words[1:3] == ["train", name] for words in header_commands(name, own=True))


def test_recipes_of_every_method_are_started_in_every_run():
    assert set(NAMES) >= IN_EVERY_RUN
    started, known = ({load_recipe(name).method for name in names} for names in (IN_EVERY_RUN, NAMES))
    assert started == known
