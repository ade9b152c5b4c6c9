"""Data that were damaged or made to do harm: every failure is an error that names the file and the row."""

import json
from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelens.data import load_captions
from babelens.data.batching.views import images_of
from babelens.utils.errors import CorpusError, LanguageTagError

ROW: dict[str, Any] = {"file_name": "0.png", "captions": {"en": "a"}}


def encoded(format="PNG", mode="RGB"):
    buffer = BytesIO()
    PIL.Image.effect_noise((24, 16), 60).convert(mode).save(buffer, format)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Three images in a folder beside a fourth."""
    (tmp_path / "secret.png").write_bytes(encoded())
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"{number}.png").write_bytes(encoded())
    return tmp_path / "data"


def with_metadata(folder, *rows):
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


class TestMetadata:
    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (ROW | {"image_id": [1]}, "image_id is"),
            (ROW | {"file_name": "../secret.png"}, "leaves the folder"),
            (ROW | {"file_name": "\ud800.png"}, "half of a surrogate pair"),
            (ROW | {"file_name": "0\0.png"}, "null (byte|character)"),
            ('{"file_name": "0.png", "captions": {"en": "a"}, "x": ' + "9" * 5000 + "}", "unusable JSON"),
        ],
    )
    def test_each_is_refused_with_its_line(self, folder, row, message):
        with_metadata(folder, ROW | {"number": 1, "artist": "Ada"}, "", row)
        with pytest.raises((CorpusError, LanguageTagError), match=rf"metadata\.jsonl line 3\b.*{message}"):
            list(load_captions(folder))


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(),
    2,
    [None, pa.py_buffer(bytes(pa.array([0, 2, 4], pa.int32()).buffers()[1])[:12]), pa.py_buffer(b"ok\xff\xfe")],
)
PNGS = [encoded(), encoded()]


class TestParquet:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"image": [1, 2]}, "row 0: the column 'image' is of type int64"),
            ({"image": PNGS, "image_id": [1.0, float("nan")]}, "row 1: image_id is nan"),
            ({"image": PNGS, "image_id": NOT_UTF8}, "row 0, or a row after it, has a text that is not UTF-8"),
            ({"image": PNGS, "caption": [b"a", b"b"]}, "row 0: b'a' is not a text"),
        ],
    )
    def test_each_is_refused_with_its_row(self, tmp_path, columns, message):
        pq.write_table(pa.table({"caption": ["a", "b"]} | columns), tmp_path / "x.parquet")
        with pytest.raises(CorpusError, match=rf"x\.parquet {message}"):
            load_captions(tmp_path / "x.parquet", language="en")

    @pytest.mark.parametrize("damage", ["offset", "empty"])
    def test_a_damaged_file_of_a_saved_corpus_is_refused(self, tmp_path, damage):
        """Arrow itself would read texts from outside of the file, and end the process."""
        pq.write_table(pa.table({"caption": ["a cat", "a dog"], "features": [[1.0], [2.0]]}), tmp_path / "x.parquet")
        load_captions(tmp_path / "x.parquet", language="en").save_to_disk(tmp_path / "saved")
        (file,) = (tmp_path / "saved").glob("*.arrow")
        data = bytearray(file.read_bytes())
        offsets = np.array([0, 5, 10], np.int32).tobytes()
        assert data.count(offsets) == 1
        if damage == "offset":
            place = data.index(offsets) + 8
            data[place : place + 4] = np.int32(2**31 - 1).tobytes()
        file.write_bytes({"cut": data[:-100], "offset": data, "empty": b""}[damage])
        with pytest.raises(CorpusError, match="saved: "):
            load_captions(tmp_path / "saved")

    @pytest.mark.parametrize("bad", [None, [1.0, float("inf")]])
    def test_features_that_are_none_are_refused_where_they_are_used(self, tmp_path, bad):
        table = pa.table({"caption": ["a", "b"], "features": pa.array([[1.0, 2.0], bad])})
        pq.write_table(table, tmp_path / "x.parquet")
        features: Any = images_of(load_captions(tmp_path / "x.parquet", language="en"))
        assert features[[0]].tolist() == [[1.0, 2.0]]
        with pytest.raises(CorpusError, match="row 1: the features of an image must be a list of finite numbers"):
            features[[0, 1]]
