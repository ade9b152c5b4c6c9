"""Data that were damaged or made to do harm: every failure is an error that names the file and the row."""

import json
import os
import random
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelens.data import load_captions, load_translations
from babelens.data.batching.views import images_of
from babelens.processing.images import check_image, open_image
from babelens.utils.errors import CorpusError, ImageError, LanguageTagError

ROW: dict[str, Any] = {"file_name": "0.png", "captions": {"en": "a"}}


def encoded(format: str = "PNG", mode: str = "RGB") -> bytes:
    buffer = BytesIO()
    PIL.Image.effect_noise((24, 16), 60).convert(mode).save(buffer, format)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images in a folder beside a fourth."""
    (tmp_path / "secret.png").write_bytes(encoded())
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"{number}.png").write_bytes(encoded())
    return tmp_path / "data"


def with_metadata(folder: Path, *rows: dict[str, Any] | str) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def nested(depth: int) -> str:
    return json.dumps(ROW)[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}"


class TestMetadata:
    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (ROW | {"image_id": None}, "image_id is None"),
            (ROW | {"file_name": "../secret.png"}, "leaves the folder"),
            (ROW | {"file_name": "\ud800.png"}, "half of a surrogate pair"),
            (ROW | {"file_name": "0\0.png"}, "null (byte|character)"),
            (ROW | {"captions": {"en": 10**30}}, "is not a text"),
            (ROW | {"number": "text"}, "'number' is 'text', which does not fit in a column"),
            ('{"file_name": "0.png", "captions": {"en": "a"}, "x": ' + "9" * 5000 + "}", "unusable JSON"),
        ],
    )
    @pytest.mark.parametrize("streaming", [False])
    def test_each_is_refused_with_its_line(
        self, folder: Path, row: dict[str, Any] | str, message: str, streaming: bool
    ) -> None:
        with_metadata(folder, ROW | {"number": 1, "artist": "Ada"}, "", row)
        with pytest.raises((CorpusError, LanguageTagError), match=rf"metadata\.jsonl line 3\b.*{message}"):
            list(load_captions(folder, streaming=streaming))

    @pytest.mark.timeout(60)
    def test_a_pipe_is_not_waited_for(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe.png")
        with_metadata(folder, ROW, ROW | {"file_name": "pipe.png"})
        with pytest.raises(CorpusError, match=r"line 2: .*pipe\.png: not a file"):
            load_captions(folder)
        assert len(load_captions(folder, on_bad_image="skip")) == 1


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
            ({"image": [1, 2]}, "row 0: the column 'image' is of type int64, not images"),
            ({"image": PNGS, "image_id": [1.0, float("nan")]}, "row 1: image_id is nan"),
            ({"image": PNGS, "image_id": NOT_UTF8}, "row 0, or a row after it, has a text that is not UTF-8"),
            ({"image": PNGS, "caption": [b"a", b"b"]}, "row 0: b'a' is not a text"),
        ],
    )
    def test_each_is_refused_with_its_row(self, tmp_path: Path, columns: dict[str, Any], message: str) -> None:
        pq.write_table(pa.table({"caption": ["a", "b"]} | columns), tmp_path / "x.parquet")
        with pytest.raises(CorpusError, match=rf"x\.parquet {message}"):
            load_captions(tmp_path / "x.parquet", language="en")

    @pytest.mark.parametrize("streaming", [False])
    def test_a_damaged_file_is_refused_by_name(self, tmp_path: Path, streaming: bool) -> None:
        pq.write_table(pa.table({"caption": ["a", "b"], "image": PNGS}), tmp_path / "x.parquet")
        data = bytearray((tmp_path / "x.parquet").read_bytes())
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # which describes the columns
        data[footer : footer + 4] = b"\x0f" * 4
        (tmp_path / "x.parquet").write_bytes(data)
        with pytest.raises(CorpusError, match=r"x\.parquet: .*deserialize"):
            load_captions(tmp_path / "x.parquet", language="en", streaming=streaming)

    @pytest.mark.parametrize("damage", ["offset", "empty"])
    def test_a_damaged_file_of_a_saved_corpus_is_refused(self, tmp_path: Path, damage: str) -> None:
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
    def test_features_that_are_none_are_refused_where_they_are_used(self, tmp_path: Path, bad: Any) -> None:
        table = pa.table({"caption": ["a", "b"], "features": pa.array([[1.0, 2.0], bad])})
        pq.write_table(table, tmp_path / "x.parquet")
        features: Any = images_of(load_captions(tmp_path / "x.parquet", language="en"))
        assert features[[0]].tolist() == [[1.0, 2.0]]
        with pytest.raises(CorpusError, match="row 1: the features of an image must be a list of finite numbers"):
            features[[0, 1]]


# ---- Many variants, drawn by chance ----

VALUES: list[Any] = [
    None, True, 0, -1, 10**30, 1e300, float("nan"), "", " ", "a", "\0", "\ud800", "ü" * 20_000, "../x", "/", "en",
    [], [[]], ["a"], [None], [1, "a"], {}, {"en": "a"}, {"en": None}, {"a": {"b": []}}, {"": 1},
    {"language": "en", "text": 1},
]  # fmt: skip


def refused_by_name(load: Callable[[], Any], file: Path) -> bool:
    """Whether loading fails. When it does, then with the file, and nothing but an error for users."""
    try:
        list(load())
    except (CorpusError, LanguageTagError) as error:
        assert str(file) in str(error), error
        return True
    return False


@pytest.mark.parametrize("streaming", [False])
def test_metadata_of_any_values(folder: Path, streaming: bool) -> None:
    chance = random.Random(7)
    refused = 0
    for _ in range(60):
        rows = [dict(ROW, file_name=f"{number}.png") for number in range(3)]
        for _ in range(chance.randint(1, 2)):
            names = ["file_name", "captions", "image_id", "features", "split", "caption", "image", "other"]
            chance.choice(rows)[chance.choice(names)] = chance.choice(VALUES)
        with_metadata(folder, *rows)
        refused += refused_by_name(lambda: load_captions(folder, streaming=streaming), folder)
    assert 10 < refused < 60


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_translations_of_any_bytes(tmp_path: Path, ending: str) -> None:
    chance = random.Random(8)
    rows = [{"en": f"cat {n}", "de": f"Katze {n}", "image_id": str(n)} for n in range(3)]
    lines = ["\t".join(row.values()) for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]]
    good = "\n".join(lines if ending == "tsv" else map(json.dumps, rows)).encode()
    pieces = [
        b"\t",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b'"',
        b"\\ud800",
        b"\xe2\x80\xa8",
        b"[" * 3000,
        b"{",
        b"9" * 5000,
    ]
    refused = 0
    for _ in range(80):
        data = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data))
            data[place : place + chance.choice([0, 0, 1, 9])] = chance.choice(pieces)
        (tmp_path / f"x.{ending}").write_bytes(data)
        refused += refused_by_name(lambda: load_translations(tmp_path / f"x.{ending}"), tmp_path / f"x.{ending}")
    assert refused > 10


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_images_of_any_bytes(tmp_path: Path) -> None:
    """Every broken file is an `ImageError`, or an image after all."""
    chance = random.Random(9)
    formats = {"PNG": "RGB", "JPEG": "RGB", "GIF": "P", "WEBP": "RGB", "TIFF": "L", "BMP": "RGB", "JPEG2000": "RGB"}
    good = [encoded(format, mode) for format, mode in formats.items()]
    refused = 0
    for number in range(300):
        data = bytearray(chance.choice(good))
        if number % 3 == 0:
            data = data[: chance.randrange(len(data))]
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data) or 1) : 0] = bytes([chance.randrange(256)])
            data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "x").write_bytes(data)
        for opened in (open_image, check_image):
            try:
                opened(tmp_path / "x", max_pixels=1_000_000)
            except ImageError as error:
                refused += 1
                assert str(tmp_path / "x") in str(error)
    assert refused > 200
