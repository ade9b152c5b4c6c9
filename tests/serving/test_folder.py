"""What of a folder is served: no link that leads out of it, no bad image."""

import io
import os

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file
from served import serving
from tiny_native import saved, tiny_clip

from babelens.configuration.errors import CorpusError
from babelens.inference.embedder import Embedder
from babelens.serving.service import ImageService


@pytest.fixture(scope="module")
def clip():
    return Embedder(*tiny_clip())


@pytest.fixture
def images(tmp_path):
    for place in ("inside/a.png", "inside/b.png", "outside/secret.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.effect_noise((32, 32), 80).save(tmp_path / place)
    return tmp_path / "inside"


def test_an_upload_is_read_as_the_images_of_the_folder_are(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.effect_noise((800, 600), 90).convert("RGB").save(tmp_path / "photos" / "a.jpg")
    service = ImageService.of_folder(Embedder(*tiny_clip(), draft_jpegs=True), tmp_path / "photos", model="tiny")
    upload = service.opened_upload((tmp_path / "photos" / "a.jpg").read_bytes())
    assert upload.width < 800
    np.testing.assert_allclose(service.embedder.encode_image(upload), service.index.embeddings, atol=1e-6)


def test_links_that_lead_out_are_left_out_and_named(clip, images, caplog):
    (images / "link.png").symlink_to(images.parent / "outside" / "secret.png")
    (images / "near.png").symlink_to("a.png")
    service = ImageService.of_folder(clip, images, model="m")
    assert len(service) == 3 and "link.png" in caplog.text
    found = service.found(clip.encode_image(images / "link.png")[0], 10)
    assert sorted(image.file for image in found) == ["a.png", "b.png"]


def test_an_image_that_becomes_a_link_or_goes_is_not_served(clip, images):
    service = ImageService.of_folder(clip, images, model="m")
    first, second = (image.id for image in service.found(service.index.embeddings[0], 2))
    service.path(first).unlink()
    service.path(first).symlink_to(images.parent / "outside" / "secret.png")
    service.path(second).unlink()
    os.mkfifo(service.path(second))  # reading it would wait for ever
    with serving(service) as server:
        for image in (first, second):
            assert server.ask(f"/images/{image}").status == server.ask(f"/thumbnails/{image}").status == 404


def test_an_image_that_grows_while_it_is_sent_is_sent_as_it_was(clip, images, caplog):
    """As one is that is copied into the folder while it is looked at."""
    service = ImageService.of_folder(clip, images, model="m")

    class Growing(io.BufferedReader):
        def read(self, size=-1):
            with open(self.name, "ab") as file:
                file.write(b"more")
            return super().read(size)

    service.open = lambda image_id: Growing(io.FileIO(service.path(image_id)))
    path = images / "a.png"
    data = path.read_bytes()
    found = next(image for image in service.found(service.index.embeddings[0], 2) if image.file == "a.png")
    with serving(service) as server:
        assert server.ask(f"/images/{found.id}").body == data
    assert path.stat().st_size > len(data) and caplog.text == ""


def test_files_of_one_content_are_one_image(clip, images):
    for name in ("copy.png", "another/copy.png"):
        (images / name).parent.mkdir(exist_ok=True)
        (images / name).write_bytes((images / "a.png").read_bytes())
    service = ImageService.of_folder(clip, images, model="m")
    position = [path.name for path in service.index.paths].index("a.png")
    with serving(service) as server:
        found = server.ask("/api/search?q=a&language=en&top=9").json["results"]
        assert len(found) == len(service) - 2
        counts = {image["file"]: image["copies"] for image in found}
        assert sorted(counts.values()) == [0] * (len(counts) - 1) + [2]
        (shown,) = (image for image in service.found(service.index.embeddings[position], 1))
        assert shown.copies == 2
        similar = server.ask(f"/api/similar/{shown.id}?top=9").json["results"]
        assert len(similar) == len(found) - 1 and not any(image["copies"] for image in similar)


def test_bad_images_are_counted(clip, images):
    (images / "bad.png").write_bytes(b"no image")
    service = ImageService.of_folder(clip, images, model="m")
    with serving(service) as server:
        assert server.ask("/api/info").json["skipped"] == 1


def test_an_empty_folder(clip, tmp_path):
    with pytest.raises(CorpusError, match="no images"):
        ImageService.of_folder(clip, tmp_path, model="m")


def test_a_model_that_is_overwritten_changes_no_answer(images, tmp_path):
    """Loaded weights lie in their file; what is written into it in place, or cut off, is not read any more."""
    weights = saved(tiny_clip(), tmp_path / "clip") / "model.safetensors"
    other = {name: 2 * weight + 1 for name, weight in load_file(weights).items()}
    save_file(other, tmp_path / "other.safetensors", metadata={"format": "pt"})
    service = ImageService.of_folder(Embedder.from_pretrained(tmp_path / "clip"), images, model=str(tmp_path / "clip"))
    kept = {name: weight.clone() for name, weight in service.embedder.model.state_dict().items()}
    with weights.open("r+b") as file:
        file.write((tmp_path / "other.safetensors").read_bytes())
    now = service.embedder.model.state_dict()
    assert kept.keys() == now.keys() and all(kept[name].equal(now[name]) for name in kept)
    weights.write_bytes(b"")
    assert service.found(service.embedder.encode_text("a dog", language="en")[0], 2)
