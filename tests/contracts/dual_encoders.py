import copy
import pickle
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainingArguments

from tests.support.versions import checkpoint_activations

from .common import LANGUAGES, TEXTS, assert_equal, drawn_images, embeddings, image_text_batch, split
from .conventions import ConventionsContract
from .exports import ExportContract


class DualEncoderContract(ConventionsContract, ExportContract):
    """The model computes the same, however it is called."""

    # Largest distance between an embedding in bfloat16 and in float32; both have length 1.
    bfloat16_tolerance = 0.05
    # Parts that may be frozen while something is left to train.
    freezable: ClassVar[tuple[str, ...]] = ("text_model", "vision_model")

    def training_batches(self, processor: Any) -> dict[str, dict[str, Tensor]]:
        return {"image_text": image_text_batch(processor)}

    def test_logits_are_cosines_by_temperature(self, model, batch):
        with torch.no_grad():
            output = model(**batch)
        for embeds in (output.text_embeds, output.image_embeds):
            torch.testing.assert_close(embeds.norm(dim=-1), torch.ones(len(TEXTS)))
            assert embeds.std(0).mean() > 0.01  # different inputs, different embeddings
        expected = output.text_embeds @ output.image_embeds.T / output.temperature
        torch.testing.assert_close(output.logits_per_text, expected)
        assert torch.equal(output.logits_per_image, output.logits_per_text.T)

    def test_features_are_the_embeddings_before_they_are_normalised(self, model, batch):
        text, images = split(batch)
        with torch.no_grad():
            features = {
                "text_embeds": model.get_text_features(**text).pooler_output,
                "image_embeds": model.get_image_features(**images).pooler_output,
            }
        assert not torch.allclose(features["text_embeds"].norm(dim=-1), torch.ones(len(TEXTS)))
        normalised = {name: value / value.norm(dim=-1, keepdim=True) for name, value in features.items()}
        assert_equal(normalised, embeddings(model, batch), rtol=1e-6, atol=1e-6)

    def test_one_modality_alone_gives_its_embedding_first(self, model, batch):
        both = embeddings(model, batch)
        for inputs, name in zip(split(batch), ("text_embeds", "image_embeds"), strict=True):
            with torch.no_grad():
                output = model(**inputs)
            assert torch.equal(output[0], both[name])
            assert output.logits_per_text is None and output.logits_per_image is None

    def test_there_may_be_more_texts_than_images(self, model, batch):
        text, images = split(batch)
        with torch.no_grad():
            fewer = model(**text, pixel_values=images["pixel_values"][:2])
            every = model(**batch)
        assert fewer.logits_per_image.shape == (2, len(TEXTS))
        torch.testing.assert_close(fewer.logits_per_image, every.logits_per_image[:2], rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match=r"\[2, \d+\]"):
            model(**text, pixel_values=images["pixel_values"][:2], return_loss=True)

    def test_the_loss_is_the_objective_on_the_embeddings(self, model, processor):
        for inputs in self.training_batches(processor).values():
            with torch.no_grad():
                output = model(**inputs, return_loss=True)
                slim = model(**inputs, return_logits=False)
            assert slim.loss is None and slim.logits_per_text is None and slim.logits_per_image is None
            assert torch.equal(model.contrastive_objective(slim), output.loss)
            assert output.loss.dim() == 0 and output.loss.isfinite()

    def test_batch_and_padding_do_not_matter(self, model, processor):
        together = embeddings(model, image_text_batch(processor))
        for i, (text, language, image) in enumerate(zip(TEXTS, LANGUAGES, drawn_images(len(TEXTS)), strict=True)):
            inputs = processor(images=[image], text=[text], language=language, return_tensors="pt")
            alone = {name: value[0] for name, value in embeddings(model, inputs).items()}
            assert_equal(alone, {name: value[i] for name, value in together.items()}, rtol=0, atol=1e-6)

    def test_evaluation_draws_no_random_numbers_and_changes_nothing(self, model, batch):
        before, results = copy.deepcopy((batch, model.state_dict())), []
        for seed in (1, 2):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            results.append(embeddings(model, batch))
            assert torch.equal(torch.get_rng_state(), state)
        assert_equal(*results)
        assert_equal(batch, before[0])
        assert_equal(model.state_dict(), before[1])

    def test_building_is_repeatable_and_copies_are_equal(self, model, make, batch):
        expected = embeddings(model, batch)
        for other in (make()[0], copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert_equal(dict(other.state_dict()), dict(model.state_dict()))
            assert_equal(embeddings(other, batch), expected)

    def test_bfloat16_stays_close(self, model, batch):
        exact = embeddings(model, batch)
        rough = copy.deepcopy(model).to(torch.bfloat16)
        halved = {name: value.bfloat16() if value.is_floating_point() else value for name, value in batch.items()}
        found = embeddings(rough, halved)
        assert {value.dtype for value in found.values()} == {torch.bfloat16}
        for name, value in exact.items():
            assert (found[name].float() - value).norm(dim=-1).max() < self.bfloat16_tolerance, name
        loss = rough(**halved, return_loss=True).loss
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, model(**batch, return_loss=True).loss, rtol=0.1, atol=0.1)

    def test_what_should_train_gets_a_gradient_and_nothing_else_does(self, make, processor):
        for frozen in (None, *self.freezable):
            model = make()[0].train()
            if frozen:
                model.get_submodule(frozen).requires_grad_(False)
            for inputs in self.training_batches(processor).values():
                model(**inputs, return_loss=True).loss.backward()
            trained = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
            assert trained == {name for name, p in model.named_parameters() if p.requires_grad}, frozen

    def test_gradient_checkpointing_changes_nothing(self, model, processor):
        """The second pass has the same dropout."""
        if not model.supports_gradient_checkpointing:
            pytest.skip("not supported, as the model says")
        checkpointed = copy.deepcopy(model)
        checkpoint_activations(checkpointed)
        for inputs in self.training_batches(processor).values():
            plain, plain_calls = _training_pass(model, inputs)
            again, calls = _training_pass(checkpointed, inputs)
            assert calls > plain_calls  # layers were computed a second time
            assert_equal(again, plain)

    def test_transformers_own_trainer_trains_it(self, model, processor, tmp_path):
        """Fine-tuning scripts collate `return_loss=True` with a batch, and read `outputs.loss`."""
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        inputs = self.training_batches(processor)["image_text"] | {"return_loss": True}
        before = copy.deepcopy(model)
        trainer = Trainer(
            model,
            TrainingArguments(
                tmp_path,
                max_steps=2,
                per_device_train_batch_size=1,
                gradient_accumulation_steps=2,
                logging_steps=1,
                learning_rate=1e-4,
                lr_scheduler_type="constant",
                remove_unused_columns=False,
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=[inputs] * 4,
            eval_dataset=[inputs] * 2,
            data_collator=lambda examples: dict(examples[0]),
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert losses[0] == pytest.approx(before.train()(**inputs).loss.item(), rel=1e-3)
        assert losses[1] < losses[0]
        with torch.no_grad():
            assert trainer.evaluate()["eval_loss"] == pytest.approx(model.eval()(**inputs).loss.item(), rel=1e-3)


def _training_pass(model: PreTrainedModel, inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    calls = []
    hooks = [m.register_forward_hook(lambda *_: calls.append(1)) for m in model.modules() if isinstance(m, nn.Linear)]
    torch.manual_seed(0)
    loss = model.train()(**inputs, return_loss=True).loss
    loss.backward()
    for hook in hooks:
        hook.remove()
    results = {"loss": loss.detach()} | {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return results, len(calls)
