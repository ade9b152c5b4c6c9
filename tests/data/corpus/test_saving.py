"""Caption corpora as data sets of the Hub: read again by `datasets` and by `load_captions`, images included."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from huggingface_hub import DatasetCard
from PIL import Image

from babelens.data import load_captions, save_captions
from babelens.utils.errors import CorpusError, SaveError


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
    monkeypatch.setattr("babelens.data.corpus.parquet_files._IMAGES_IN_FILE", 1)
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


def test_its_card(photos, tmp_path):
    card = DatasetCard.load(save_captions(load_captions(photos), tmp_path / "saved") / "README.md")
    assert card.data.language == ["en", "zh"] and card.data.language_bcp47 == ["en", "zh-Hant"]
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in ("train", "test")]
    assert card.data.configs == [{"config_name": "default", "data_files": files}]
    assert "3 images with captions in en, zh-Hant." in card.text


def test_what_cannot_be_saved(photos, tmp_path):
    corpus = load_captions(photos)
    with pytest.raises(SaveError, match="exists: name a new folder"):
        save_captions(corpus, photos)
    with pytest.raises(CorpusError, match="without rows"):
        save_captions(corpus.select([]), tmp_path / "saved")
    odd = corpus.remove_columns("split").add_column("split", ["val-2014"] * 3)
    with pytest.raises(CorpusError, match="split 'val-2014' of row 0"):
        save_captions(odd, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
