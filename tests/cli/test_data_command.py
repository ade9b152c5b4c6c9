"""`babelens data` on a corpus of one's own."""

import json
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from babelens.cli.data import data
from babelens.data import load_captions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images, two of them of one thing."""
    rows = [
        {
            "file_name": "a.png",
            "image_id": "cat",
            "split": "train",
            "captions": {"en": ["a cat", "cat"], "de": "Katze"},
        },
        {"file_name": "b.png", "image_id": "cat", "split": "test", "captions": {"en": "my cat"}},
        {"file_name": "c.png", "image_id": "sun", "split": "train", "captions": {"de": "die Sonne"}},
    ]
    for row, color in zip(rows, ("red", "green", "blue"), strict=True):
        Image.new("RGB", (20, 10), color).save(tmp_path / str(row["file_name"]))
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run_command(*arguments: str) -> Result:
    application = typer.Typer()
    application.command()(data)
    return CliRunner().invoke(application, arguments, catch_exceptions=False, env={"COLUMNS": "120"})


def test_statistics(folder: Path) -> None:
    assert json.loads(run_command(str(folder), "--json").stdout) == {
        "source": str(folder),
        "images": 3,
        "image_ids": 2,
        "captions": 5,
        "languages": {
            "de": {"captions": 2, "mean_characters": 7.0},
            "en": {"captions": 3, "mean_characters": 4.7},
        },
        "splits": {"train": 2, "test": 1},
        "skipped": [],
    }
    shown = run_command(str(folder)).stdout
    for part in ("3 images of 2 things", "en", "4.7", "Splits: train 2, test 1"):
        assert part in shown


def test_bad_images_are_listed(folder: Path) -> None:
    (folder / "b.png").write_bytes((folder / "b.png").read_bytes()[:40])
    shown = run_command(str(folder)).stdout
    assert "2 images of 2 things" in shown
    assert "Images left out: 1" in shown
    statistics = json.loads(run_command(str(folder), "--json").stdout)
    assert [(each["image_id"], "b.png" in each["place"] + each["reason"]) for each in statistics["skipped"]] == [
        ("cat", True)
    ]


def test_the_corpus_as_a_data_set_of_the_hub(folder: Path) -> None:
    run_command(str(folder), "--output", str(folder / "saved"))
    assert len(load_captions(folder / "saved", split="train")) == 2
