"""What of a folder is served: no link that leads out of it, no bad image; and when an index is out of date."""

import io
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file
from served import serving
from tiny_native import saved, tiny_clip

from babelens.configuration.errors import BadImageError, CorpusError
from babelens.inference.embedder import Embedder
from babelens.inference.image_index import ImageIndex
from babelens.serving.running import identity_of
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
    assert sorted(image.file for image in found) == ["a.png", "b.png", "near.png"]


def test_an_image_that_becomes_a_link_or_goes_is_not_served(clip, images):
    service = ImageService.of_folder(clip, images, model="m")
    first, second = (image.id for image in service.found(service.index.embeddings[0], 2))
    service.path(first).unlink()
    service.path(first).symlink_to(images.parent / "outside" / "secret.png")
    service.path(second).unlink()
    os.mkfifo(service.path(second))  # reading it would wait for ever
    assert not service.is_current()
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


def test_it_is_current_until_an_image_or_the_model_changes(clip, images, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    service = ImageService.of_folder(clip, images, model=str(model))
    assert service.is_current()
    Image.new("RGB", (8, 8)).save(images / "c.png")
    assert not service.is_current()
    service = ImageService.of_folder(clip, images, model=str(model))
    (model / "config.json").write_text(json.dumps({"a": 1}))
    assert not service.is_current()


def test_a_model_that_changes_while_images_are_encoded_is_not_current(clip, images, tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    file.write_text("{}")
    of_folder = ImageIndex.of_folder

    def changed(*arguments, **options):
        file.write_text(json.dumps({"a": 1}))
        return of_folder(*arguments, **options)

    monkeypatch.setattr(ImageIndex, "of_folder", changed)
    assert not ImageService.of_folder(clip, images, model=str(tmp_path)).is_current()


def test_what_another_program_is_told_of_a_folder_with_odd_names_and_of_one_that_is_gone(clip, tmp_path, caplog):
    folder = tmp_path / os.fsdecode(b"photos \xfe")
    folder.mkdir()
    for number in range(3):
        Image.effect_noise((32, 32), 80).save(folder / f"{number}.png")
    (folder / os.fsdecode(b"bad \xff.png")).write_bytes(b"no image")
    service = ImageService.of_folder(clip, folder, model="m", skip_bad_images=True)
    identity = identity_of("m", folder, service.fingerprint, "the secret")
    asking = {"Authorization": "Bearer the secret"}
    with serving(service, identity=identity) as server:
        told = server.ask("/api/identity", **asking).json
        assert told["is_current"] and told["folder"] == identity["folder"] and [*told["skipped"]] == ["bad \ufffd.png"]
        shutil.rmtree(folder)
        assert server.ask("/api/identity", **asking).json["is_current"] is False
    assert caplog.text == ""


def test_bad_images_are_an_error_or_counted(clip, images):
    (images / "bad.png").write_bytes(b"no image")
    with pytest.raises(BadImageError, match=r"bad\.png"):
        ImageService.of_folder(clip, images, model="m")
    service = ImageService.of_folder(clip, images, model="m", skip_bad_images=True)
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
