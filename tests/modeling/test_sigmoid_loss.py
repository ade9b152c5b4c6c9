"""SigLIP's loss compared with its formula in float64 and with transformers' own, and MLA on a SigLIP."""

import pytest
import torch

from babelens import MlaModel
from babelens.modeling.losses import sigmoid_loss
from babelens.utils.errors import ModelKindError
from tests.support.loss_pairs import GROUPINGS, ONE_WAY, TILES, embeddings, is_further_positive
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
    with pytest.raises(ModelKindError, match=r"needs logits with a bias.*'clip'"):
        clip.contrastive_objective(output)
