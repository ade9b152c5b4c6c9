"""A student of which the upper layers of the text encoder are trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from babelens import MlaStudentModel, MlaStudentProcessor, MlaTrainer, MlaTrainingArguments
from babelens.utils.errors import InputError
from tests.support.tiny_native import tiny_bert, tiny_clip
from tests.support.tiny_training import prepared, shapes_corpus, weights

UPPER = {"text": {"train": "upper", "layers": 1, "rate": 0.05}}
SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "max_steps": 4,
    "learning_rate": 0.1,
    "optim": "sgd",
    "warmup_steps": 0,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "precision": "float32",
    "mix_languages": True,
    "towers": UPPER,
    # Without kept features, images are transformed.
    "image_augmentation": None,
}


def trainer_of(folder: Path, *tasks: str, model: dict[str, Any] | None = None, **changes: Any) -> MlaTrainer:
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


def trained(folder: Path, *tasks: str, **changes: Any) -> tuple[dict[str, np.ndarray], list[int]]:
    """The weights after a training, and the number of texts that each layer of the text encoder computed in it."""
    trainer = trainer_of(folder, *tasks, **changes)
    read = [0, 0, 0]
    for index, layer in enumerate(trainer.model.text_model.encoder.layer):

        def count(module: Any, args: Any, index: int = index) -> None:
            read[index] += len(args[0])

        layer.attention.self.query.register_forward_pre_hook(count)
    trainer.train()
    return weights(trainer.model), read


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"native_texts": "native", "text_prompt": "dot "}},
        {"model": {"strategy": "distillation"}},
        {"embed_chunk_size": 3},
        {"mix_languages": False},
    ],
    ids=str,
)
def test_the_upper_layers_are_trained_and_no_others(changes: dict[str, Any], tmp_path: Path) -> None:
    after, read = trained(tmp_path, **changes)
    assert all(read)
    before = weights(trainer_of(tmp_path, **changes).model)
    for name, value in after.items():
        is_trained = name.startswith(("projection.", "text_model.encoder.layer.2."))
        # A bias of keys adds the same to all logits of a query.
        assert name.endswith("key.bias") or np.array_equal(value, before[name]) != is_trained, name


def test_layers_follow_heads_in_a_second_training(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, towers=None)
    frozen = weights(trainer.model.text_model)
    trainer.train()
    model = trainer.model
    assert all(np.array_equal(value, frozen[name]) for name, value in weights(model.text_model).items())
    assert not model.text_model.training
    prepared(
        MlaTrainer(
            model=model,
            args=MlaTrainingArguments(output_dir=str(tmp_path / "run"), **SETTINGS),
            processing_class=trainer.processing_class,
            train_dataset={"text_text": shapes_corpus()},
            cache_dir=str(tmp_path / "cache"),
        )
    ).train()
    changed = {name for name, value in weights(model.text_model).items() if not np.array_equal(value, frozen[name])}
    assert changed and all(name.startswith("encoder.layer.2.") for name in changed)
    model.train()
    assert [layer.training for layer in model.text_model.encoder.layer] == [False, False, True]
    assert not model.native_model.training
    model.save_pretrained(tmp_path / "saved")
    again = AutoModel.from_pretrained(tmp_path / "saved")
    assert all(np.array_equal(value, weights(model)[name]) for name, value in weights(again).items())


@pytest.mark.parametrize(
    ("towers", "model", "named"),
    [
        ({"image": {"train": "none"}}, {}, r"towers\.image"),
        ({"text": {"train": "all"}}, {"strategy": "acquisition", "acquirer_size": 4}, r"towers\.text"),
        ({"text": {"train": "upper", "layers": 4}}, {}, "layers=4 is more than this tower has: 3"),
        ({"text": {"rate": 1e-3}}, {}, r"towers\.text: rate"),
    ],
    ids=str,
)
def test_towers_that_a_student_cannot_train_are_refused(tmp_path: Path, towers: Any, model: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        trainer_of(tmp_path, towers=towers, model=model)


def test_acquirers_have_no_towers_to_train(make_mla: Any, tmp_path: Path) -> None:
    model, processor = make_mla()
    arguments = MlaTrainingArguments(output_dir=str(tmp_path), **SETTINGS)
    with pytest.raises(InputError, match="MlaModel cannot train this tower"):
        prepared(
            MlaTrainer(model, arguments, processing_class=processor, train_dataset={"text_text": shapes_corpus()})
        )
