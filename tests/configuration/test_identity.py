import json
import shutil

import pytest
import torch

from babelens.inference.embedder import Embedder
from babelens.inference.image_index import image_identity
from babelens.utils.identity import file_state, folder_identity, model_identity
from tests.support.tiny_native import saved


def identity_of(folder):
    embedder = Embedder.from_pretrained(folder)
    return model_identity(embedder.model, embedder.processor)


@pytest.fixture
def folder(clip_folder, tmp_path):
    return shutil.copytree(clip_folder, tmp_path / "model")


def test_settings_count(folder):
    for file, part, key, value in (
        ("config.json", "text_config", "num_attention_heads", 1),
        ("processor_config.json", "image_processor", "do_rescale", False),
    ):
        before, on_disk = identity_of(folder), folder_identity(folder)
        content = json.loads((folder / file).read_text("utf-8"))
        content[part][key] = value
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
        assert folder_identity(folder) != on_disk and identity_of(folder) != before


def test_the_tokenizer_counts_and_how_it_was_called_does_not(folder):
    embedder = Embedder.from_pretrained(folder)
    before = model_identity(embedder.model, embedder.processor)
    embedder.encode_text(["a", "a dog and a cat"], language="en")
    assert model_identity(embedder.model, embedder.processor) == before
    embedder.processor.tokenizer.add_tokens(["unheard-of"])
    assert model_identity(embedder.model, embedder.processor) != before


def test_a_models_place_and_card_do_not_count(folder, tmp_path):
    before, on_disk = identity_of(folder), folder_identity(folder)
    moved = folder.rename(tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    told = {"_name_or_path": "elsewhere", "transformers_version": "5.0.0", "architectures": ["Other"]}
    (moved / "config.json").write_text(json.dumps(config | told, indent=7))
    for other in ("README.md", "evaluation/emoji.json", "checkpoints/checkpoint-1/model.safetensors"):
        (moved / other).parent.mkdir(parents=True, exist_ok=True)
        (moved / other).write_text("{}")
    assert identity_of(moved) == before
    assert folder_identity(moved) == on_disk
    assert folder_identity(tmp_path) is None


@pytest.mark.parametrize("make", ["make_mla", "make_ridge"])
def test_images_stay_when_languages_are_added(make, make_mla, request, tmp_path):
    base, base_processor = make_mla()[0].unload(), make_mla()[1]
    model, processor = request.getfixturevalue(make)()
    saved((model, processor), tmp_path / "model")
    loaded = Embedder.from_pretrained(tmp_path / "model")
    before = image_identity(base, base_processor)
    assert image_identity(loaded.model, loaded.processor) == before
    images = [torch.randint(0, 256, (30, 40, 3), dtype=torch.uint8).numpy() for _ in range(3)]
    assert (loaded.encode_image(images) == Embedder(base, base_processor).encode_image(images)).all()
    with torch.no_grad():
        next(model.native_model.vision_model.parameters()).view(-1)[0] += 1
    assert image_identity(model, processor) != before


def test_the_state_of_a_file_elsewhere_is_what_its_store_tells():
    import fsspec

    store = fsspec.filesystem("memory")
    address = "memory://identity/train-0.tar"
    assert file_state(address) == ""
    store.pipe(address, b"first")
    before = file_state(address)
    assert "5 bytes" in before and file_state(address) == before
    store.pipe(address, b"other")
    assert file_state(address) != before
    assert file_state("nothing-knows-this://x") == ""
