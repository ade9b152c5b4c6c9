"""The demo runs, on a few emoji and in two steps."""

import pytest

from babelens.training import schema


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_runs(world, monkeypatch):
    load = schema.load_recipe
    monkeypatch.setattr(schema, "load_recipe", lambda name: load(name, world.small(name)))
    shown = world.run("demo", "--output", "demo")
    assert "were acquired in" in shown and "(sw):" in shown
