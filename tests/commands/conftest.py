"""What the tests of commands share: a place of their own for frozen features."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Frozen features are kept here."""
    with pytest.MonkeyPatch.context() as patched:
        folder = tmp_path_factory.mktemp("cache")
        patched.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", folder)
        yield folder
