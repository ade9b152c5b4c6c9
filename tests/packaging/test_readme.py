import runpy
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.tiny_native import saved

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_finds_an_image(make_mural, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(make_mural(), "clip-mi")
    Path("photos").mkdir()
    for shade in (0, 255):
        Image.fromarray(np.full((40, 40, 3), shade, np.uint8)).save(f"photos/{shade}.png")
    Path("example.py").write_text(README.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    runpy.run_path("example.py")
    assert capsys.readouterr().out.strip() in ("photos/0.png", "photos/255.png")
