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


def test_translations_are_cut_too(make_etcl):
    model, processor = make_etcl()
    output = batch(processor, model)
    output = replace(output, paired_text_embeds=output.text_embeds.flip(0))
    expected = [model.contrastive_objective(each) for each in (output, cut(output, 4))]
    model.config.matryoshka_dims = [4]
    torch.testing.assert_close(model.contrastive_objective(output), sum(expected) / 2)


def test_the_widths_are_saved(make_mural, tmp_path):
    model, _ = make_mural(matryoshka_dims=[4, 8, 4], truncate_dim=8)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).config
    assert loaded.matryoshka_dims == [8, 4] and loaded.truncate_dim == 8
