import pytest
import torch

from babelens import EtclModel
from babelens.modeling.losses import symmetric_contrastive_loss
from tests import contracts


def triplet_batch(processor):
    batch = contracts.translation_batch(processor)
    images = processor(images=contracts.drawn_images(len(batch["input_ids"])), return_tensors="pt")
    return batch | dict(images)


class TestEtcl(contracts.ConfigContract, contracts.DualEncoderContract, contracts.PublishingContract):
    factory = "make_etcl"

    def training_batches(self, processor):
        return {
            "triplet": triplet_batch(processor),
            "image_text": contracts.image_text_batch(processor),
            "text_text": contracts.translation_batch(processor),
        }


@pytest.fixture
def etcl(make_etcl):
    return make_etcl()


def test_the_loss_of_triplets_is_the_mean_of_three_pair_losses(etcl):
    model, processor = etcl
    output = model(**triplet_batch(processor), return_loss=True)
    image, text_a, text_b = output.image_embeds, output.text_embeds, output.paired_text_embeds
    pairs = [
        symmetric_contrastive_loss(image, text_a, 0.1, label_smoothing=0.1),
        symmetric_contrastive_loss(text_a, text_b, 0.1, margin=0.3, label_smoothing=0.1),
        symmetric_contrastive_loss(text_b, image, 0.1, label_smoothing=0.1),
    ]
    torch.testing.assert_close(output.loss, sum(pairs) / 3)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_pairs_alone_are_the_reproduced_murals(etcl):
    model, processor = etcl
    output = model(**contracts.image_text_batch(processor), return_loss=True)
    expected = symmetric_contrastive_loss(output.image_embeds, output.text_embeds, 0.1, label_smoothing=0.1)
    torch.testing.assert_close(output.loss, expected)
    output = model(**contracts.translation_batch(processor), return_loss=True)
    embeds = output.text_embeds, output.paired_text_embeds
    expected = symmetric_contrastive_loss(*embeds, 0.1, margin=0.3, label_smoothing=0.1)
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    assert model.temperature.grad is not None  # it is learned from texts too (section 3.1)


def test_positives_reach_all_three_losses(make_etcl):
    model, processor = make_etcl(label_smoothing=0.0)
    output = model(**triplet_batch(processor))
    everything = torch.zeros(len(output.text_embeds), dtype=torch.long)
    assert model.contrastive_objective(output, positives=everything).item() == pytest.approx(0, abs=1e-4)
    torch.testing.assert_close(
        model.contrastive_objective(output, tile_size=2), model.contrastive_objective(output), rtol=1e-5, atol=1e-5
    )


def test_it_embeds_as_the_mural_did(make_mural, tmp_path):
    mural, processor = make_mural(text_text_margin=0.2)
    batch = contracts.image_text_batch(processor)
    expected = contracts.embeddings(mural, batch)
    mural.save_pretrained(tmp_path)
    for source in (mural, str(tmp_path), tmp_path):
        etcl = EtclModel.from_native(source, label_smoothing=0.05)
        contracts.assert_equal(contracts.embeddings(etcl, batch), expected)
        assert torch.equal(etcl.temperature, mural.temperature)
        assert (etcl.config.text_text_margin, etcl.config.label_smoothing) == (0.2, 0.05)
        assert not etcl.training
    with torch.no_grad():
        mural.text_heads["image_text"].weight.zero_()  # its own weights, not the MURAL's
    contracts.assert_equal(contracts.embeddings(etcl, batch), expected)
