import os

import pytest

from tests.support.recipe_world import World

CACHES = (
    "datasets.config.HF_DATASETS_CACHE",
    "babelens.inference.translation.DEFAULT_CACHE",
    "babelens.trainers.frozen_features.DEFAULT_CACHE",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("world"), os.getcwd()
    with pytest.MonkeyPatch.context() as patched:
        for cache in CACHES:
            patched.setattr(cache, folder / "cache" / cache.rpartition(".")[0])
        table = folder / "emoji.parquet"
        patched.setattr("babelens.data.emoji.benchmark.emoji_table", lambda cache_dir: table)
        os.chdir(folder)
        try:
            yield World(folder)
        finally:
            os.chdir(before)
