import os
import sys

import pytest
from PIL import Image

from babelens.data.corpus.images import (
    check_image,
    image_bytes,
    path_inside,
    read_image,
    readable_images,
    skipped_line,
    walk_images,
)
from babelens.data.corpus.loading import refuse_mostly_bad
from babelens.evaluation.classification import ClassifiedImages
from babelens.processing import images
from babelens.processing.images import open_image
from babelens.utils.errors import CorpusError, ImageError


def photo(path, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(path)
    return path


def test_skipping_is_for_a_few_of_many():
    for bad, checked in ((18, 19), (10, 20)):
        refuse_mostly_bad(["row 0: bad"] * bad, checked)
    for bad, checked in ((1, 1), (11, 20)):
        with pytest.raises(CorpusError, match=rf"^{checked - bad} of {checked} images can be read.* row 0: bad"):
            refuse_mostly_bad(["row 0: bad"] * bad, checked)


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
    target = photo(tmp_path / "elsewhere" / "a.png", (3, 2))
    (tmp_path / "b.png").symlink_to("elsewhere/a.png")
    assert open_image(tmp_path / "b.png").size == (3, 2)
    assert image_bytes({"bytes": None, "path": str(tmp_path / "b.png")}, "row 0") == target.read_bytes()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    for opened in (open_image, check_image):
        with pytest.raises(ImageError, match=r"a\.png: not a file"):
            opened(tmp_path / "a.png")
    for read in (read_image, image_bytes):
        with pytest.raises(CorpusError, match=r"^row 0: .*not a file"):
            read({"bytes": None, "path": str(tmp_path / "a.png")}, "row 0")


HIDDEN = [
    ".thumbnails/a.jpg",
    ".Trash-1000/files/a.jpg",
    "album/._a.jpg",
    "@eaDir/a.jpg/SYNOPHOTO_THUMB_XL.jpg",
    "#recycle/a.jpg",
    "__MACOSX/a.jpg",
    "$RECYCLE.BIN/S-1-5-21/a.jpg",
    "FOUND.000/a.jpg",
    "Mine.photoslibrary/resources/derivatives/a.jpg",
    "Takeout/Google Fotos/Papierkorb/a.jpg",
]
VISIBLE = ["#wedding/a.jpg", "$100.jpg", "@home/a.jpg", "A.JPG", "M.photoslibrary/originals/0/a.jpg", "trash/a.jpg"]


@pytest.fixture
def without_heif(monkeypatch):
    images.readable_formats.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    yield
    images.readable_formats.cache_clear()


def listed(folder):
    skipped = {}
    return [name for name, _ in walk_images(folder, skipped)], skipped


def test_hidden_and_system_names_are_passed_over_without_a_word(tmp_path):
    for name in (*HIDDEN, *VISIBLE):
        photo(tmp_path / name)
    found, skipped = listed(tmp_path)
    assert (sorted(found), skipped) == (sorted(VISIBLE), {})
    assert listed(tmp_path / ".thumbnails") == (["a.jpg"], {})  # a folder that is given is read though it is hidden


def test_what_cannot_be_read_is_skipped_with_its_reason(tmp_path, without_heif, monkeypatch):
    (tmp_path / "cut.jpg").write_bytes(photo(tmp_path / "a.jpg", (64, 64)).read_bytes()[:-200])
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("<html>404</html>")
    (tmp_path / "b.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "really-heic.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    (tmp_path / "raw.CR2").write_bytes(b"II")
    (tmp_path / "logo.svg").write_text("<svg/>")
    photo(tmp_path / "bomb.png", (300, 300))
    photo(tmp_path / "thin.png", (1000, 1))
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    photo(tmp_path / "folder.jpg" / "inside.jpg")
    monkeypatch.setattr(images, "MAX_PIXELS", 250 * 250)
    skipped = {}
    assert [path.name for path in readable_images(tmp_path, skipped)] == ["a.jpg", "inside.jpg"]
    assert set(skipped) == {path.name for path in tmp_path.iterdir()} - {"a.jpg", "folder.jpg"}
    assert skipped["b.HEIC"] == skipped["really-heic.jpg"] and "pillow-heif" in skipped["b.HEIC"]
    assert "truncated" in skipped["cut.jpg"] and "link" in skipped["gone.jpg"] and "link" in skipped["loop.jpg"]
    assert "SVG" in skipped["logo.svg"] and "RAW" in skipped["raw.CR2"] and skipped["empty.png"] == "empty"


def test_links_to_folders_end_and_lose_no_photo_silently(tmp_path):
    photo(tmp_path / "in" / "a.jpg")
    photo(tmp_path / "out" / "b.jpg")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in", target_is_directory=True)
    (tmp_path / "in" / "more").symlink_to(tmp_path / "out", target_is_directory=True)
    names, skipped = listed(tmp_path / "in")
    assert names == ["a.jpg"] and [*skipped] == ["more/"]


def test_one_line_counts_and_names_by_reason():
    skipped = {f"{number}.svg": "SVG is not supported" for number in range(5)} | {"\x1b[2J\n.jpg": "empty"}
    line = skipped_line(skipped, 4)
    assert line.startswith("6 of 10 files") and line.count("SVG") == 1 and "and 2 more" in line
    assert line.isprintable()


def test_heic_is_read_where_pillow_heif_is_installed(tmp_path):
    pytest.importorskip("pillow_heif")
    images.readable_formats()  # registers what writes it
    Image.new("RGB", (16, 8), "blue").save(tmp_path / "a.HEIC", "HEIF")
    assert listed(tmp_path) == (["a.HEIC"], {})
    image = open_image(tmp_path / "a.HEIC")
    assert image.size == (16, 8) and image.getpixel((4, 4))[2] > 200


def test_class_folders_have_hidden_ones_and_bad_images_too(tmp_path, caplog):
    for name in ("cat/a.jpg", "dog/b.jpg", ".ipynb_checkpoints/c.jpg", "__MACOSX/cat/._a.jpg"):
        photo(tmp_path / name)
    (tmp_path / "dog" / "broken.jpg").write_bytes(b"none")
    found = ClassifiedImages.of_folder(tmp_path)
    assert found.classes == ["cat", "dog"] and found.targets.tolist() == [0, 1]
    assert "dog/broken.jpg" in caplog.text
    (tmp_path / "dog" / "b.jpg").unlink()
    with pytest.raises(CorpusError, match=r"'dog'.*broken\.jpg"):
        ClassifiedImages.of_folder(tmp_path)
