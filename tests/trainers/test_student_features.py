"""A student with a frozen text encoder: its features are computed once, and training on them is training with it."""

import pytest
import torch
from transformers import AutoModel, set_seed

from babelens import (
    Embedder,
    MlaStudentConfig,
    MlaStudentModel,
    MlaStudentProcessor,
    MlaTrainer,
    MlaTrainingArguments,
)
from babelens.utils.errors import InputError
from tests.support.tiny_native import tiny_bert, tiny_clip
from tests.support.tiny_training import prepared, shapes_corpus

SETTINGS = {
    "per_device_train_batch_size": 8,
    "max_steps": 3,
    "learning_rate": 1e-2,
    "warmup_steps": 0,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "precision": "float32",
    "mix_languages": True,
}


def student(**options):
    """A student with a frozen BERT, and its processor."""
    native, native_processor = tiny_clip()
    encoder, tokenizer = tiny_bert()
    torch.manual_seed(0)
    options = {"languages": ["de", "fr"], "strategy": "projection", "text_pooling": "mean"} | options
    model = MlaStudentModel.from_towers(native, encoder, **options)
    return model, MlaStudentProcessor.for_student(model.config, native_processor, tokenizer)


@pytest.fixture
def make_trainer(tmp_path):
    def make(*tasks, model=None, **changes):
        parts = student(**(model or {}))
        return prepared(
            MlaTrainer(
                model=parts[0],
                args=MlaTrainingArguments(output_dir=str(tmp_path / "run"), **SETTINGS | changes),
                processing_class=parts[1],
                train_dataset=dict.fromkeys(tasks, shapes_corpus()),
                cache_dir=str(tmp_path / "cache"),
            )
        )

    return make


def counted(model):
    """A list that grows with every call of the student's text encoder."""
    calls = []
    model.text_model.register_forward_hook(lambda *call: calls.append(call))
    return calls


def gradients(trainer):
    """Loss and gradients of the first step."""
    set_seed(0)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.training_step(trainer.model, batch)
    return [loss, *(weight.grad for weight in trainer.model.projection.parameters())]


@pytest.mark.parametrize("task", ["text_text", "image_text"])
@pytest.mark.parametrize("reader", ["student", "native"])
def test_training_on_features_is_training_with_the_encoder(make_trainer, task, reader):
    options = {"native_texts": reader, "text_prompt": "dot "}
    on_features = make_trainer(task, model=options)
    still = {"image_augmentation": {"horizontal_flip": 0.0}} if task == "image_text" else {}
    with_encoder = make_trainer(task, model=options, cache_frozen_features=False, **still)
    calls = counted(on_features.model), counted(with_encoder.model)
    for found, expected in zip(gradients(on_features), gradients(with_encoder), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert not calls[0] and calls[1]


def test_features_are_computed_once(make_trainer, tmp_path, monkeypatch):
    make_trainer("text_text", "image_text").train()
    files = sorted((tmp_path / "cache").iterdir())
    assert len(files) == 5  # of images, of native texts, and of texts in three languages, the same in both tasks
    monkeypatch.setattr(Embedder, "_encode", lambda *call: pytest.fail("features are computed again"))
    trainer = make_trainer("text_text", "image_text")
    calls = counted(trainer.model)
    trainer.train()
    assert not calls and sorted((tmp_path / "cache").iterdir()) == files


def test_without_the_cache_the_encoder_reads_every_batch(make_trainer):
    trainer = make_trainer("text_text", cache_frozen_features=False)
    calls = counted(trainer.model)
    trainer.train()
    assert len(calls) == 3


@pytest.mark.parametrize("strategy", ["distillation", "acquisition"])
def test_an_encoder_that_is_trained_has_no_features_to_keep(strategy):
    assert student()[0].frozen_towers == ("text",)
    assert student(strategy=strategy, acquirer_size=4)[0].frozen_towers == ()


def test_a_hidden_layer_with_dropout(make_trainer, tmp_path):
    options = {"text_hidden_size": 24, "text_dropout": 0.5, "text_layer_norm": True}
    trainer = make_trainer("text_text", model=options, logging_steps=1)
    model = trainer.model
    assert [tuple(weight.shape) for weight in model.projection.parameters()] == [(24, 12), (24,), (16, 24), (16,)]
    assert model.parameter_parts()["projection"] == 24 * 13 + 16 * 25
    features = torch.arange(12.0)[None]
    with torch.no_grad():
        model.train()
        assert not torch.equal(*(model.get_text_features(text_features=features).pooler_output for _ in range(2)))
        model.eval()
        assert torch.equal(*(model.get_text_features(text_features=features).pooler_output for _ in range(2)))
    trainer.train()
    model.eval().save_pretrained(tmp_path / "saved")
    again = AutoModel.from_pretrained(tmp_path / "saved")
    with torch.no_grad():
        found, kept = (each.get_text_features(text_features=features).pooler_output for each in (again, model))
    assert torch.equal(found, kept)


def test_the_projection_is_by_default_the_papers():
    model, _ = student()
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {
        "projection.weight",
        "projection.bias",
    }
    assert [layer.p for layer in model.text_head_input] == [0]


def test_wrong_features_are_refused():
    model, _ = student()
    with pytest.raises(InputError, match="text_features have the width 5; this model's text encoder gives 12"):
        model(text_features=torch.ones(2, 5))
    with pytest.raises(InputError, match="needs texts: input_ids or text_features"):
        model.get_text_features()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"text_hidden_size": 0}, "text_hidden_size=0 must be"), ({"text_dropout": 1.0}, "text_dropout=1.0 must be")],
)
def test_impossible_layers_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        MlaStudentConfig(**wrong)
