from typing import Any

import numpy as np
import pytest
import torch

from babelens import MlaStudentModel
from tests.support.mla_training import COLD
from tests.support.tiny_native import student_processor, tiny_bert, tiny_clip
from tests.support.tiny_training import weights

UPPER = {"text": {"train": "upper", "layers": 1}}
# Steps that follow the gradient.
DESCENT = COLD | {"optim": "sgd", "learning_rate": 0.1, "learning_rate_mapping": {"^text_model": 0.05}}


@pytest.mark.parametrize(
    ("model", "changes"),
    [({"native_texts": "native"}, {}), ({"strategy": "distillation"}, {"embed_chunk_size": 3})],
    ids=str,
)
def test_the_upper_layers_are_trained_and_no_others(make_mla_trainer, model: dict[str, Any], changes: dict[str, Any]):
    native, native_processor = tiny_clip()
    encoder, tokenizer = tiny_bert(layers=3)
    torch.manual_seed(0)
    options = {"languages": ["de", "fr"], "strategy": "projection", "text_pooling": "mean"} | model
    student = MlaStudentModel.from_towers(native, encoder, **options)
    parts = student, student_processor(student.config, native_processor, tokenizer)
    settings = DESCENT | {"towers": UPPER, "per_device_train_batch_size": 8, "mix_languages": True}
    trainer = make_mla_trainer(parts=parts, **settings | changes)
    before = weights(trainer.model)
    trainer.train()
    for name, value in weights(trainer.model).items():
        is_trained = name.startswith(("projection.", "text_model.encoder.layer.2."))
        # A bias of keys adds the same to all logits of a query.
        assert name.endswith("key.bias") or np.array_equal(value, before[name]) != is_trained, name
