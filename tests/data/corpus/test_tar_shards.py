import io
import json
import os
import tarfile
import tracemalloc
import unicodedata

import PIL.Image
import pytest
from datasets import IterableDataset

from babelens.data.corpus.files import MAX_BYTES, MAX_IMAGE_BYTES
from babelens.data.corpus.loading import load_captions
from babelens.utils.errors import CorpusError
from tests.support.image_sources import add_member


def image(shade=0, format="PNG"):
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (8, 8), (shade, shade, shade)).save(buffer, format)
    return buffer.getvalue()


def write_tar(file, members):
    with tarfile.open(file, "w") as tar:
        for name, content in members.items():
            add_member(tar, name, content if isinstance(content, bytes) else json.dumps(content).encode())
    return file


@pytest.fixture
def shards(tmp_path):
    for shard in range(3):
        members = {}
        for number in range(7):
            name = f"{shard}/{number}"
            captions = {"en": [f"en {name}", f"en {name} again"]} | ({"fr": f"fr {name}"} if number == 6 else {})
            members |= {f"{name}.png": image(shard), f"{name}.cls": b"5", f"{name}.json": {"captions": captions}}
        write_tar(tmp_path / f"train-{shard:03}.tar", members)
    return tmp_path


def test_every_sample_is_a_row(shards, monkeypatch):
    (shards / "._train-000.tar").write_bytes(b"\0\5\x16\7")  # of macOS
    stream = load_captions(shards, streaming=True)
    assert isinstance(stream, IterableDataset) and stream.num_shards == 3
    rows = list(stream)
    assert [row["image_id"] for row in rows] == [f"{shard}/{number}" for shard in range(3) for number in range(7)]
    assert [caption["language"] for caption in rows[6]["captions"]] == ["en", "en", "fr"]
    assert [row["image"].getpixel((0, 0))[0] for row in rows] == [0] * 7 + [1] * 7 + [2] * 7
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", shards / "cache")
    copied = load_captions(shards)
    assert [row | {"image": None} for row in copied] == [row | {"image": None} for row in rows]
    assert copied[20]["image"].getpixel((0, 0))[0] == 2


def test_captions_may_be_plain_text(tmp_path):
    members = {"a.JPG": image(1, "JPEG"), "a.txt": b"ein Hund", "b.webp": image(1, "WEBP")}
    members |= {"b.json": {"caption": "eine Katze", "width": 8}, "b.txt": b"not this"}
    members |= {"c.png": image(), "c.json": {"caption": None}, "c.txt": b"ein Fisch"}
    # A disk may compose the letters of a name in two ways.
    members |= {f"{unicodedata.normalize('NFD', 'Käse')}.png": image(), "K\u00e4se.txt": b"Brot"}
    file = write_tar(tmp_path / "a.tar", members)
    stream = load_captions(file, streaming=True, language="de")
    assert [row["captions"][0]["text"] for row in stream] == ["ein Hund", "eine Katze", "ein Fisch", "Brot"]
    with pytest.raises(CorpusError, match=r"a\.tar a: 'ein Hund' has no language"):
        list(load_captions(file, streaming=True))


@pytest.mark.parametrize("kept", [0.5, 0.51])
def test_a_torn_shard_is_refused(shards, kept):
    """`tarfile` would read a file that is truncated between two members as complete."""
    file = shards / "train-001.tar"
    file.write_bytes(file.read_bytes()[: int(kept * 7 * 3 * 1024)])  # a header and a block for each member
    with pytest.raises(CorpusError, match=r"train-001\.tar: (the archive was cut off|unexpected end of data)"):
        list(load_captions(shards, streaming=True))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.png": image(), "a.json": b"{"}, "a: unusable JSON"),
        ({"a.png": image()}, "a: 0 texts"),
        ({"a.txt": b"a"}, "a: no image"),
        ({"a.png": b"?", "a.txt": b"a"}, "a: image of 1 bytes: not an image"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, members, message):
    write_tar(tmp_path / "odd.tar", members)
    with pytest.raises(CorpusError, match=rf"odd\.tar {message}"):
        list(load_captions(tmp_path / "odd.tar", streaming=True, language="en"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.png": MAX_IMAGE_BYTES + 1, "a.txt": 1}, r"a\.png: 268,435,457 bytes, where 268,435,456 are allowed"),
        ({"a.png": 1, "a.json": MAX_BYTES + 1}, r"a\.json: 33,554,433 bytes, where 33,554,432 are allowed"),
        ({"a" * 2_000_000: 1}, r"a header of 2,0\d\d,\d\d\d bytes, where 1,048,576 are allowed"),
    ],
)
def test_a_small_archive_of_large_members_is_refused(tmp_path, members, message):
    """A file of 300 kB decompresses to 256 MB; only a megabyte or so may be in memory at a time."""
    file = tmp_path / "a.tar"
    with (
        tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar,
        open("/dev/zero", "rb") as zeros,
    ):
        for name, size in members.items():
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, zeros)
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match=rf"a\.tar:? {message}"):
            list(load_captions(tmp_path / "a.tar", streaming=True, language="en"))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(60)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(CorpusError, match=r"a\.tar: not a file"):
        list(load_captions(tmp_path, streaming=True, language="en"))
