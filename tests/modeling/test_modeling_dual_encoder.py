from dataclasses import replace

import pytest
import torch
from transformers import AutoModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from babelens.modeling.modeling_dual_encoder import (
    DualEncoderPreTrainedModel,
    eval_frozen_modules,
    normalize,
    pool_image,
)
from babelens.trainers.frozen_features import frozen_names
from tests.contracts import TEXTS, image_text_batch


def test_pooling_is_the_towers_own_or_the_mean_over_places():
    generator = torch.Generator().manual_seed(0)
    maps, patches = torch.randn(2, 5, 3, 4, generator=generator), torch.randn(2, 7, 5, generator=generator)
    own = torch.randn(2, 5, 1, 1, generator=generator)
    assert torch.equal(pool_image(BaseModelOutputWithPooling(maps, own)), own[:, :, 0, 0])
    torch.testing.assert_close(pool_image(BaseModelOutputWithPooling(maps)), maps.flatten(2).mean(2))
    torch.testing.assert_close(pool_image(BaseModelOutputWithPooling(patches)), patches.mean(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_get_length_one_in_every_precision(dtype):
    features = torch.tensor([[3.0, 4.0], [300.0, -400.0], [-3e-3, 4e-3]], dtype=dtype)
    expected = torch.tensor([[0.6, 0.8], [0.6, -0.8], [-0.6, 0.8]], dtype=dtype)
    found = normalize(features)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=1.6e-2 if dtype == torch.bfloat16 else 1e-3, atol=0)


def test_rows_of_hardly_anything_do_not_explode():
    """The features of an untrained tower in eval mode may be so small that their squares are 0."""
    features = torch.tensor([[0.0, 0.0], [1e-30, 1e-30]], requires_grad=True)
    found = normalize(features)
    assert not found[0].any() and (found[1].abs() <= 1).all()
    found.sum().backward()
    assert features.grad.isfinite().all()


def is_trained(module):
    return {weight.requires_grad for weight in module.parameters()}


@pytest.mark.parametrize(("make", "freeze"), [("make_mural", ["image"]), ("make_etcl", ["text", "image"])])
def test_a_frozen_tower_is_not_trained_in_a_new_or_loaded_model(make, freeze, request, tmp_path):
    model, _ = request.getfixturevalue(make)(freeze=freeze)
    model.save_pretrained(tmp_path)
    again, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    for each in (model, again, AutoModel.from_pretrained(tmp_path)):
        assert each.config.freeze == freeze
        assert set(frozen_names(each)) == set(freeze)
        assert is_trained(each.similarity) == {True}
        each.train()
        for name, tower in each.towers.items():
            assert is_trained(tower) == {name not in freeze}
            assert {module.training for module in tower.modules()} == {name not in freeze}


def test_a_frozen_tower_has_no_dropout_nor_new_statistics(make_mural):
    model, _ = make_mural(freeze=["image", "text"], text_config={"hidden_dropout_prob": 0.5})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = {"input_ids": torch.tensor([[2, 7, 3]] * 2), "pixel_values": torch.randn(2, 3, 32, 32)}
    trained, still = model.train()(**batch), model.eval()(**batch)
    assert torch.equal(trained.image_embeds, still.image_embeds)
    assert torch.equal(trained.text_embeds, still.text_embeds)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_batch_statistics_move_only_with_the_scales():
    norm, plain = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2, affine=False)
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), norm, plain, torch.nn.Dropout())
    eval_frozen_modules(module)
    assert [part.training for part in module] == [True, True, True, True]
    norm.weight.requires_grad_(False)
    eval_frozen_modules(module)
    assert [part.training for part in module] == [True, False, False, True]


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


def test_a_folder_s_model_says_that_the_package_has_the_loss(make_mural, monkeypatch):
    """Its code has no `contrastive_objective` (`hub_code`)."""
    model, processor = make_mural()
    monkeypatch.delattr(DualEncoderPreTrainedModel, "contrastive_objective")
    with pytest.raises(NotImplementedError, match="`import babelens` to train it"):
        batch(processor, model, return_loss=True)
    assert batch(processor, model).logits_per_image.shape == (3, 3)


@pytest.mark.parametrize("factory", ["make_mural", "make_mla_student", "make_smalr"])
def test_images_may_have_another_precision_than_the_model(request, factory):
    model, processor = request.getfixturevalue(factory)()
    pixels = image_text_batch(processor)["pixel_values"]
    model = model.eval().to(torch.bfloat16)
    with torch.no_grad():
        expected = model.get_image_features(pixel_values=pixels.bfloat16()).pooler_output
        for dtype in (torch.float32, torch.float64):
            found = model.get_image_features(pixel_values=pixels.to(dtype)).pooler_output
            assert found.dtype == torch.bfloat16 and found.shape[0] == len(TEXTS)
            assert torch.equal(found, expected)
