"""The settings that docs/results/published-experiments.yaml names start: two steps of the last recipe of their row."""

import pytest

from tests.recipes.test_published_experiments import ROWS, settings_of

SETTINGS = sorted({(row["recipes"][-1], settings) for _, row in ROWS for settings in settings_of(row)})


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_they_start(world, name, settings):
    # The tiny translators repeat few words.
    settings = settings.replace("min_frequency=50", "min_frequency=1").replace("threshold: 50", "threshold: 5")
    assert (world.train(name, settings) / "model.safetensors").is_file()
