import copy
import random

import numpy as np
import pytest
import torch
from PIL import Image

from babelens.inference import embedder as embedder_module
from babelens.inference.embedder import Embedder
from babelens.inference.loading import as_output
from babelens.utils.errors import ImageError, InputError, LanguageTagError, ModelKindError
from tests.support.tiny_dual_encoders import KINDS

TEXTS = ["a cat", "ein sehr langer satz ohne ende", "b", "zwei rote autos", "ja"]


def image(seed: int, width: int = 20, height: int = 18) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


class LazyImages:
    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> Image.Image:
        self.asked.append(position)
        return image(position)


def test_text_embeddings_are_those_of_the_model_in_the_order_given(dual_encoder):
    model, processor = dual_encoder
    embeddings = Embedder(model, processor, batch_size=2).encode_text(TEXTS, language="de")
    assert embeddings.dtype == np.float32
    for text, embedding in zip(TEXTS, embeddings, strict=True):
        features = model.get_text_features(
            **processor(text=[text], truncation=True, return_tensors="pt")
        ).pooler_output[0]
        np.testing.assert_allclose(embedding, (features / features.norm()).detach().numpy(), atol=1e-6)


def test_image_embeddings_are_those_of_the_model(dual_encoder):
    model, processor = dual_encoder
    embeddings = Embedder(model, processor, batch_size=3).encode_image([image(seed) for seed in range(7)])
    pixels = processor(images=[image(seed) for seed in range(7)], return_tensors="pt")
    features = model.get_image_features(**pixels).pooler_output.detach()
    np.testing.assert_allclose(embeddings, torch.nn.functional.normalize(features).numpy(), atol=1e-6)
    assert embeddings.dtype == np.float32


@pytest.mark.parametrize("threads", [0, 2])
def test_images_are_asked_for_a_few_batches_at_a_time(clip_parts, monkeypatch, threads):
    model, processor = clip_parts
    images, asked_before_forward = LazyImages(40), []
    forward = model.get_image_features
    monkeypatch.setattr(embedder_module, "MAX_THREADS", threads)
    monkeypatch.setattr(
        model, "get_image_features", lambda **x: asked_before_forward.append(len(images.asked)) or forward(**x)
    )
    embeddings = Embedder(model, processor, batch_size=2).encode_image(images)
    ahead = [asked // 2 - turn for turn, asked in enumerate(asked_before_forward, start=1)]
    # One batch for each place of the queue, one that waits for a place, and one that is being read.
    assert ahead == [0] * 20 if threads == 0 else max(ahead) <= 2 * threads + 2
    assert images.asked == list(range(40))
    assert embeddings.shape == (40, 16)


def test_threads_compute_the_same_and_errors_come_in_order(clip_parts, monkeypatch, tmp_path):
    images = [image(seed) for seed in range(9)]
    found = []
    for threads in (0, 2):
        monkeypatch.setattr(embedder_module, "MAX_THREADS", threads)
        embedder = Embedder(*clip_parts, batch_size=2)
        found.append(embedder.encode_image(images))
        with pytest.raises(ImageError, match=r"5\.png"):
            embedder.encode_image([*images[:5], tmp_path / "5.png", *images, tmp_path / "6.png"])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("image", "complaint"), [(None, "NoneType"), ([5], r"images\[0\]"), ("a.png", "no such file")]
)
def test_what_is_no_image_is_refused(clip_parts, image, complaint):
    with pytest.raises(ImageError, match=complaint):
        Embedder(*clip_parts).encode_image(image)


def test_what_cannot_be_embedded_is_refused(clip_parts):
    with pytest.raises(LanguageTagError, match="klingonish"):
        Embedder(*clip_parts).encode_text(TEXTS, language="klingonish")
    with pytest.raises(ValueError, match="5 texts came with 2"):
        Embedder(*clip_parts).encode_text(TEXTS, language=["de", "en"])
    with pytest.raises(TypeError, match="CLIPTextModel"):
        Embedder(clip_parts[0].text_model, clip_parts[1])


def test_texts_that_are_cut_are_counted(make_mla, clip_parts, caplog, capfd):
    texts = ["a cat", "ein rotes Auto " * 80, "ja", "ein rotes Auto " * 80, "zwei " * 100]
    for parts, limit in ((clip_parts, clip_parts[1].tokenizer.model_max_length), (make_mla(), 64)):
        caplog.clear()
        Embedder(*parts, batch_size=2).encode_text(texts, language="de")
        (record,) = caplog.records
        expected = f"3 of 5 texts are longer than the {limit} tokens that the model reads, and were cut"
        assert record.getMessage().startswith(expected) and "text 1, 'ein rotes Auto" in record.getMessage()
        caplog.clear()
        Embedder(*parts).encode_text(texts[:1], language="de")
        assert not caplog.records
    assert "longer than the specified maximum" not in capfd.readouterr().err  # transformers' own, of a count


@pytest.mark.parametrize(("kind", "limit", "stated"), [("clip", 40, int(1e30)), ("siglip2", 64, 512)])
def test_texts_are_cut_where_the_tower_ends_or_the_processor_says(kind, limit, stated, caplog):
    """Also with a tokenizer that states more, or nothing."""
    model, processor = KINDS[kind]()
    processor.tokenizer.model_max_length = stated
    text = "a red circle " * 100
    found = Embedder(model, processor).encode_text([text, "a dot"])
    assert f"1 of 2 texts are longer than the {limit} tokens" in caplog.text
    settings = {"padding": "max_length" if "siglip" in kind else True, "truncation": True, "max_length": limit}
    inputs = processor(text=[text, "a dot"], return_tensors="pt", **settings)
    assert inputs["input_ids"].shape[1] == limit
    with torch.no_grad():
        expected = torch.nn.functional.normalize(as_output(model.get_text_features(**inputs)).pooler_output, dim=-1)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_training_goes_on_as_if_nothing_had_been_encoded(dual_encoder):
    """Modes of all modules, every random generator, parameters, gradients and the next training step are unchanged."""
    model = copy.deepcopy(dual_encoder[0]).train()
    model.text_model.embeddings.eval()  # a frozen part, as trainers keep it
    embedder = Embedder(model, dual_encoder[1], batch_size=2)
    tokens = dual_encoder[1](text=TEXTS, padding=True, truncation=True, return_tensors="pt")

    def training_step(encode: bool) -> tuple[torch.Tensor, list[torch.Tensor], tuple[float, ...]]:
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        if encode:
            embedder.encode_text(TEXTS, language="de")
            embedder.encode_image([image(0), image(1), image(2)])
        model.zero_grad()
        loss = model.get_text_features(**tokens).pooler_output.pow(2).mean()  # dropout draws from torch's generator
        loss.backward()
        draws = (float(torch.rand(())), np.random.rand(), random.random())
        return loss.detach(), [p.grad.clone() for p in model.text_model.parameters()], draws

    modes = {name: module.training for name, module in model.named_modules()}
    before = copy.deepcopy(model.state_dict())
    plain, disturbed = training_step(encode=False), training_step(encode=True)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert plain[0] == disturbed[0]
    assert plain[2] == disturbed[2]
    assert all(torch.equal(a, b) for a, b in zip(plain[1], disturbed[1], strict=True))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_from_pretrained_and_half_precision(clip_parts, clip_folder):
    ours = Embedder(*clip_parts).encode_text(TEXTS, language="de")
    loaded = Embedder.from_pretrained(clip_folder, batch_size=2, device="cpu")
    np.testing.assert_allclose(loaded.encode_text(TEXTS, language="de"), ours, atol=1e-6)
    half = Embedder.from_pretrained(clip_folder, dtype=torch.bfloat16, device="cpu")
    assert half.model.dtype == torch.bfloat16
    rough = half.encode_image([image(0)])
    assert rough.dtype == np.float32
    np.testing.assert_allclose(rough, loaded.encode_image([image(0)]), atol=0.03)


def test_what_is_not_finite_is_named(clip_parts, tmp_path):
    """A model in memory can be broken too; its numbers reach no file."""
    model = copy.deepcopy(clip_parts[0])
    model.text_model.embeddings.token_embedding.weight.data[clip_parts[1].tokenizer("z")["input_ids"][1]] = torch.inf
    embedder = Embedder(model, clip_parts[1], batch_size=2)
    with pytest.raises(InputError, match=r"'a z': CLIPModel computes"):
        embedder.encode_text(["abc", "a z", "abcde"], language="en")
    model.visual_projection.weight.data[0] = torch.nan
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png: CLIPModel"):
        embedder.encode_image([tmp_path / "a.png"])
    with pytest.raises(InputError, match=r"image 0: CLIPModel"):
        embedder.encode_image([Image.new("RGB", (8, 8))])


def test_texts_go_through_the_head_that_is_asked_for(make_mural, clip_parts):
    model, processor = make_mural()
    embedder = Embedder(model, processor)
    with torch.no_grad():
        inputs = processor(text=TEXTS, language="de", return_tensors="pt")
        features = {task: model.get_text_features(**inputs, task=task).pooler_output for task in model.config.tasks}
    for task, expected in features.items():
        found = embedder.encode_text(TEXTS, language="de", task=task, normalize=False)
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    by_default = embedder.encode_text(TEXTS, language="de", normalize=False)
    np.testing.assert_allclose(by_default, features["image_text"].numpy(), atol=1e-5)
    with pytest.raises(ModelKindError, match="has no head for 'triplet'; its tasks are image_text, text_text"):
        embedder.encode_text(TEXTS, language="de", task="triplet")
    with pytest.raises(ModelKindError, match="CLIPModel has no head for each task: leave out task='text_text'"):
        Embedder(*clip_parts).encode_text(TEXTS, language="en", task="text_text")
