"""Caption corpora as data sets of the Hub: read again by `datasets` and by `load_captions`, images included."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from PIL import Image

from babelens.data import load_captions, save_captions


@pytest.fixture
def photos(tmp_path):
    """Three images as files, in two splits."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = [
        {"file_name": "a.png", "split": "train", "captions": {"en": ["a cat", "cat"], "zh-Hant": "貓"}},
        {"file_name": "b.png", "split": "test", "captions": {"en": "my cat"}},
        {"file_name": "c.png", "split": "train", "captions": {"zh-Hant": "太陽"}},
    ]
    for row, color in zip(rows, ("red", "green", "blue"), strict=True):
        Image.new("RGB", (20, 10), color).save(folder / row["file_name"])
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def as_rows(corpus):
    return [row | {"image": row["image"].tobytes()} for row in corpus]


def test_a_data_set_that_the_viewer_reads(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("babelens.data.corpus.loading._IMAGES_IN_FILE", 1)
    corpus = load_captions(photos)
    expected = as_rows(corpus)
    saved = save_captions(corpus, tmp_path / "saved")
    shutil.rmtree(photos)  # the images are in the files
    files = ["test-00000-of-00001", "train-00000-of-00002", "train-00001-of-00002"]
    assert sorted(path.stem for path in (saved / "data").iterdir()) == files
    images = pq.read_table(saved / "data" / f"{files[0]}.parquet")["image"].to_pylist()
    assert images[0]["bytes"].startswith(b"\x89PNG") and str(tmp_path) not in str(images[0]["path"])

    read = load_dataset(str(saved), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in read.items()} == {"train": 2, "test": 1}
    assert as_rows(read["test"]) == [expected[1]]
    for split, rows in {"train": expected[::2], "test": expected[1:2]}.items():
        assert as_rows(load_captions(saved, split=split)) == rows


def test_another_data_set_of_the_same_name(photos, tmp_path):
    """Neither one in another folder nor an earlier one in the same folder is taken for it."""
    corpus = load_captions(photos)
    for row, folder in [(0, tmp_path / "one" / "saved"), (1, tmp_path / "two" / "saved")]:
        folder.parent.mkdir()
        save_captions(corpus.select([row]), folder)
        assert as_rows(load_captions(folder)) == as_rows(corpus.select([row]))
        assert as_rows(load_captions(folder)) == as_rows(corpus.select([row]))  # from the cache
    shutil.rmtree(folder)
    save_captions(corpus.select([2]), folder)
    assert as_rows(load_captions(folder)) == as_rows(corpus.select([2]))
