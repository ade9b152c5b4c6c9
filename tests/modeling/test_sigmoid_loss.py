"""SigLIP's loss against its formula in float64 and against transformers' own, and models that are trained with it."""

import pytest
import torch

from babelens import MlaModel
from babelens.modeling.losses import sigmoid_loss, symmetric_contrastive_loss
from babelens.utils.errors import ModelKindError
from tests.support.loss_pairs import GROUPINGS, ONE_WAY, TILES, embeddings, is_further_positive, peak_memory
from tests.support.tiny_native import tiny_siglip


def reference(x, y, temperature, bias, *, positives=None):
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
def test_values_and_gradients_are_those_of_the_formula(positives):
    scalars = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.2, -3.0)]
    inputs = [*embeddings(), *scalars]
    expected = reference(*inputs, positives=positives)
    gradients = torch.autograd.grad(expected, inputs)
    for tile_size in (None, *TILES):
        found = sigmoid_loss(*inputs, positives=positives, tile_size=tile_size)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        for one, other in zip(torch.autograd.grad(3 * found, inputs), gradients, strict=True):
            torch.testing.assert_close(one, 3 * other, rtol=1e-10, atol=1e-14)


def test_it_is_the_loss_of_transformers():
    native, processor = tiny_siglip()
    texts = processor(text=["a", "b", "c"], padding="max_length", return_tensors="pt")
    output = native(**texts, pixel_values=torch.randn(3, 3, 32, 32), return_loss=True)
    found = sigmoid_loss(output.image_embeds, output.text_embeds, (-native.logit_scale).exp(), native.logit_bias)
    torch.testing.assert_close(found, output.loss)


def test_memory_grows_with_the_batch_not_with_its_square():
    def tiled(x, y, temperature, **options):
        return [sigmoid_loss(x, y, temperature, -10.0, **options)]

    small, large = (peak_memory(tiled, count, tile_size=64) for count in (512, 1024))
    assert large < 2 * small


@pytest.mark.parametrize("make", ["make_mural", "make_etcl"])
def test_a_model_of_two_towers_learns_the_bias(request, make, tmp_path):
    options = {"image_text_loss": "sigmoid", "logit_bias_init_value": -2, "label_smoothing": 0}
    model, processor = request.getfixturevalue(make)(**options)
    texts = processor(text=["ein Hund", "eine Katze"], language="de", return_tensors="pt")
    output = model.eval()(**texts, pixel_values=torch.randn(2, 3, 32, 32), positives=torch.arange(2))
    embeds = output.image_embeds, output.text_embeds
    torch.testing.assert_close(output.loss, sigmoid_loss(*embeds, model.temperature, -2.0))
    torch.testing.assert_close(output.logits_per_image, embeds[0] @ embeds[1].T / model.temperature - 2)
    output.loss.backward()
    assert model.similarity.bias.grad.abs() > 0 and model.temperature.grad.abs() > 0
    with torch.no_grad():
        model.similarity.bias.fill_(-3.5)
    model.save_pretrained(tmp_path)
    assert type(model).from_pretrained(tmp_path).logit_bias.item() == -3.5


def test_etcl_compares_translations_by_the_softmax(make_etcl):
    model, processor = make_etcl(image_text_loss="sigmoid", label_smoothing=0)
    texts, others = (processor(text=[word] * 2, language="de", return_tensors="pt") for word in ("ein", "eine"))
    paired = {f"paired_{name}": value for name, value in others.items()}
    output = model.eval()(**texts, **paired, pixel_values=torch.randn(2, 3, 32, 32))
    image, one, other = output.image_embeds, output.text_embeds, output.paired_text_embeds
    expected = sum(sigmoid_loss(image, each, model.temperature, -10.0) for each in (one, other))
    expected = expected + symmetric_contrastive_loss(
        one, other, model.temperature, margin=model.config.text_text_margin
    )
    torch.testing.assert_close(model.contrastive_objective(output), expected / 3)


def test_mla_reads_the_bias_of_its_native_model(make_mla):
    native, processor = tiny_siglip()
    options = {"languages": ["de"], "vocab_size": 40, "embedding_size": 8, "sep_token_id": 3, "acquirer_size": 4}
    model = MlaModel.from_native(native, image_text_objective="sigmoid", **options)
    texts = processor(text=["a", "b"], padding="max_length", return_tensors="pt")
    output = model(**texts, pixel_values=torch.randn(2, 3, 32, 32), return_loss=True)
    own = (-native.logit_scale).exp(), native.logit_bias
    torch.testing.assert_close(output.loss, sigmoid_loss(output.image_embeds, output.text_embeds, *own))
    model.set_trainable("native", temperature=False)
    assert not model.logit_bias.requires_grad
    clip, _ = make_mla(image_text_objective="sigmoid")
    with pytest.raises(ModelKindError, match=r"a native model whose logits have a bias.*'clip'"):
        clip.contrastive_objective(output)
