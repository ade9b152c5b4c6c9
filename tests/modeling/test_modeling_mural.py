import pytest
import torch
from torch import nn
from transformers import AlignConfig, AlignModel

from babelens import MuralModel
from babelens.modeling.losses import symmetric_contrastive_loss
from babelens.modeling.tower_loading import reset_heads
from tests import contracts
from tests.support.made_once import settle_batch_norm
from tests.support.tiny_training import VISION


class TestMural(
    contracts.ConfigContract, contracts.DualEncoderContract, contracts.ProcessorContract, contracts.PublishingContract
):
    factory = "make_mural"
    pipelines_without_the_package = True

    def training_batches(self, processor):
        return {
            "image_text": contracts.image_text_batch(processor),
            "text_text": contracts.translation_batch(processor),
        }


class TestMuralOnTransformers(contracts.LoadingContract):
    """An image tower with attention, whose weights its own class draws."""

    factory = "make_mural"
    options = {"vision_config": VISION}


@pytest.fixture
def mural(make_mural):
    return make_mural()


def test_each_task_reads_the_first_state_through_its_own_head(mural):
    model, processor = mural
    batch = contracts.translation_batch(processor)
    text = {name: batch[name] for name in ("input_ids", "attention_mask")}
    states = model.text_model(**text).last_hidden_state[:, 0]
    for task in ("image_text", "text_text"):
        assert torch.equal(model.get_text_features(**text, task=task).pooler_output, model.text_heads[task](states))
    assert torch.equal(model.get_text_features(**text).pooler_output, model.text_heads["image_text"](states))
    with torch.no_grad():
        translations = model(**batch)
        model.text_heads["image_text"].weight.zero_()
        assert torch.equal(model(**batch).text_embeds, translations.text_embeds)
        assert torch.equal(model(**batch).paired_text_embeds, translations.paired_text_embeds)


def test_the_image_text_loss_has_no_margin(mural):
    model, processor = mural
    output = model(**contracts.image_text_batch(processor), return_loss=True)
    expected = symmetric_contrastive_loss(output.image_embeds, output.text_embeds, 0.1)
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    assert model.temperature.grad is not None


def test_the_text_text_loss_has_a_fixed_temperature_and_a_margin(mural):
    model, processor = mural
    output = model(**contracts.translation_batch(processor), return_loss=True)
    expected = symmetric_contrastive_loss(output.text_embeds, output.paired_text_embeds, 0.01, margin=0.3)
    assert torch.equal(output.loss, expected)
    output.loss.backward()
    assert model.temperature.grad is None
    assert model.text_heads["image_text"].weight.grad is None


def test_transformers_align_loads_and_gives_the_same(mural):
    model, processor = mural
    text, vision = model.config.text_config.to_dict(), model.config.vision_config.to_dict()
    config = AlignConfig(
        text_config={**text, "model_type": "align_text_model"},
        vision_config=vision,
        projection_dim=24,
        temperature_init_value=0.3,
    )
    torch.manual_seed(1)
    align = AlignModel(config).eval()
    settle_batch_norm(align.vision_model, contracts.image_text_batch(processor)["pixel_values"])
    batch = contracts.image_text_batch(mural[1])
    model = MuralModel.from_native(align)
    assert not model.training and list(model.text_heads) == ["image_text"]
    assert model.temperature.item() == pytest.approx(0.3) and model.config.label_smoothing == 0.1
    with torch.no_grad():
        found, expected = model(**batch), align(**batch)
    for name in ("image_embeds", "text_embeds", "logits_per_image", "logits_per_text"):
        assert expected[name].std(0).mean() > 0.01  # statistics or weights that say nothing would agree as well
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5)


def test_heads_are_drawn_anew(make_mural, tmp_path):
    """A loaded model's, too; everything else stays to the bit."""
    model, _ = make_mural(image_head=True, projection_dim=8)
    for head in (*model.text_heads.values(), model.image_projection):
        nn.init.ones_(head.weight)
        nn.init.ones_(head.bias)
    model.save_pretrained(tmp_path)
    loaded = MuralModel.from_pretrained(tmp_path)
    reset_heads(loaded)
    old, new = model.state_dict(), loaded.state_dict()
    changed = {name for name, value in old.items() if not torch.equal(value, new[name])}
    heads = ("text_heads.image_text", "text_heads.text_text", "image_projection")
    assert changed == {f"{head}.{part}" for head in heads for part in ("weight", "bias")}
    assert all(weight.requires_grad for weight in loaded.parameters())
    for head in (*loaded.text_heads.values(), loaded.image_projection):
        assert 0.01 < head.weight.std() < 0.03 and not head.bias.any()


def test_a_mural_goes_on_from_an_align_with_a_new_head(make_mural):
    start, _ = make_mural(tasks=["image_text"])
    mural = MuralModel.from_native(start, tasks=["image_text", "text_text"], text_text_margin=0.1)
    assert mural.config.tasks == ["image_text", "text_text"] and mural.config.text_text_margin == 0.1
    weights = mural.state_dict()
    assert all(torch.equal(value, weights.pop(name)) for name, value in start.state_dict().items())
    assert {*weights} == {"text_heads.text_text.weight", "text_heads.text_text.bias"}
    assert 0.01 < weights["text_heads.text_text.weight"].std() < 0.03
    again = MuralModel.from_native(mural, tasks=["image_text"])
    assert again.state_dict().keys() == start.state_dict().keys()


def test_tasks_that_do_not_go_together_are_refused(mural, make_mural):
    model, processor = mural
    pixels = contracts.image_text_batch(processor)["pixel_values"]
    with pytest.raises(ValueError, match="images or translations, not both"):
        model(**contracts.translation_batch(processor), pixel_values=pixels)
    with pytest.raises(ValueError, match=r"no head for 'translation'; its tasks are \['image_text', 'text_text'\]"):
        model.get_text_features(torch.ones(1, 2, dtype=torch.long), task="translation")
    align, _ = make_mural(tasks=["image_text"])
    with pytest.raises(ValueError, match=r"no head for 'text_text'; its tasks are \['image_text'\]"):
        align(**contracts.translation_batch(processor))
