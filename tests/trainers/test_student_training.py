"""Students with a frozen, a half-frozen and a trained text encoder: what is trained, and features computed once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babelens import Embedder, MlaStudentModel, MlaStudentProcessor, MlaTrainer, MlaTrainingArguments
from babelens.utils.errors import InputError
from tests.support.tiny_native import tiny_bert, tiny_clip
from tests.support.tiny_training import prepared, shapes_corpus, weights

UPPER = {"text": {"train": "upper", "layers": 1, "rate": 0.05}}
SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "max_steps": 3,
    "learning_rate": 0.1,
    "optim": "sgd",
    "warmup_steps": 0,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "precision": "float32",
    "mix_languages": True,
}


def trainer_of(folder: Path, *tasks: str, model: dict[str, Any] | None = None, **changes: Any) -> MlaTrainer:
    """A trainer of a student on a tiny BERT of three layers."""
    native, native_processor = tiny_clip()
    encoder, tokenizer = tiny_bert(layers=3)
    torch.manual_seed(0)
    options = {"languages": ["de", "fr"], "strategy": "projection", "text_pooling": "mean"} | (model or {})
    student = MlaStudentModel.from_towers(native, encoder, **options)
    return prepared(
        MlaTrainer(
            model=student,
            args=MlaTrainingArguments(output_dir=str(folder / "run"), **SETTINGS | changes),
            processing_class=MlaStudentProcessor.for_student(student.config, native_processor, tokenizer),
            train_dataset=dict.fromkeys(tasks or ("text_text",), shapes_corpus()),
            cache_dir=str(folder / "cache"),
        )
    )


def trained(folder: Path, *tasks: str, **changes: Any) -> tuple[dict[str, np.ndarray], int]:
    """The weights after a training, and how often the text encoder was called in it."""
    trainer, calls = trainer_of(folder, *tasks, **changes), []
    trainer.model.text_model.register_forward_hook(lambda *call: calls.append(call))
    trainer.train()
    return weights(trainer.model), len(calls)


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("text_text", {"model": {"text_prompt": "dot "}}),
        ("image_text", {"model": {"native_texts": "native"}}),
        ("text_text", {"model": {"strategy": "distillation"}, "towers": {"text": {"train": "none"}}}),
    ],
    ids=["projection", "of images", "distillation"],
)
def test_training_on_features_is_training_with_the_encoder(tmp_path, task, changes):
    still = {"image_augmentation": {"horizontal_flip": 0.0}} if task == "image_text" else {}
    on_features, calls = trained(tmp_path, task, **changes)
    assert not calls
    with_encoder, calls = trained(tmp_path, task, cache_frozen_features=False, **changes, **still)
    assert calls == 3
    for name, value in with_encoder.items():
        np.testing.assert_allclose(on_features[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_features_are_computed_once(tmp_path, monkeypatch):
    trainer_of(tmp_path, "text_text", "image_text").train()
    files = sorted((tmp_path / "cache").iterdir())
    assert len(files) == 5  # of images, of native texts, and of texts in three languages, the same in both tasks
    monkeypatch.setattr(Embedder, "_encode", lambda *call: pytest.fail("features are computed again"))
    trainer_of(tmp_path, "text_text", "image_text").train()
    assert sorted((tmp_path / "cache").iterdir()) == files


@pytest.mark.parametrize(
    "changes",
    [{"model": {"native_texts": "native"}}, {"model": {"strategy": "distillation"}, "embed_chunk_size": 3}],
    ids=str,
)
def test_the_upper_layers_are_trained_and_no_others(changes: dict[str, Any], tmp_path: Path) -> None:
    after, calls = trained(tmp_path, towers=UPPER, **changes)
    assert calls
    before = weights(trainer_of(tmp_path, towers=UPPER, **changes).model)
    for name, value in after.items():
        is_trained = name.startswith(("projection.", "text_model.encoder.layer.2."))
        # A bias of keys adds the same to all logits of a query.
        assert name.endswith("key.bias") or np.array_equal(value, before[name]) != is_trained, name


@pytest.mark.parametrize(
    ("towers", "model", "named"),
    [
        ({"image": {"train": "none"}}, {}, r"towers\.image"),
        ({"text": {"train": "all"}}, {"strategy": "acquisition", "acquirer_size": 4}, r"towers\.text"),
        ({"text": {"train": "upper", "layers": 4}}, {}, "layers=4"),
    ],
    ids=str,
)
def test_towers_that_a_student_cannot_train_are_refused(tmp_path: Path, towers: Any, model: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        trainer_of(tmp_path, towers=towers, model=model)


def test_wrong_features_are_refused(tmp_path):
    model = trainer_of(tmp_path).model
    with pytest.raises(InputError, match="width 5"):
        model(text_features=torch.ones(2, 5))
    with pytest.raises(InputError, match="needs texts"):
        model.get_text_features()
