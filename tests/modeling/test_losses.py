import json
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from babelens import MlaModel
from babelens.modeling import losses
from babelens.utils.errors import ModelKindError
from tests.support.tiny_native import tiny_siglip

FIXTURES = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_mural.json").read_text())
TILES = (1, 3, 4, 6, 7, 100)  # of 7 rows: one row, tiles that do not divide, one tile, more than there is
LABELS = torch.tensor([4, 0, 4, 1, 2, 4, 2])
GROUPINGS = torch.tensor([[4, 0, 4, 1, 2, 4, 2], [0, 0, 1, 2, 3, 4, 5]])
ONE_WAY = torch.zeros(7, 7, dtype=torch.bool)  # right in one direction only, and the diagonal not marked
ONE_WAY[0, 3] = ONE_WAY[5, 1] = ONE_WAY[5, 2] = True
POSITIVES = {"none": None, "labels": LABELS, "groupings": GROUPINGS, "mask": ONE_WAY}


def embeddings(
    count: int = 7, width: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(count, width, dtype=torch.float64, generator=generator) for _ in range(2))
    return x.to(dtype).requires_grad_(), (y + 0.5 * x.detach()).to(dtype).requires_grad_()


def is_further_positive(positives: torch.Tensor | None, i: int, j: int) -> bool:
    if positives is None or i == j:
        return False
    if positives.dtype == torch.bool:
        return bool(positives[i, j])
    return any(labels[i] == labels[j] for labels in positives.reshape(-1, positives.shape[-1]))


def reference(x, y, temperature, *, margin=0.0, label_smoothing=0.0, positives=None):
    count = len(x)

    def logit(i, j):
        cosine = (x[i] * y[j]).sum() / ((x[i] ** 2).sum().sqrt() * (y[j] ** 2).sum().sqrt())
        return (cosine - (margin if i == j else 0)) / temperature

    x_to_y = y_to_x = 0
    for i in range(count):
        row = {j: logit(i, j) for j in range(count) if not is_further_positive(positives, i, j)}
        column = {j: logit(j, i) for j in range(count) if not is_further_positive(positives, j, i)}
        x_to_y = x_to_y + smoothed_cross_entropy(row, i, label_smoothing) / count
        y_to_x = y_to_x + smoothed_cross_entropy(column, i, label_smoothing) / count
    return x_to_y, y_to_x


def smoothed_cross_entropy(logits, right, label_smoothing):
    normaliser = sum((value - logits[right]).exp() for value in logits.values()).log() + logits[right]
    uniform = sum(normaliser - value for value in logits.values()) / len(logits)
    return (1 - label_smoothing) * (normaliser - logits[right]) + label_smoothing * uniform


def value_and_gradients(loss, x, y, temperature, **options) -> list[torch.Tensor]:
    x_to_y, y_to_x = loss(x, y, temperature, **options)
    return [x_to_y, y_to_x, *torch.autograd.grad(x_to_y + 0.3 * y_to_x, (x, y, temperature))]


def inputs(method: str, *names: str) -> list[torch.Tensor]:
    return [torch.tensor(FIXTURES[method]["inputs"][name], dtype=torch.float64) for name in names]


@pytest.mark.parametrize("tile_size", [None, 4])
def test_mural_fixture(tile_size):
    expected = FIXTURES["mural"]
    image, text = inputs("mural", "image", "text")
    left, right = inputs("mural", "left", "right")
    for temperature in (1.0, 0.07):
        i2t, t2i = losses.contrastive_loss(image, text, temperature, tile_size=tile_size)
        figures = expected[f"image_text_tau_{temperature}"]
        assert (i2t.item(), t2i.item()) == pytest.approx((figures["i2t"], figures["t2i"]), rel=1e-12)
    for margin, name in ((0.3, "margin0.3"), (0.0, "no_margin")):
        l2r, r2l = losses.contrastive_loss(left, right, 0.01, margin=margin, tile_size=tile_size)
        figures = expected[f"text_text_tau0.01_{name}"]
        assert (l2r.item(), r2l.item()) == pytest.approx((figures["l2r"], figures["r2l"]), rel=1e-12)


@pytest.mark.parametrize("tile_size", [None, 4])
def test_mural_fixture_of_total_and_temperature_gradient(tile_size):
    image, text, left, right = inputs("mural", "image", "text", "left", "right")
    translation = 0.1 * losses.symmetric_contrastive_loss(left, right, 0.01, margin=0.3, tile_size=tile_size)
    for value in (1.0, 0.07):
        temperature = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        total = losses.symmetric_contrastive_loss(image, text, temperature, tile_size=tile_size) + translation
        assert total.item() == pytest.approx(FIXTURES["mural"][f"total_wi2t1_wt2t0.1_tau{value}"], rel=1e-12)
    total.backward()
    # The fixture's gradient is a difference quotient.
    assert temperature.grad.item() == pytest.approx(FIXTURES["mural"]["dtotal_dtau_at_0.07"], rel=1e-8)


@pytest.mark.parametrize("tile_size", [None, 4])
def test_etcl_fixture(tile_size):
    image, a, b = inputs("etcl", "image", "textA", "textB")
    for name, temperature, smoothing, margin in (
        ("tau1_plain", 1.0, 0.0, 0.0),
        ("tau0.07_plain", 0.07, 0.0, 0.0),
        ("tau0.07_ls0.1", 0.07, 0.1, 0.0),
        ("tau0.07_ls0.1_margin0.3_on_text_text", 0.07, 0.1, 0.3),
    ):
        options = {"label_smoothing": smoothing, "tile_size": tile_size}
        found = {
            "image_textA": losses.symmetric_contrastive_loss(image, a, temperature, **options),
            "textA_textB": losses.symmetric_contrastive_loss(a, b, temperature, margin=margin, **options),
            "textB_image": losses.symmetric_contrastive_loss(b, image, temperature, **options),
        }
        found["L_ETCL"] = losses.triple_contrastive_loss(image, a, b, temperature, margin=margin, **options)
        expected = {pair: FIXTURES["etcl"][name][pair] for pair in found}
        assert {pair: found[pair].item() for pair in found} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("positives", POSITIVES.values(), ids=POSITIVES)
def test_dense_and_tiled_losses_follow_the_formula(positives):
    x, y = embeddings()
    temperature = torch.tensor(0.07, dtype=torch.float64, requires_grad=True)
    options = {"margin": 0.3, "label_smoothing": 0.1, "positives": positives}
    expected = value_and_gradients(reference, x, y, temperature, **options)
    for tile_size in (None, *TILES):
        found = value_and_gradients(losses.contrastive_loss, x, y, temperature, **options, tile_size=tile_size)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_half_precision_embeddings_are_compared_in_float32():
    dtype, tile_size = torch.bfloat16, 3
    x, y = embeddings(dtype=dtype)
    wide = [value.detach().float().requires_grad_() for value in (x, y)]
    temperature = torch.tensor(0.01, requires_grad=True)
    found = value_and_gradients(losses.contrastive_loss, x, y, temperature, tile_size=tile_size)
    expected = value_and_gradients(losses.contrastive_loss, *wide, temperature, tile_size=tile_size)
    assert [value.dtype for value in found] == [torch.float32, torch.float32, dtype, dtype, torch.float32]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other.to(one.dtype))


def test_autocast_changes_nothing():
    x, y = embeddings(dtype=torch.float32)
    temperature = torch.tensor(0.01, requires_grad=True)
    expected = value_and_gradients(losses.contrastive_loss, x, y, temperature, tile_size=3)
    with torch.autocast("cpu", torch.bfloat16):
        x_to_y, y_to_x = losses.contrastive_loss(x, y, temperature, tile_size=3)
        gradients_within = torch.autograd.grad(x_to_y + 0.3 * y_to_x, (x, y, temperature), retain_graph=True)
    gradients_without = torch.autograd.grad(x_to_y + 0.3 * y_to_x, (x, y, temperature))
    for gradients in (gradients_within, gradients_without):
        found = [x_to_y, y_to_x, *gradients]
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class PeakMemory(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.alive = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self.count(value.untyped_storage())
        return result

    def count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = storage.nbytes()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self.forget, storage._cdata)

    def forget(self, key: int) -> None:
        self.alive -= self.sizes.pop(key)


def peak_memory(loss, count: int, **options) -> int:
    x, y = embeddings(count, 16, torch.float32)
    temperature = torch.tensor(0.1, requires_grad=True)
    with PeakMemory() as memory:
        sum(loss(x, y, temperature, **options)).backward()
    return memory.peak


def dense(x, y, temperature):
    logits = normalize(x) @ normalize(y).T / temperature
    right = torch.arange(len(x))
    return cross_entropy(logits, right), cross_entropy(logits.T, right)


def test_memory_grows_with_the_batch_not_with_its_square():
    square = [peak_memory(dense, count) for count in (256, 512, 1024)]
    tiles = partial(losses.contrastive_loss, label_smoothing=0.1, tile_size=64)
    tiled = [peak_memory(tiles, count, positives=torch.arange(count) // 2) for count in (256, 512, 1024)]
    assert square[2] > 3.8 * square[1] > 3.8**2 * square[0]  # what the measure says of a square
    assert tiled[1] < 2 * tiled[0] and tiled[2] < 2 * tiled[1]
    assert tiled[2] < square[2] / 50


def sigmoid_reference(x, y, temperature, bias, *, positives=None):
    """The sum over all pairs, one by one (Zhai et al. 2023, section 3.2)."""
    total = 0
    for i in range(len(x)):
        for j in range(len(y)):
            cosine = (x[i] * y[j]).sum() / ((x[i] ** 2).sum().sqrt() * (y[j] ** 2).sum().sqrt())
            if not is_further_positive(positives, i, j):
                z = 1 if i == j else -1
                total = total + torch.log1p(torch.exp(-z * (cosine / temperature + bias)))
    return total / len(x)


@pytest.mark.parametrize("positives", [None, GROUPINGS, ONE_WAY], ids=["none", "groupings", "mask"])
def test_the_sigmoid_loss_is_the_formula(positives):
    scalars = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.2, -3.0)]
    inputs = [*embeddings(), *scalars]
    expected = sigmoid_reference(*inputs, positives=positives)
    gradients = torch.autograd.grad(expected, inputs)
    for tile_size in (None, *TILES):
        found = losses.sigmoid_loss(*inputs, positives=positives, tile_size=tile_size)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        for one, other in zip(torch.autograd.grad(3 * found, inputs), gradients, strict=True):
            torch.testing.assert_close(one, 3 * other, rtol=1e-10, atol=1e-14)


def test_the_sigmoid_loss_is_that_of_transformers():
    native, processor = tiny_siglip()
    texts = processor(text=["a", "b", "c"], padding="max_length", return_tensors="pt")
    output = native(**texts, pixel_values=torch.randn(3, 3, 32, 32), return_loss=True)
    found = losses.sigmoid_loss(
        output.image_embeds, output.text_embeds, (-native.logit_scale).exp(), native.logit_bias
    )
    torch.testing.assert_close(found, output.loss)


def test_mla_reads_the_bias_of_its_native_model(make_mla):
    native, processor = tiny_siglip()
    options = {"languages": ["de"], "vocab_size": 40, "embedding_size": 8, "sep_token_id": 3, "acquirer_size": 4}
    model = MlaModel.from_native(native, image_text_objective="sigmoid", **options)
    texts = processor(text=["a", "b"], padding="max_length", return_tensors="pt")
    output = model(**texts, pixel_values=torch.randn(2, 3, 32, 32), return_loss=True)
    own = (-native.logit_scale).exp(), native.logit_bias
    torch.testing.assert_close(output.loss, losses.sigmoid_loss(output.image_embeds, output.text_embeds, *own))
    model.set_trainable("native", temperature=False)
    assert not model.logit_bias.requires_grad
    clip, _ = make_mla(image_text_objective="sigmoid")
    with pytest.raises(ModelKindError, match=r"needs logits with a bias.*'clip'"):
        clip.contrastive_objective(output)
