import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from babelens.modeling.convert_mla import _all_renamed, mla_from_openai
from tests import contracts

FIXTURES = Path(__file__).parent.parent / "fixtures"


class TestMla(
    contracts.ConfigContract, contracts.DualEncoderContract, contracts.ProcessorContract, contracts.PublishingContract
):
    factory = "make_mla"
    freezable = ("native_model.text_model.embeddings.mla_embedding",)
    pipeline_languages = ["en"] * len(contracts.TEXTS)
    pipelines_without_the_package = True
    test_images_of_any_number = None  # by the native model's own tower

    def training_batches(self, processor):
        return {"image_text": contracts.image_text_batch(processor), "text_text": native_pairs(processor)}


def native_pairs(processor):
    batch = contracts.translation_batch(processor)
    native = processor(text=contracts.TEXTS[::-1], language="en", return_tensors="pt")
    return {name: value for name, value in batch.items() if not name.startswith("paired_")} | {
        f"paired_{name}": value for name, value in native.items()
    }


class TestMlaOnMural(contracts.PublishedModelContract):
    """A native model other than CLIP, outside transformers, with linear acquirers."""

    factory = "make_mla_on_mural"


@pytest.fixture(scope="module")
def authors():
    weights = {
        name.removeprefix("state."): value
        for name, value in load_file(FIXTURES / "mla_state_dict.safetensors").items()
    }
    numbers = json.loads((FIXTURES / "mla.json").read_text())
    return weights, load_file(FIXTURES / "mla_forward.safetensors"), numbers["losses"]["de"]


@pytest.fixture
def converted(authors):
    return mla_from_openai(authors[0], text_heads=4, vision_heads=1)


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_block_and_the_feature_are_the_authors(authors, converted, language):
    expected = authors[1]
    blocks = []
    for block in converted.blocks:
        block.register_forward_hook(lambda module, inputs, output: blocks.append(output))
    converted.embedding.register_forward_hook(lambda module, inputs, output: blocks.append(output))
    ids = expected[f"input.{language}_ids"]
    numbers = torch.full((len(ids),), converted.config.known_languages.index(language))
    with torch.no_grad():
        feature = converted.get_text_features(ids, language_ids=numbers).pooler_output
    for name, found in zip(["embed_plus_pos", "block0", "block1", "block2"], blocks, strict=True):
        torch.testing.assert_close(found, expected[f"{language}.{name}"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(feature, expected[f"{language}.pooled_projected"], rtol=1e-5, atol=1e-5)


def test_image_features_and_logits_are_the_authors(authors, converted):
    expected = authors[1]
    with torch.no_grad():
        output = converted(
            expected["input.de_ids"], expected["input.image"], language_ids=torch.ones(4, dtype=torch.long)
        )
    torch.testing.assert_close(output.image_features, expected["image.features"], rtol=1e-5, atol=1e-5)
    cosines = output.image_embeds @ output.text_embeds.T
    torch.testing.assert_close(100 * cosines, expected["de.LE_logits_img_by_txt"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("stage", "objective", "name"),
    [
        ("text_text", "mse", "NLT_mse"),
        ("text_text", "nce", "NLT_nce_ablation"),
        ("image_text", "nce", "LE_nce"),
        ("image_text", "mse", "LE_mse_ablation"),
    ],
)
def test_losses_and_gradients_are_the_authors(authors, converted, stage, objective, name):
    _, expected, losses = authors
    setattr(converted.config, f"{stage}_objective", objective)
    other = (
        {"paired_input_ids": expected["input.en_ids"]}
        if stage == "text_text"
        else {"pixel_values": expected["input.image"]}
    )
    language = torch.ones(4, dtype=torch.long)
    loss = converted.train()(expected["input.de_ids"], language_ids=language, return_loss=True, **other).loss
    assert loss.item() == pytest.approx(losses[name], rel=1e-5)
    loss.backward()
    gradients = {n: p.grad for n, p in converted.named_parameters() if p.grad is not None}
    recorded = [key for key in expected if key.startswith(f"grad.{name.partition('_')[0]}.de.")]
    assert len(gradients) == len(recorded) == 15
    if "ablation" not in name:
        for key in recorded:
            [name] = _all_renamed({key.split(".de.", 1)[1]: torch.empty(0)})
            found = gradients[f"native_model.{name}"]
            # The gradient as a whole: single entries that nearly cancel carry float32's rounding.
            assert (found - expected[key]).norm() <= 1e-5 * expected[key].norm(), key


def test_a_text_without_sep_is_refused(make_mla):
    model, processor = make_mla()
    inputs = processor(text=contracts.TEXTS, language="de", return_tensors="pt")
    inputs["input_ids"][2] = 5
    with pytest.raises(ValueError, match=r"no \[SEP\]"):
        model.get_text_features(**inputs)
    inputs["input_ids"][2, -1] = processor.multilingual_tokenizer.sep_token_id
    model.get_text_features(**inputs)  # what failed leaves nothing behind


def test_adding_a_language_leaves_all_others_bitwise_alone(make_mla):
    model, processor = make_mla()
    inputs = processor(text=contracts.TEXTS, language=contracts.LANGUAGES, images=None, return_tensors="pt")
    with torch.no_grad():
        before = model.get_text_features(**inputs).pooler_output
    model.config.train_embedding = False
    model.add_language("uk")
    assert model.config.known_languages == ["en", "de", "fr", "th", "zh", "ar", "uk"]
    model.set_trainable("acquirers", ["uk"])
    processor.languages.append("uk")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    foreign = native_pairs(processor) | {"language_ids": torch.full((len(contracts.TEXTS),), 6)}
    foreign |= dict(processor(text=contracts.TEXTS, language="uk", return_tensors="pt"))
    losses = []
    for _ in range(3):
        loss = model.train()(**foreign, return_loss=True).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    with torch.no_grad():
        assert torch.equal(model.eval().get_text_features(**inputs).pooler_output, before)


def test_a_changed_configuration_keeps_what_was_learned(make_mla):
    model, _ = make_mla()
    more = model.reconfigured(languages=[*model.config.languages, "uk"], text_text_objective="nce")
    assert more.config.text_text_objective == "nce"
    kept = more.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(kept[name], value), name
    with pytest.raises(ValueError, match="lacks weights that this one has"):
        model.reconfigured(languages=["de"])


def test_frozen_parts_stay_in_evaluation_mode(make_mla):
    model, _ = make_mla()
    model.train()
    assert not model.native_model.vision_model.training and not model.blocks[0].base_layer.self_attn.training
    model.set_trainable("all")
    assert model.native_model.vision_model.training
    model.set_trainable("native")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and not any(".mla_" in name for name in trained)
