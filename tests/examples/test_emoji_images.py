"""The images of the emoji benchmark as files, for a page to search in."""

import runpy
import sys
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).parents[2] / "examples/emoji_images.py"


def test_images_have_english_names_and_their_licenses_beside_them(emoji_corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("babelens.data.load_emoji", lambda **options: emoji_corpus, raising=False)
    monkeypatch.setattr(sys, "argv", ["emoji_images.py", str(tmp_path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "Noto Emoji" in (tmp_path / "LICENSES.txt").read_text("utf-8")
    images = list(tmp_path.rglob("*.png"))
    assert images and all(Image.open(path).size[0] > 0 for path in images)
    assert str(tmp_path) in capsys.readouterr().out
