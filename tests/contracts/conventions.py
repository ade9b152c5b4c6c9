"""What transformers' conventions say about calling a model."""

import inspect

import pytest
import torch
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import BaseModelOutputWithPooling

from babelens.utils.errors import InputError

from .common import TEXTS, Contract, assert_equal, embeddings, split

FIRST = ("loss", "logits_per_image", "logits_per_text", "text_embeds", "image_embeds")


class ConventionsContract(Contract):
    """`forward` takes transformers' keywords, and its output is laid out as that of transformers' CLIP."""

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

    def test_attentions_come_from_towers_that_attend(self, model, batch):
        model.set_attn_implementation("eager")
        output = model(**batch, output_attentions=True)
        for states in (output.text_model_output, output.vision_model_output):
            for weights in states.attentions or ():
                assert weights.shape[0] == len(TEXTS) and weights.dim() == 4
        attends = [
            m for m in model.modules() if getattr(m, "config", None) and hasattr(m.config, "num_attention_heads")
        ]
        if attends:
            assert output.text_model_output.attentions

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

    def test_return_dict_may_stand_in_the_configuration(self, model, batch):
        expected = model(**batch)
        model.config.return_dict = False
        for config in (getattr(model.config, name, None) for name in model.config.sub_configs):
            if config is not None:
                config.return_dict = False
        found = model(**batch)
        assert isinstance(found, tuple)
        for one, other in zip(found, expected.to_tuple(), strict=True):
            if isinstance(one, torch.Tensor):
                assert torch.equal(one, other)

    def test_a_call_without_inputs_says_what_is_missing(self, model):
        with pytest.raises(InputError, match="without texts"):
            model()

    def test_a_batch_with_positives_gives_a_loss(self, model, processor, tmp_path):
        """As the collators make them: transformers' own trainer needs nothing else."""
        inputs = self.training_batches(processor)["image_text"]
        inputs = inputs | {"positives": torch.arange(len(TEXTS))[None]}
        assert model(**inputs, return_loss=False).loss is None
        loss = model(**inputs).loss
        assert loss.isfinite() and "positives" in inspect.signature(model.forward).parameters
        arguments = TrainingArguments(
            tmp_path, max_steps=1, logging_steps=1, report_to="none", disable_tqdm=True, use_cpu=True
        )
        rows = [inputs] * 2
        trainer = Trainer(model, arguments, train_dataset=rows, data_collator=lambda examples: dict(examples[0]))
        trainer.train()
        assert trainer.state.log_history[0]["loss"] > 0

    def test_any_way_to_attend_is_taken_by_what_attends(self, model, tmp_path):
        """A tower of convolutions refuses none of them: it does not attend."""
        model.save_pretrained(tmp_path)
        for implementation in ("eager", "sdpa", "flex_attention"):
            loaded = type(model).from_pretrained(tmp_path, attn_implementation=implementation)
            model.set_attn_implementation(implementation)
            for found in (loaded, model):
                assert found.config._attn_implementation == implementation
                for part in found.modules():
                    if isinstance(part, PreTrainedModel) and hasattr(part.config, "num_attention_heads"):
                        assert part.config._attn_implementation == implementation

    def test_the_configuration_says_how_wide_the_embeddings_are(self, model, batch):
        config, width = model.config, model(**batch).text_embeds.shape[1]
        assert config.projection_dim == width
        assert type(config).from_dict(config.to_dict()).projection_dim == width  # where no file says so
        assert type(config).from_dict(config.to_dict() | {"projection_dim": width}).projection_dim == width
