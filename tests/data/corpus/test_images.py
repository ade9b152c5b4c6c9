"""Image files: which are opened, where they may lie, and how many may be left out."""

import os

import PIL.Image
import pytest

from babelens.data.corpus.images import image_bytes, path_inside, read_image
from babelens.data.corpus.normalize import refuse_mostly_bad
from babelens.processing.images import check_image, open_image
from babelens.utils.errors import CorpusError, ImageError


@pytest.mark.parametrize(
    ("bad", "checked", "refused"),
    [(1, 1, True), (18, 19, False), (10, 20, False), (11, 20, True)],
)
def test_skipping_is_for_a_few_of_many(bad, checked, refused):
    reasons = [f"row {row}: bad" for row in range(bad)]
    if not refused:
        refuse_mostly_bad(reasons, checked)
        return
    with pytest.raises(CorpusError, match=rf"^{checked - bad} of {checked} images can be read.* row 0: bad"):
        refuse_mostly_bad(reasons, checked)


@pytest.mark.parametrize("name", ["../a.png", "deep/../../a.png", "/etc/passwd"])
def test_names_that_leave_it_are_refused(name, tmp_path):
    with pytest.raises(CorpusError, match=r"^row 7: '.*' leaves the folder .*, without '\.\.'"):
        path_inside(tmp_path, name, "row 7")


@pytest.mark.parametrize("path", ["nowhere://x/a.png", "/not/there.png"])
def test_what_cannot_be_fetched_is_named(path):
    for read in (read_image, image_bytes):
        with pytest.raises(CorpusError, match=r"^row 3: "):
            read({"bytes": None, "path": path}, "row 3")


def test_a_link_to_an_image_is_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    PIL.Image.new("RGB", (3, 2), "red").save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "b.png").symlink_to("elsewhere/a.png")
    assert open_image(tmp_path / "b.png").size == (3, 2)
    cell = {"bytes": None, "path": str(tmp_path / "b.png")}
    assert image_bytes(cell, "row 0") == (tmp_path / "elsewhere" / "a.png").read_bytes()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    for opened in (open_image, check_image):
        with pytest.raises(ImageError, match=r"a\.png: not a file"):
            opened(tmp_path / "a.png")
    cell = {"bytes": None, "path": str(tmp_path / "a.png")}
    for read in (read_image, image_bytes):
        with pytest.raises(CorpusError, match=r"^row 0: .*not a file"):
            read(cell, "row 0")
