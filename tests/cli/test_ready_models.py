"""Photographs and nothing else: a ready model, a SigLIP as google/siglip2-base-patch16-224 is, searches them."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from babelens.cli.main import app
from tests.support.tiny_native import saved, tiny_siglip


@pytest.mark.parametrize("language", ["de", "mi", "zh-Hant"])
def test_a_siglip_searches_a_folder_of_images_in_any_language(tmp_path, language):
    saved(tiny_siglip(), tmp_path / "siglip")
    (tmp_path / "photos").mkdir()
    for shade in (0, 120, 255):
        Image.fromarray(np.full((32, 32, 3), shade, np.uint8)).save(tmp_path / f"photos/{shade}.png")
    words = [
        "search",
        str(tmp_path / "siglip"),
        "ein Hund",
        "--language",
        language,
        "--images",
        str(tmp_path / "photos"),
    ]
    done = CliRunner().invoke(app, [*words, "--top", "2", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert len(found["results"]) == 2
