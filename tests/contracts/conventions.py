import inspect

import pytest
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from babelens.utils.errors import InputError

from .common import TEXTS, Contract, assert_equal, embeddings, split

FIRST = ("loss", "logits_per_image", "logits_per_text", "text_embeds", "image_embeds")


class ConventionsContract(Contract):
    """`forward` takes transformers' keywords, and its output has the layout of transformers' CLIP."""

    def test_outputs_hold_what_the_towers_say_as_clip_s_do(self, model, batch):
        text, images = split(batch)
        with torch.no_grad():
            output = model(**batch, return_loss=True, output_hidden_states=True)
            features = {
                "text_model_output": model.get_text_features(**text, output_hidden_states=True),
                "vision_model_output": model.get_image_features(**images, output_hidden_states=True),
            }
        assert list(output)[:7] == [*FIRST, *features]
        for name, expected in features.items():
            assert isinstance(output[name], BaseModelOutputWithPooling)
            torch.testing.assert_close(output[name].pooler_output, expected.pooler_output, rtol=0, atol=1e-6)
            torch.testing.assert_close(output[name].last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-6)
            for found, state in zip(output[name].hidden_states, expected.hidden_states, strict=True):
                torch.testing.assert_close(found, state, rtol=0, atol=1e-6)
        plain = output.to_tuple()
        assert isinstance(plain[5], tuple) and torch.equal(plain[5][0], output.text_model_output[0])

    def test_states_come_when_asked_for_and_change_nothing(self, model, batch):
        plain = model(**batch)
        assert plain.text_model_output.hidden_states is None and plain.vision_model_output.hidden_states is None
        for asked in ({"output_hidden_states": True}, {"output_hidden_states": None, "output_attentions": False}):
            output = model(**batch, **asked)
            assert_equal({n: output[n] for n in FIRST[3:]}, {n: plain[n] for n in FIRST[3:]})
        model.set_attn_implementation("eager")
        weights = model(**batch, output_attentions=True).text_model_output.attentions
        if any(hasattr(getattr(part, "config", None), "num_attention_heads") for part in model.modules()):
            assert weights and all(each.shape[0] == len(TEXTS) and each.dim() == 4 for each in weights)

    def test_large_batches_hold_no_states(self, model, batch):
        slim = model(**batch, return_logits=False)
        assert slim.text_model_output is None and slim.vision_model_output is None
        assert all(isinstance(value, torch.Tensor) for value in slim.values())
        assert model(**batch, return_logits=False, output_hidden_states=True).text_model_output is not None

    def test_keywords_that_transformers_and_peft_name_pass(self, model, batch):
        """Others are ignored, as transformers' models do."""
        expected = embeddings(model, batch)
        named = {"num_items_in_batch": torch.tensor(6), "inputs_embeds": None, "output_attentions": None}
        assert_equal(embeddings(model, batch | named | {"pixel_value": 1}), expected)

    def test_missing_inputs_are_named(self, model, batch):
        with pytest.raises(InputError, match="without texts"):
            model()
        for inputs in split(batch):
            with pytest.raises(ValueError, match="a loss needs"):
                model(**inputs, return_loss=True)

    def test_a_batch_with_positives_gives_a_loss(self, model, processor):
        """Collators make such batches: transformers' own trainer needs nothing else."""
        inputs = self.training_batches(processor)["image_text"] | {"positives": torch.arange(len(TEXTS))[None]}
        assert model(**inputs, return_loss=False).loss is None and model(**inputs).loss.isfinite()
        assert "positives" in inspect.signature(model.forward).parameters

    def test_any_way_to_attend_is_taken_by_what_attends(self, model):
        """A tower of convolutions refuses none of them: it does not attend."""
        for implementation in ("eager", "flex_attention"):
            model.set_attn_implementation(implementation)
            assert model.config._attn_implementation == implementation
            for part in model.modules():
                if isinstance(part, PreTrainedModel) and hasattr(part.config, "num_attention_heads"):
                    assert part.config._attn_implementation == implementation

    def test_the_configuration_says_how_wide_the_embeddings_are(self, model, batch):
        config, width = model.config, model(**batch).text_embeds.shape[1]
        assert config.projection_dim == width
        assert type(config).from_dict(config.to_dict()).projection_dim == width  # where no file says so
        assert type(config).from_dict(config.to_dict() | {"projection_dim": width}).projection_dim == width
