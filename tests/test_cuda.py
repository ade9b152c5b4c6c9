import copy

import numpy as np
import pytest
import torch

from babelens import Embedder, MuralModel, RidgeModel, teach
from tests.support.tiny_dual_encoders import EXPORTED, KINDS, VIT, tiny_xlm_roberta
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import shapes_texts, shapes_trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

IMAGES = [np.full((32, 32, 3), shade, dtype=np.uint8) for shade in (0, 90, 255)]


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch):
    """Without TF32, which torch allows in convolutions."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def embeddings(model, processor, device, dtype=None):
    language = next(iter(getattr(model.config, "languages", None) or ()), None)
    embedder = Embedder(copy.deepcopy(model), processor, device=device, dtype=dtype)
    texts = embedder.encode_text(shapes_texts()[:4], language=language)
    return np.concatenate([texts, embedder.encode_image(IMAGES)])


@pytest.mark.parametrize("kind", [*EXPORTED, *(kind for kind in KINDS if kind not in EXPORTED)])
def test_embeddings_are_those_of_the_cpu(kind):
    model, processor = {**KINDS, **EXPORTED}[kind]()
    on_cpu = embeddings(model, processor, "cpu")
    np.testing.assert_allclose(embeddings(model, processor, "cuda"), on_cpu, atol=1e-4)
    assert (embeddings(model, processor, "cuda", torch.bfloat16) * on_cpu).sum(1).min() > 0.99


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("chunk", [None, 4])
def test_training_steps_are_those_of_the_cpu(tmp_path, precision, chunk):
    losses = []
    for device in ("cpu", "cuda"):
        settings = {"max_steps": 3, "precision": precision, "use_cpu": device == "cpu", "embed_chunk_size": chunk}
        vision = VIT | {"model_type": "clip_vision_model"}  # a convolutional tower normalizes each chunk by itself
        trainer = shapes_trainer(tmp_path / device, vision=vision, dropout=0.0, logging_steps=1, **settings)
        trainer.train()
        assert trainer.model.device.type == device
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3 if precision == "float32" else 0.05)


@pytest.mark.parametrize("encoder", [False, True])
def test_acquire_reads_on_the_device_and_learns_what_it_learns_on_the_cpu(tmp_path, monkeypatch, encoder):
    base = str(saved(tiny_clip(), tmp_path / "base"))
    text_encoder = str(saved(tiny_xlm_roberta(), tmp_path / "encoder")) if encoder else None
    sources = {"mi": [(text[::-1], text) for text in shapes_texts()]}
    found, read_on = {}, set()
    forward = RidgeModel.encoder_features

    def watched(self, input_ids, *others):
        read_on.add(input_ids.device.type)
        return forward(self, input_ids, *others)

    monkeypatch.setattr(RidgeModel, "encoder_features", watched)
    for device in ("cuda", "cpu"):
        if device == "cpu":
            monkeypatch.setattr("babelens.acquire.default_device", lambda: None)
        monkeypatch.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", tmp_path / f"{device} features")
        options = {"names": False, "precision": "float32"}
        model = teach(base, sources, text_encoder, output=tmp_path / device, **options)
        assert model.device.type == "cpu"
        if encoder:
            assert read_on == {device}
        embedder = Embedder.from_pretrained(str(tmp_path / device), device="cpu")
        found[device] = embedder.encode_text([text[::-1] for text in shapes_texts()], language="mi")
        read_on.clear()
    assert (found["cuda"] * found["cpu"]).sum(1).min() > 0.999


def test_a_folder_loads_onto_the_device(tmp_path):
    model, processor = KINDS["mural"]()
    folder = saved((model, processor), tmp_path / "mural")
    expected = embeddings(model, processor, "cpu")
    loaded = MuralModel.from_pretrained(folder, device_map="cuda")
    assert loaded.device.type == "cuda"
    np.testing.assert_allclose(embeddings(loaded, processor, "cuda"), expected, atol=1e-4)
