"""LoRA by PEFT around a model."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Trainer, TrainingArguments

from babelens import Embedder, MuralModel, MuralTrainer
from babelens.utils.errors import TrainingSetupError
from tests.support.scaled_training import BATCH_NORM
from tests.support.tiny_training import shapes_trainer, weights

STAGES = BATCH_NORM | {"embedding_size": 16, "hidden_sizes": [16, 32], "layer_type": "bottleneck"}
SMALL = {"vision": STAGES, "text": {"num_hidden_layers": 2}, "max_steps": 4, "learning_rate": 1e-2}


def embeddings(model, processor, corpus):
    embedder = Embedder(model, processor)
    texts = embedder.encode_text(["a red bar", "a blue dot"], language="en")
    return np.concatenate([embedder.encode_image(corpus[:4]["image"]), texts])


AROUND = LoraConfig(
    r=2, target_modules=r"text_model\..*\.(query|value)", modules_to_save=["image_text", "text_text", "similarity"]
)


def around(tmp_path):
    plain = shapes_trainer(tmp_path, **SMALL)
    torch.manual_seed(0)
    return plain, get_peft_model(plain.model, AROUND)


def check_adapters(model, before, tmp_path):
    """Only what PEFT trains has changed; the saved adapters give the same model around a fresh one, and merged."""
    after = weights(model)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {name for name in before if "lora_" in name or "modules_to_save" in name}
    fresh = shapes_trainer(tmp_path, **SMALL)
    loaded = PeftModel.from_pretrained(fresh.model, tmp_path / "adapter")
    parts = fresh.processing_class, fresh.eval_dataset
    expected = embeddings(model, *parts)
    assert np.array_equal(embeddings(loaded, *parts), expected)
    merged = loaded.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    plain = MuralModel.from_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(embeddings(plain, *parts), expected, atol=2e-6)


def test_peft_around_a_model_in_its_own_trainer(tmp_path):
    plain, model = around(tmp_path)
    before = weights(model)
    assert model.frozen_towers == ("image",)
    trainer = MuralTrainer(
        model,
        plain.args,
        processing_class=plain.processing_class,
        train_dataset=plain.tasks,
        eval_dataset=plain.eval_dataset,
    )
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    check_adapters(model, before, tmp_path)
    trainer.args.towers = {"image": {"train": "none"}}
    with pytest.raises(TrainingSetupError, match="and PeftModel is none of them"):
        MuralTrainer(model, trainer.args, processing_class=plain.processing_class)


def test_peft_around_a_model_in_the_trainer_of_transformers(tmp_path):
    plain, model = around(tmp_path)
    before = weights(model)

    def collate(rows):
        texts = [row["captions"][0]["text"] for row in rows]
        images = [row["image"] for row in rows]
        inputs = plain.processing_class(text=texts, images=images, language="en", return_tensors="pt")
        return {**inputs, "return_loss": True}

    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-2}
    arguments = TrainingArguments(output_dir=str(tmp_path), max_steps=4, remove_unused_columns=False, **options)
    trainer = Trainer(model, arguments, train_dataset=list(plain.eval_dataset), data_collator=collate)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    # Its single task has no head for translations.
    check_adapters(model, {name: value for name, value in before.items() if "text_text" not in name}, tmp_path)
