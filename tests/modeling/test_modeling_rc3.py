import pytest
import torch
from transformers import MBartConfig, MBartForConditionalGeneration, MBartModel

from babelens import Rc3ForConditionalGeneration, Rc3ForVisualEntailment, Rc3Model
from babelens.utils.errors import InputError
from tests.contracts import TINY_RC3, visio_textual_batch

# mBART's tokens are the first 27; its [MASK] and the languages are among them.
TINY_MBART = {name: TINY_RC3[name] for name in TINY_RC3 if name.partition("_")[0] in ("encoder", "decoder", "max")}
TINY_MBART |= {"vocab_size": 27, "d_model": 16, "init_std": 0.3, "scale_embedding": True}
OVERRIDES = {
    name: TINY_RC3[name]
    for name in ("region_size", "image_size", "patch_size", "patch_width", "mask_token_id", "languages")
} | {"language_token_ids": [6, 7, 8]}
TARGETS = torch.tensor([[7, 12, 13, 2], [6, 14, 2, 1], [8, 15, 16, 2], [7, 17, 18, 2]])


@pytest.fixture
def batch():
    return visio_textual_batch()


@pytest.fixture
def model(make_rc3):
    return make_rc3()[0]


def texts(batch):
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def cut(batch, rows):
    longest = int(batch["attention_mask"][rows].sum(1).max())
    return {n: v[rows][:, :longest] if n in texts(batch) else v[rows] for n, v in batch.items()}


@pytest.fixture
def mbart():
    torch.manual_seed(1)
    return MBartForConditionalGeneration(MBartConfig(**TINY_MBART)).eval()


@torch.no_grad()
def test_without_images_it_is_the_mbart_that_it_was_made_from(mbart, batch, tmp_path):
    mbart.generation_config.update(num_beams=2, forced_eos_token_id=2, decoder_start_token_id=2, forced_bos_token_id=7)
    mbart.save_pretrained(tmp_path)
    for source in (mbart, str(tmp_path), tmp_path):
        model = Rc3ForConditionalGeneration.from_mbart(source, **OVERRIDES)
        assert model.config.vocab_size == 29 and not model.training
        assert (model.config.cls_token_id, model.config.image_separator_token_id) == (27, 28)
        states = mbart.model.encoder(**texts(batch)).last_hidden_state
        encoded = model.model.encode(**texts(batch))
        assert torch.equal(encoded.last_hidden_state, states)
        assert torch.equal(encoded.pooler_output, states[:, 0]) and not encoded.text_start.any()
        logits = model(**texts(batch), decoder_input_ids=TARGETS).logits
        assert torch.equal(logits[..., :27], mbart(**texts(batch), decoder_input_ids=TARGETS).logits)
        for options in ({"num_beams": 1}, {}, {"num_beams": 4, "max_new_tokens": 12}, {"use_cache": False}):
            expected = mbart.generate(
                **texts(batch),
                decoder_start_token_id=8,
                **{"max_new_tokens": 9, "forced_bos_token_id": None} | options,
            )
            assert torch.equal(
                model.generate(**texts(batch), language="zh", **{"max_new_tokens": 9} | options), expected
            )
        assert model.generation_config.num_beams == 2 and model.generation_config.decoder_start_token_id is None


def test_any_model_starts_from_any_mbart(mbart):
    bare, tables = mbart.model, ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    for model_class in (Rc3Model, Rc3ForVisualEntailment):
        model = model_class.from_mbart(bare, visual="regions", **OVERRIDES)
        found, expected = dict(model.base_model.state_dict()), dict(bare.state_dict())
        assert found.keys() - expected.keys() == {f"encoder.region_projection.{n}" for n in ("weight", "bias")}
        assert torch.equal(found["shared.weight"][:27], bare.shared.weight)
        assert torch.equal(found["shared.weight"][27:], bare.shared.weight[[0, 2]])  # [CLS] is <s>, [SEP'] </s>
        assert model.base_model.encoder.embed_tokens.weight is model.base_model.shared.weight
        assert all(torch.equal(found[name], expected[name]) for name in expected.keys() - tables)


@torch.no_grad()
def test_inputs_are_assembled_as_the_paper_says(model, batch):
    """Compared with embeddings that are put in their places by hand, row for row."""
    encoder, scale = model.encoder, 4.0  # the root of the width

    def token(*ids):
        return model.shared.weight[list(ids)] * scale

    def regions(row, count):
        weight, bias = encoder.region_projection.weight, encoder.region_projection.bias
        return batch["region_features"][row, :count] @ weight.T + bias

    def patches(row):
        first, second = encoder.patch_projection
        image = batch["pixel_values"][row]
        cut = [image[:, y : y + 4, x : x + 4].flatten() for y in (0, 4) for x in (0, 4)]
        return (torch.stack(cut) @ first.weight.T + first.bias) @ second.weight.T + second.bias

    by_hand = [
        torch.cat([token(4), regions(0, 3), token(2), patches(0), token(0, 10, 11, 12, 6)]),
        torch.cat([token(4), regions(1, 2), token(0, 13, 14, 15, 16, 17, 7)]),
        torch.cat([token(4), patches(2), token(0, 18, 8)]),
        token(0, 19, 20, 6),
    ]
    output = model.encode(**batch)
    assert output.text_start.tolist() == [9, 3, 5, 0]
    assert output.attention_mask.sum(1).tolist() == [len(row) for row in by_hand]
    mbart = MBartModel(MBartConfig(**TINY_MBART | {"vocab_size": 30})).eval()
    mbart.load_state_dict(model.state_dict(), strict=False)
    for row, embeds in enumerate(by_hand):
        expected = mbart.encoder(inputs_embeds=embeds[None]).last_hidden_state[0]
        torch.testing.assert_close(output.last_hidden_state[row, : len(embeds)], expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(output.pooler_output[row], output.last_hidden_state[row, 0])


@torch.no_grad()
def test_two_images_stand_one_after_the_other(make_rc3):
    model, _ = make_rc3(images_per_text=2)
    batch = visio_textual_batch(images=2)
    seen = []
    hook = model.encoder.layernorm_embedding.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    output = model.encode(**batch)
    hook.remove()
    embeds = seen[0] - model.encoder.embed_positions(output.attention_mask)  # [N, S, d]

    def places(row, token):
        like = [torch.allclose(place, model.shared(torch.tensor(token)), atol=1e-5) for place in embeds[row]]
        return [i for i, is_token in enumerate(like) if is_token and output.attention_mask[row, i]]

    # [CLS] 3 regions [SEP] 4 patches [SEP'] 3 regions [SEP] 4 patches [BOS] ...
    assert (places(0, 4), places(0, 2), places(0, 5), places(0, 0)) == ([0], [4, 13], [9], [18])
    assert (places(1, 4), places(1, 2), places(1, 5), places(1, 0)) == ([0], [], [3], [6])
    assert (places(2, 4), places(2, 2), places(2, 5), places(2, 0)) == ([0], [], [5], [10])
    assert output.text_start.tolist() == [18, 6, 10, 0]
    first = batch | {name: value.flip(1) for name, value in batch.items() if name.startswith(("region", "pixel"))}
    assert not torch.allclose(model.encode(**first).pooler_output[0], output.pooler_output[0], atol=1e-3)


@torch.no_grad()
def test_a_row_does_not_depend_on_the_rest_of_its_batch(make_rc3):
    model, _ = make_rc3(Rc3ForConditionalGeneration, images_per_text=2)
    batch = visio_textual_batch(images=2)
    together = model(**batch, decoder_input_ids=TARGETS)
    languages = ["de", "en", "zh", "de"]
    written = model.generate(**batch, language=languages, num_beams=3, max_new_tokens=6)
    assert written[:, 0].tolist() == [7, 6, 8, 7]
    assert not torch.equal(model.generate(**texts(batch), language=languages, num_beams=3, max_new_tokens=6), written)
    for row, language in enumerate(languages):
        alone = cut(batch, [row])
        logits = model(**alone, decoder_input_ids=TARGETS[[row]]).logits
        torch.testing.assert_close(logits[0], together.logits[row], rtol=0, atol=2e-5)
        again = model.generate(**alone, language=language, num_beams=3, max_new_tokens=6)[0]
        assert again.tolist() == written[row, : len(again)].tolist()


@torch.no_grad()
def test_what_the_masks_hide_changes_nothing(model, batch):
    expected = model.encode(**batch)
    hidden = {name: value.clone() for name, value in batch.items()}
    hidden["region_features"][~batch["region_mask"]] = 9.0
    hidden["pixel_values"][~batch["pixel_mask"]] = -9.0
    hidden["input_ids"][batch["attention_mask"] == 0] = 11
    output = model.encode(**hidden)
    there = expected.attention_mask
    assert torch.equal(output.attention_mask, there)
    assert torch.equal(output.last_hidden_state[there], expected.last_hidden_state[there])


def test_one_image_of_two_is_refused_by_its_row(make_rc3):
    model, _ = make_rc3(images_per_text=2)
    batch = visio_textual_batch(images=2)
    batch["region_mask"] = batch["region_mask"].clone()
    batch["region_mask"][1, 1] = False
    with pytest.raises(InputError, match="row 1 has one image"):
        model.encode(**batch)


def test_a_text_without_its_language_is_refused_by_its_row(model, batch):
    batch["input_ids"][2, 2] = 21
    with pytest.raises(InputError, match=r"text 2 must end .* not 21: .*'de': 7"):
        model.encode(**batch)
    batch["attention_mask"][2] = 0
    with pytest.raises(InputError, match="text 2"):
        model.encode(**batch)
