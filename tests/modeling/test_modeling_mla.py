"""MLA: the contracts, the authors' numbers, and what acquiring a language may not change."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    CLIPModel,
    VisionTextDualEncoderConfig,
)

from babelens import MlaConfig, MlaModel
from babelens.modeling.convert_mla import _all_renamed, mla_from_openai
from tests.contracts import (
    LANGUAGES,
    TEXTS,
    DualEncoderContract,
    PublishedModelContract,
    PublishingContract,
    image_text_batch,
    translation_batch,
)

FIXTURES = Path(__file__).parent.parent / "fixtures"


class MlaContract(DualEncoderContract):
    factory = "make_mla"
    freezable = ("native_model.text_model.embeddings.mla_embedding",)
    test_images_of_any_number = None  # by the native model's own tower

    def two_towers(self, model):
        return model.native_model

    def training_batches(self, processor):
        return {"image_text": image_text_batch(processor), "text_text": native_pairs(processor)}


def native_pairs(processor):
    """Texts with a native text each."""
    batch = translation_batch(processor)
    native = processor(text=TEXTS[::-1], language="en", return_tensors="pt")
    return {name: value for name, value in batch.items() if not name.startswith("paired_")} | {
        f"paired_{name}": value for name, value in native.items()
    }


class TestMla(MlaContract, PublishingContract):
    pipeline_languages = ["en"] * len(TEXTS)
    pipelines_without_the_package = True


class TestMlaOnMural(PublishedModelContract):
    """A native model that is not CLIP and not of transformers, with linear acquirers."""

    factory = "make_mla_on_mural"


# ---- The authors' numbers ----


@pytest.fixture(scope="module")
def authors():
    """A tiny MLA under OpenAI CLIP's names, what it computes, and its losses."""
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
            # Of the gradient as a whole: single entries that nearly cancel carry float32's rounding.
            assert (found - expected[key]).norm() <= 1e-5 * expected[key].norm(), key


def test_a_checkpoint_of_something_else_is_refused(authors):
    with pytest.raises(ValueError, match=r"unknown \['decoder.weight'\]"):
        mla_from_openai(authors[0] | {"decoder.weight": torch.zeros(1)}, text_heads=4, vision_heads=1)
    plain = {name: value for name, value in authors[0].items() if "acquirer" not in name}
    with pytest.raises(ValueError, match="no acquirers"):
        mla_from_openai(plain, text_heads=4, vision_heads=1)


# ---- Native models ----


SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 12,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 49,
}
ENCODERS = ["mpnet", "clip_text_model"]


def vision_text(encoder):
    vision = {"model_type": "vit", "image_size": 16, "patch_size": 8} | {
        name: SIZES[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    }
    torch.manual_seed(0)
    text = SIZES | {"model_type": encoder}
    config = VisionTextDualEncoderConfig(text_config=text, vision_config=vision, projection_dim=8)
    return AutoModel.from_config(config).eval().requires_grad_(False)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_text_encoder_uses_its_own_positions(encoder):
    """With a second vocabulary that equals the encoder's own, texts have the same embedding through both."""
    native = vision_text(encoder)
    table = native.text_model.get_input_embeddings()
    sizes = {"vocab_size": 50, "embedding_size": 16, "acquirer_size": 4}
    model = MlaModel.from_native(native, languages=["de"], sep_token_id=49, **sizes).eval()
    with torch.no_grad():
        second = model.embedding.mla_embedding
        second.table.weight.copy_(table.weight)
        second.projection.weight.copy_(torch.eye(16))
        second.projection.bias.zero_()
        for parameter in model.acquirer_parameters():
            parameter.zero_()
        ids = torch.tensor([[0, 5, 6, 7, 49, 1, 1, 1], [0, 5, 6, 7, 8, 9, 10, 49]])
        mask = (ids != 1).long()
        plain = native.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
        assert torch.equal(model.get_text_features(ids, mask).pooler_output, plain)
        german = model.get_text_features(ids, mask, torch.ones(2, dtype=torch.long)).pooler_output
        torch.testing.assert_close(german, plain, rtol=1e-5, atol=1e-5)
        mixed = model.get_text_features(ids, mask, torch.tensor([0, 1])).pooler_output
        torch.testing.assert_close(mixed, plain, rtol=1e-5, atol=1e-5)


def test_the_plain_model_comes_back(make_mla):
    model, processor = make_mla()
    plain = model.unload()
    assert type(plain) is CLIPModel and not plain.training
    inputs = processor(text=TEXTS, language="en", return_tensors="pt")
    again = MlaModel.from_native(plain, vocab_size=30, embedding_size=4, sep_token_id=3)
    with torch.no_grad():
        expected = model.get_text_features(**inputs).pooler_output
        assert torch.equal(
            plain.get_text_features(inputs["input_ids"], inputs["attention_mask"]).pooler_output, expected
        )
        assert torch.equal(again.get_text_features(**inputs).pooler_output, expected)


# ---- Languages ----


def test_a_text_without_sep_is_refused(make_mla):
    model, processor = make_mla()
    inputs = processor(text=TEXTS, language="de", return_tensors="pt")
    inputs["input_ids"][2] = 5
    with pytest.raises(ValueError, match=r"no \[SEP\]"):
        model.get_text_features(**inputs)
    inputs["input_ids"][2, -1] = processor.multilingual_tokenizer.sep_token_id
    model.get_text_features(**inputs)  # what failed leaves nothing behind


def test_language_ids_beyond_the_acquired_are_refused(make_mla):
    model, processor = make_mla()
    inputs = processor(text=TEXTS, language="de", return_tensors="pt")
    with pytest.raises(ValueError, match=r"language_ids=\[6\]: this model acquired 5"):
        model.get_text_features(**inputs | {"language_ids": torch.full((len(TEXTS),), 6)})


def test_adding_a_language_leaves_all_others_bitwise_alone(make_mla):
    model, processor = make_mla()
    inputs = processor(text=TEXTS, language=LANGUAGES, images=None, return_tensors="pt")
    with torch.no_grad():
        before = model.get_text_features(**inputs).pooler_output
    model.config.train_embedding = False
    model.add_language("uk")
    assert model.config.known_languages == ["en", "de", "fr", "th", "zh", "ar", "uk"]
    model.set_trainable("acquirers", ["uk"])
    processor.languages.append("uk")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    foreign = native_pairs(processor) | {"language_ids": torch.full((len(TEXTS),), 6)}
    foreign |= dict(processor(text=TEXTS, language="uk", return_tensors="pt"))
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


def test_a_language_that_is_there_is_refused(make_mla):
    for language in ("en", "DE"):
        with pytest.raises(ValueError, match=r"twice|native language"):
            make_mla()[0].add_language(language)


def test_a_changed_configuration_keeps_what_was_learned(make_mla):
    model, _ = make_mla()
    more = model.reconfigured(languages=[*model.config.languages, "uk"], text_text_objective="nce")
    assert more.config.text_text_objective == "nce"
    kept = more.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(kept[name], value), name
    with pytest.raises(ValueError, match="lacks weights that this one has"):
        model.reconfigured(languages=["de"])


# ---- What trains ----


def test_frozen_parts_stay_in_evaluation_mode(make_mla):
    model, _ = make_mla()
    model.train()
    assert not model.native_model.vision_model.training and not model.blocks[0].base_layer.self_attn.training
    model.set_trainable("all")
    assert model.native_model.vision_model.training
    model.set_trainable("native")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and not any(".mla_" in name for name in trained)


def test_the_embedding_begins_with_the_table_that_is_given(make_mla):
    native, table = make_mla()[0].unload(), torch.randn(60, 7)
    model = MlaModel.from_native(native, languages=["de"], sep_token_id=3, table=table)
    assert torch.equal(model.get_input_embeddings().weight, table)
    assert (model.config.vocab_size, model.config.embedding_size) == (60, 7)


def test_acquirers_start_as_pytorchs_linear_layers_do(make_mla):
    """Not as those of the text tower around them."""
    model, _ = make_mla(acquirer_size=256)
    bound = 16**-0.5
    weight = model.blocks[0].mla_acquirers["de"].down.weight
    assert weight.abs().max() <= bound and weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_the_papers_model():
    with torch.device("meta"):
        model = AutoModel.from_config(MlaConfig())
    assert model.config.languages == ["de", "fr", "cs", "zh", "ja"]
    parts = model.parameter_parts()
    assert parts["acquirers"] == 5 * 12 * (2 * 512 * 256 + 512 + 256)  # 3.15 M a language
    assert parts["native model"] == 151_277_313  # CLIP ViT-B/32
    assert parts["non-native embedding"] == 119_547 * 768 + 768 * 512 + 512
