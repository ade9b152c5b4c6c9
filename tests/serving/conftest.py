import numpy as np
import pytest
from PIL import Image

from babelens.inference.embedder import Embedder
from babelens.serving.service import ImageService
from tests.support.served import serving

COUNT = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for number in range(COUNT - 1):
        small = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        small.resize((96, 64)).save(folder / f"image {number:02}.png")
    (folder / "below").mkdir()
    Image.new("RGB", (64, 64), "red").save(folder / "below" / "صورة.png")
    return folder


@pytest.fixture(scope="module")
def embedder(make_mla):
    return Embedder(*make_mla())


@pytest.fixture(scope="module")
def service(embedder, folder):
    return ImageService(embedder, folder, model="runs/tiny")


@pytest.fixture(scope="module")
def server(service):
    with serving(service) as server:
        yield server
