import os

import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from babelens.inference.embedder import Embedder
from babelens.serving.service import ImageService
from babelens.utils.errors import CorpusError
from tests.support.served import serving
from tests.support.tiny_native import saved, tiny_clip


@pytest.fixture(scope="module")
def clip():
    return Embedder(*tiny_clip())


@pytest.fixture
def images(tmp_path):
    for place in ("inside/a.png", "inside/b.png", "outside/secret.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.effect_noise((32, 32), 80).save(tmp_path / place)
    return tmp_path / "inside"


def test_links_that_lead_out_are_left_out_and_named(clip, images, caplog):
    (images / "link.png").symlink_to(images.parent / "outside" / "secret.png")
    (images / "near.png").symlink_to("a.png")
    service = ImageService(clip, images, model="m")
    assert len(service) == 3 and "link.png" in caplog.text
    found = service.by_image((images / "link.png").read_bytes(), 10)
    assert sorted(image["file"] for image in found) == ["a.png", "b.png"]


def test_an_image_that_becomes_a_link_or_goes_is_not_served(clip, images):
    service = ImageService(clip, images, model="m")
    first, second = (image["id"] for image in service.listed(2))
    paths = service.path(first), service.path(second)
    for path in paths:
        path.unlink()
    paths[0].symlink_to(images.parent / "outside" / "secret.png")
    os.mkfifo(paths[1])  # reading it would wait for ever
    with serving(service) as server:
        for image in (first, second):
            for path in (f"/images/{image}", f"/thumbnails/{image}", f"/api/similar/{image}"):
                answer = server.ask(path)
                assert answer.status == 404 and "gone" in answer.json["error"]


def test_an_image_that_is_deleted_is_not_found_any_more(clip, images):
    for name in ("copy.png", "c.png", "d.png"):
        (images / name).write_bytes((images / "a.png").read_bytes() if name == "copy.png" else b"")
    for name in ("c.png", "d.png"):
        Image.effect_noise((32, 32), 80).save(images / name)
    service = ImageService(clip, images, model="m")
    with serving(service) as server:
        listed = server.ask("/api/images").json["results"]
        gone = {each["file"]: each["id"] for each in listed if each["file"] in ("a.png", "b.png", "c.png")}
        assert len(listed) == 5 and server.ask(f"/thumbnails/{gone['a.png']}").status == 200
        for name in gone:
            (images / name).unlink()
        for path in ("/api/search?q=a&language=en&top=2", "/api/images?top=2"):
            found = server.ask(path).json["results"]
            assert {each["file"] for each in found} == {"copy.png", "d.png"}, path
            assert not any(each["copies"] for each in found)
        for path in (f"/api/similar/{gone['b.png']}", f"/thumbnails/{gone['a.png']}", f"/images/{gone['c.png']}"):
            assert server.ask(path).status == 404
        (similar,) = server.upload((images / "d.png").read_bytes(), "/api/search-by-image?top=1").json["results"]
        assert similar["file"] == "d.png"


def test_an_empty_folder(clip, tmp_path):
    with pytest.raises(CorpusError, match="no images"):
        ImageService(clip, tmp_path, model="m")


def test_a_model_that_is_overwritten_changes_no_answer(images, tmp_path):
    """Loaded weights are mapped from their file; bytes that are written or cut off in place are not read any more."""
    weights = saved(tiny_clip(), tmp_path / "clip") / "model.safetensors"
    other = {name: 2 * weight + 1 for name, weight in load_file(weights).items()}
    save_file(other, tmp_path / "other.safetensors", metadata={"format": "pt"})
    service = ImageService(Embedder.from_pretrained(tmp_path / "clip"), images, model=str(tmp_path / "clip"))
    kept = {name: weight.clone() for name, weight in service.embedder.model.state_dict().items()}
    with weights.open("r+b") as file:
        file.write((tmp_path / "other.safetensors").read_bytes())
    now = service.embedder.model.state_dict()
    assert kept.keys() == now.keys() and all(kept[name].equal(now[name]) for name in kept)
    weights.write_bytes(b"")
    assert service.by_text("a dog", "en", 2)[0]
