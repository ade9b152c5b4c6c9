"""Searches and uploads to the server of images are answered, or refused with a sentence; none raises an exception."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from starlette.testclient import TestClient

from babelens.inference import Embedder
from babelens.serving.app import create_app
from babelens.serving.service import ImageService
from tests.fuzz.strategies import ANY_TEXT, image_files

# Pillow warns of files that it can still read.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
TEXT = ANY_TEXT.map(lambda text: text.encode("utf-8", "replace").decode())


@pytest.fixture(scope="module")
def client(make_mla, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    colors = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    for number, color in enumerate(colors):
        Image.fromarray(color).resize((40, 30)).save(folder / f"{number}.png")
    service = ImageService(Embedder(*make_mla()), folder, model="tiny")
    with TestClient(create_app(service), base_url="http://localhost") as client:
        yield client


def check(answer):
    assert answer.status_code in (200, 400), answer.text
    assert answer.json()["results" if answer.status_code == 200 else "error"]


@given(
    query=st.dictionaries(st.sampled_from(["q", "language", "top"]), TEXT),
    language=st.sampled_from([{}, {"language": "de"}]),
)
def test_any_search_finds_or_is_refused(client, query, language):
    check(client.get("/api/search", params=query | language))


@given(data=image_files(), name=TEXT, kind=st.sampled_from(["image/png", "text/html", ""]))
def test_any_upload_finds_or_is_refused(client, data, name, kind):
    check(client.post("/api/search-by-image", files={"file": (name, data, kind)}))
