"""`freeze` in the configuration: towers that are frozen in every new and every loaded model."""

import pytest
import torch
from transformers import AutoModel

from babelens.modeling.modeling_dual_encoder import eval_frozen_modules


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
        assert set(each.frozen_towers) == set(freeze)
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
