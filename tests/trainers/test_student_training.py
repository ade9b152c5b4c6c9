"""Students whose text encoder is trained in its upper layers: trained parts, and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babelens import MlaStudentModel, MlaTrainer, MlaTrainingArguments
from tests.support.tiny_native import student_processor, tiny_bert, tiny_clip
from tests.support.tiny_training import QUIET, prepared, shapes_corpus, weights

UPPER = {"text": {"train": "upper", "layers": 1}}
SETTINGS: dict[str, Any] = QUIET | {
    "per_device_train_batch_size": 8,
    "max_steps": 3,
    "learning_rate": 0.1,
    "optim": "sgd",
    "warmup_steps": 0,
    "mix_languages": True,
    "learning_rate_mapping": {"^text_model": 0.05},
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
            processing_class=student_processor(student.config, native_processor, tokenizer),
            train_dataset=dict.fromkeys(tasks or ("text_text",), shapes_corpus()),
            cache_dir=str(folder / "cache"),
        )
    )


@pytest.mark.parametrize(
    "changes",
    [{"model": {"native_texts": "native"}}, {"model": {"strategy": "distillation"}, "embed_chunk_size": 3}],
    ids=str,
)
def test_the_upper_layers_are_trained_and_no_others(changes: dict[str, Any], tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, towers=UPPER, **changes)
    before = weights(trainer.model)
    trainer.train()
    for name, value in weights(trainer.model).items():
        is_trained = name.startswith(("projection.", "text_model.encoder.layer.2."))
        # A bias of keys adds the same to all logits of a query.
        assert name.endswith("key.bias") or np.array_equal(value, before[name]) != is_trained, name
