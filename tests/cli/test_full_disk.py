"""A full disk while a command writes its result: one sentence, and nothing left behind."""

import json
import re
import resource
from contextlib import contextmanager

import pytest

from tests.support.tiny_checkpoints import CHECKPOINTS
from tests.support.tiny_native import saved


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small_disk():
    """No file can grow beyond so many bytes, which libraries see as they see a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextmanager
    def limited(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.mark.parametrize(
    ("command", "size"),
    [
        (["evaluate", "captions", "MODEL", "--data", "IMAGES", "--output", "OUT/r.json"], 200),
        (["trim", "MBERT", "--texts", "TEXTS", "--output", "OUT/model"], 20_000),
    ],
)
def test_a_full_disk_is_one_sentence_and_nothing_is_left(run, small_disk, model, images, tmp_path, command, size):
    rows = [
        {"file_name": path.name, "captions": {"en": [f"thing {number}"]}}
        for number, path in enumerate(sorted(images.glob("*.png")))
    ]
    (images / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "texts").write_text("cat\n")
    (tmp_path / "out").mkdir()
    mbert = saved(CHECKPOINTS["mbert"](), tmp_path / "mbert") if "MBERT" in command else None
    places = {"MODEL": model, "MBERT": mbert, "IMAGES": images, "TEXTS": tmp_path / "texts"}
    arguments = [str(places.get(each, each)).replace("OUT", str(tmp_path / "out")) for each in command]
    with small_disk(size):
        error = run(*arguments, code=1).exception
    assert isinstance(error, OSError), error
    assert re.search("written|save|large", str(error)) and "\n" not in str(error)
    assert list((tmp_path / "out").iterdir()) == []
    run(*arguments)
