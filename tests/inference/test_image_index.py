import os

import numpy as np
import pytest
from PIL import Image

from babelens.inference.embedder import Embedder
from babelens.inference.image_index import ImageIndex


class CountingEmbedder(Embedder):
    encoded: list[list[str]]

    def encode_image(self, images, **options):
        self.encoded = [*getattr(self, "encoded", []), [path.name for path in images]]
        return super().encode_image(images, **options)


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for name in ("b.png", "a.jpg", "inner/c.webp"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    return tmp_path / "images"


def test_only_new_and_changed_images_are_encoded_again(clip_parts, folder, tmp_path):
    embedder = CountingEmbedder(*clip_parts)
    first = ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
    again = ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
    np.testing.assert_array_equal(first.embeddings, again.embeddings)
    Image.new("RGB", (20, 20), "red").save(folder / "b.png")
    os.utime(folder / "b.png", ns=(1, 1))
    Image.new("RGB", (20, 20), "blue").save(folder / "d.png")
    (folder / "a.jpg").unlink()
    changed = ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
    assert embedder.encoded == [["a.jpg", "b.png", "c.webp"], [], ["b.png", "d.png"]]
    assert [path.name for path in changed.paths] == ["b.png", "d.png", "c.webp"]
    np.testing.assert_allclose(changed.embeddings, embedder.encode_image(changed.paths), atol=1e-6)


def test_bad_images_are_skipped_and_named_in_one_line(clip_parts, folder, tmp_path, caplog):
    (folder / "broken.png").write_bytes((folder / "b.png").read_bytes()[:100])
    Image.new("RGB", (10_000, 1)).save(folder / "thin.png")
    (folder / "inner" / "raw.nef").touch()
    (folder / "._a.jpg").write_bytes(b"resource fork")
    embedder = Embedder(*clip_parts)
    for _ in range(2):  # the second time, the others come from the cache
        caplog.clear()
        index = ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
        assert {path.relative_to(folder).as_posix() for path in index.skipped} == {
            *("broken.png", "thin.png", "inner/raw.nef")
        }
        assert len(index.paths) == len(index.embeddings) == 3
        (line,) = caplog.messages
        assert "3 of 6 files" in line and all(path.name in line for path in index.skipped) and "._a" not in line


@pytest.mark.parametrize("damage", ["truncated", "nan", "pickle"])
def test_a_damaged_cache_is_named_and_written_anew(clip_parts, folder, tmp_path, caplog, damage):
    embedder = CountingEmbedder(*clip_parts)
    sound = ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
    (store,) = (tmp_path / "cache").iterdir()
    with np.load(store) as arrays:
        states, embeddings = arrays["states"], arrays["embeddings"]
    if damage == "truncated":
        store.write_bytes(store.read_bytes()[:-30])
    else:
        spoiled = embeddings * np.float32("nan") if damage == "nan" else np.array([{}, {}, {}])
        np.savez(store, states=states, embeddings=spoiled)
    again = ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
    np.testing.assert_array_equal(sound.embeddings, again.embeddings)
    assert f"{store} is damaged" in caplog.text and "encoded again" in caplog.text
    caplog.clear()
    ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache")
    assert [len(names) for names in embedder.encoded] == [3, 3, 0] and not caplog.text


def test_files_of_one_content_are_found_once(clip_parts, folder):
    for name in ("a copy.jpg", "inner/a.jpg"):
        (folder / name).write_bytes((folder / "a.jpg").read_bytes())
    Image.open(folder / "a.jpg").save(folder / "e.png")  # the same picture in another file: not a copy
    embedder = Embedder(*clip_parts)
    index = ImageIndex.of_folder(embedder, folder)
    query = embedder.encode_image(folder / "a.jpg")[0]
    for top in (1, 2, 9):
        found = index.search(query, top)
        files = {tuple(sorted(path.name for path in (image.path, *image.copies))) for image in found}
        assert len(found) == min(top, 4)
        assert ("a copy.jpg", "a.jpg", "a.jpg") in files or (("e.png",) in files and top == 1)
        assert [image.score for image in found] == sorted((image.score for image in found), reverse=True)
    left_out = index.search(query, 9, {folder / "a.jpg", folder / "b.png"})
    assert sorted(len(image.copies) for image in left_out) == [0, 0, 1]


def test_names_that_are_no_utf8(clip_parts, folder, tmp_path):
    os.rename(os.fsencode(folder / "b.png"), os.fsencode(folder) + b"/b\xff.png")
    folder = folder.rename(os.fsdecode(os.fsencode(tmp_path) + b"/images\xe9"))
    embedder = CountingEmbedder(*clip_parts)
    for _ in range(2):
        assert len(ImageIndex.of_folder(embedder, folder, cache=tmp_path / "cache").paths) == 3
    assert [len(names) for names in embedder.encoded] == [3, 0]
