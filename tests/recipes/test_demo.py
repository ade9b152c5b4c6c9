import pytest

from babelens.cli.demo import RECIPES
from babelens.training import schema
from babelens.training.recipe_file import parse

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
    shown = world.run("demo", "--method", method, "--output", f"demo-{method}")
    assert PRINTED.get(method, "(sw):") in shown
