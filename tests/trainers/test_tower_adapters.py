"""LoRA on a tower: by the option `towers`, whose adapters are merged at the end, and by PEFT around the model."""

import signal

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from processes import ProcessesDied, together
from scaled_training import BATCH_NORM, train
from tiny_training import assert_same, shapes_trainer, weights
from transformers import AutoModel, Trainer, TrainerCallback, TrainingArguments

from babelens import Embedder, MuralModel, MuralTrainer
from babelens.configuration.errors import ModelFolderError, TrainingSetupError

STAGES = BATCH_NORM | {"embedding_size": 16, "hidden_sizes": [16, 32], "layer_type": "bottleneck"}
LORA = {"r": 2, "lora_alpha": 4, "lora_dropout": 0.1}
BOTH = {"image": {"train": "lora", "lora": {"r": 2}}, "text": {"train": "lora", "lora": LORA, "decay": 0.5}}
SMALL = {"vision": STAGES, "text": {"num_hidden_layers": 2}, "max_steps": 4, "learning_rate": 1e-2, "towers": BOTH}
SAVED = {"save_strategy": "steps", "save_steps": 2}


def embeddings(model, processor, corpus):
    embedder = Embedder(model, processor)
    texts = embedder.encode_text(["a red bar", "a blue dot"], language="en")
    return np.concatenate([embedder.encode_image(corpus[:4]["image"]), texts])


class BeforeMerging(TrainerCallback):
    """Keeps what the model answers at the end of training."""

    def __init__(self, processor, corpus):
        self.parts = processor, corpus

    def on_train_end(self, args, state, control, model=None, **kwargs):
        self.names = set(model.state_dict())
        self.answers = embeddings(model, *self.parts)


def test_the_merged_model_answers_as_the_trained_one(tmp_path):
    trainer = shapes_trainer(tmp_path, **SMALL | SAVED)
    plain = shapes_trainer(tmp_path, **SMALL | {"towers": None}).model
    unmerged = BeforeMerging(trainer.processing_class, trainer.eval_dataset)
    start = embeddings(trainer.model, *unmerged.parts)
    trainer.add_callback(unmerged)
    trainer.train()
    assert any("lora_A" in name for name in unmerged.names)
    assert [(name, type(part)) for name, part in trainer.model.named_modules()] == [
        (name, type(part)) for name, part in plain.named_modules()
    ]
    merged = embeddings(trainer.model, *unmerged.parts)
    np.testing.assert_allclose(merged, unmerged.answers, atol=2e-6)
    assert np.abs(merged - start).max() > 1e-2
    trainer.save_model(tmp_path / "saved")
    loaded, info = AutoModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values())
    assert_same(weights(loaded), weights(trainer.model))
    np.testing.assert_allclose(embeddings(loaded, *unmerged.parts), merged, atol=1e-6)  # in another memory layout


def test_the_initial_adapters_follow_from_the_seed(tmp_path):
    state = torch.get_rng_state()
    first, again = (weights(shapes_trainer(tmp_path, **SMALL).model) for _ in range(2))
    assert_same(first, again)
    plain = shapes_trainer(tmp_path, **SMALL | {"towers": None})
    drawn = torch.rand(3)
    shapes_trainer(tmp_path, **SMALL)
    assert torch.equal(torch.rand(3), drawn)
    torch.set_rng_state(state)
    assert set(weights(plain.model)) != set(first)


def test_a_checkpoint_resumes_with_its_adapters(tmp_path):
    unbroken = shapes_trainer(tmp_path / "unbroken", **SMALL | SAVED)
    unbroken.train()
    resumed = shapes_trainer(tmp_path / "resumed", **SMALL)
    resumed.train(resume_from_checkpoint=str(tmp_path / "unbroken" / "checkpoint-2"))
    assert_same(weights(resumed.model), weights(unbroken.model))
    ended = shapes_trainer(tmp_path / "ended", **SMALL)
    ended.train(resume_from_checkpoint=str(tmp_path / "unbroken" / "checkpoint-4"))
    assert_same(weights(ended.model), weights(unbroken.model))


def test_a_checkpoint_is_not_taken_for_a_plain_model(tmp_path):
    shapes_trainer(tmp_path, **SMALL | SAVED).train()
    with pytest.raises(ModelFolderError, match=r"checkpoint-4 lacks the weights .*\.attention\."):
        Embedder.from_pretrained(tmp_path / "checkpoint-4")


def test_two_killed_processes_resume_to_the_same_weights(tmp_path):
    settings = SMALL | SAVED | {"per_device_train_batch_size": 4, "embed_chunk_size": 2}
    unbroken = together(2, train, tmp_path / "unbroken", **settings)
    with pytest.raises(ProcessesDied) as died:
        together(2, train, tmp_path / "killed", die_at=3, **settings)
    assert -signal.SIGKILL in died.value.codes
    resumed = together(2, train, tmp_path / "killed", resume=True, **settings)
    for found, expected in zip(resumed, unbroken, strict=True):
        assert_same(found.weights, expected.weights)


def test_training_goes_on_with_new_adapters(tmp_path):
    trainer = shapes_trainer(tmp_path, **SMALL)
    trainer.train()
    first = weights(trainer.model)
    trainer.train()
    second = weights(trainer.model)
    changed = {name for name in first if not np.array_equal(first[name], second[name])}
    assert any(name.endswith("self.query.weight") for name in changed)
    assert not any(name.startswith("text_model.embeddings") for name in changed)
    assert first.keys() == second.keys()


def test_adapters_are_merged_when_training_fails(tmp_path):
    trainer = shapes_trainer(tmp_path, **SMALL)
    trainer.add_callback(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.save_model(tmp_path / "saved")
    assert_same(weights(MuralModel.from_pretrained(tmp_path / "saved")), weights(trainer.model))


class Interrupted(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise KeyboardInterrupt


def test_the_best_checkpoint_is_loaded_with_its_adapters(tmp_path):
    best = {"load_best_model_at_end": True, "metric_for_best_model": "mean_recall", "greater_is_better": False}
    settings = SMALL | SAVED | best | {"eval_strategy": "steps", "eval_steps": 2, "learning_rate": 0.1}
    trainer = shapes_trainer(tmp_path, **settings)
    trainer.train()
    chosen = shapes_trainer(tmp_path / "other", **SMALL)
    chosen._load_from_checkpoint(trainer.state.best_model_checkpoint)
    chosen.merge_adapters()
    assert_same(weights(trainer.model), weights(chosen.model))


def test_a_kind_of_lora_that_cannot_be_merged_is_refused(tmp_path):
    plain = shapes_trainer(tmp_path, **SMALL | {"towers": None})
    before = weights(plain.model)
    plain.args.towers = BOTH | {"text": {"train": "lora", "lora": {"alora_invocation_tokens": [3]}}}
    with (
        pytest.warns(UserWarning, match="aLoRA"),
        pytest.raises(TrainingSetupError, match=r"towers.text: lora: aLoRA does not support merging"),
    ):
        MuralTrainer(plain.model, plain.args, processing_class=plain.processing_class)
    assert_same(weights(plain.model), before)


# ---- PEFT around the whole model ----

AROUND = LoraConfig(
    r=2, target_modules=r"text_model\..*\.(query|value)", modules_to_save=["image_text", "text_text", "similarity"]
)


def around(tmp_path):
    plain = shapes_trainer(tmp_path, **SMALL | {"towers": None})
    torch.manual_seed(0)
    return plain, get_peft_model(plain.model, AROUND)


def check_adapters(model, before, tmp_path):
    """Only what PEFT trains has changed; the saved adapters give the same model around a fresh one, and merged."""
    after = weights(model)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {name for name in before if "lora_" in name or "modules_to_save" in name}
    fresh = shapes_trainer(tmp_path, **SMALL | {"towers": None})
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
    trainer.args.towers = BOTH
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
