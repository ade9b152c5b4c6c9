from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.utils.errors import BabelensError
from tests.support.tiny_native import saved, tiny_clip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        folder = tmp_path_factory.mktemp("cache")
        patched.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", folder)
        patched.setattr("datasets.config.HF_DATASETS_CACHE", folder / "datasets")
        patched.setattr("babelens.inference.image_index.IMAGE_CACHE", folder / "image_index")
        yield folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved(tiny_clip(), tmp_path_factory.mktemp("model") / "clip")


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    random = np.random.default_rng(0)
    (folder / "a[").mkdir()  # a folder, whose slash makes a closing tag
    for name in ("a[/b].png", "pic[bold]:cat:.png", "plain.png"):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / name)
    return folder


@pytest.fixture(scope="session")
def run():
    """Runs a command as `main` does; returns exit status, output and errors. Code 2 is any refusal: a wrong usage (2),
    or an error of the input (1), whose sentence is then the output."""

    def invoke(*arguments, code=0):
        result = CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200"})
        if code == 2 and result.exit_code == 1 and isinstance(result.exception, BabelensError):
            return SimpleNamespace(output=str(result.exception), exit_code=2, exception=result.exception)
        if result.exit_code != code:
            pytest.fail(f"status {result.exit_code}: {result.output}\n{result.exception!r}")
        return result

    return invoke
