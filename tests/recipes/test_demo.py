"""The demo runs, on a few emoji and in two steps."""

import pytest

from babelens.cli.demo import RECIPE
from babelens.training import schema
from babelens.training.recipe_file import parse


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_runs(world, monkeypatch):
    load = schema.load_recipe
    small = {key: parse(value) for key, value in world.small(RECIPE).items()}
    monkeypatch.setattr(schema, "load_recipe", lambda name: load(name, small))
    shown = world.run("demo", "--output", "demo")
    assert "were acquired in" in shown and "(sw):" in shown
