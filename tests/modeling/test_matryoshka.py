"""Training at several widths: the loss is the mean of the losses of embeddings that were cut before."""

from dataclasses import replace

import pytest
import torch


def cut(output, width):
    names = [name for name, value in output.items() if name.endswith(("_embeds", "_features")) and value.dim() == 2]
    return replace(output, **{name: output[name][:, :width] for name in names})


def batch(processor, model, **changes):
    language = getattr(processor, "languages", None) or ["de"]
    texts = processor(text=["ein Hund", "eine Katze", "ein Baum"], language=language[0], return_tensors="pt")
    torch.manual_seed(1)
    return model.eval()(**texts, pixel_values=torch.randn(3, 3, 32, 32), **changes)


@pytest.mark.parametrize("make", ["make_mural", "make_mla_student"])
def test_the_loss_is_the_mean_over_the_widths(request, make):
    model, processor = request.getfixturevalue(make)()
    output = batch(processor, model)
    width = output.text_embeds.shape[1]
    expected = [model.contrastive_objective(each) for each in (output, cut(output, width // 2), cut(output, 3))]
    model.config.matryoshka_dims = [width // 2, 3]
    found = model.contrastive_objective(output)
    torch.testing.assert_close(found, sum(expected) / 3)
    assert found != expected[0]
