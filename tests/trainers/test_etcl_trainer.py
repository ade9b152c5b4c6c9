"""ETCL's trainer: its triplets, the weights of its tasks, and learning, in chunks as well."""

import numpy as np
import pytest
from transformers import set_seed

from babelens import ContrastiveTrainingArguments, EtclConfig, EtclModel, EtclProcessor, EtclTrainer
from babelens.data.batching.mixture import TaskData
from tests.support.tiny_training import QUIET, TEXT, VISION, shapes_corpus, shapes_processor


def make_trainer(output, train_dataset=None, **settings):
    corpus = shapes_corpus()
    parts = shapes_processor()
    arguments = ContrastiveTrainingArguments(
        output_dir=str(output),
        **{
            "per_device_train_batch_size": 8,
            "max_steps": 3,
            "learning_rate": 1e-3,
            **QUIET,
            "seed": 42,
            **settings,
        },
    )
    set_seed(1)
    text = TEXT | {"vocab_size": len(parts.tokenizer), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    vision = VISION | {"attention_dropout": 0.0}
    model = EtclModel(EtclConfig(text_config=text, vision_config=vision, temperature_init_value=0.1))
    return EtclTrainer(
        model,
        arguments,
        processing_class=EtclProcessor(parts.image_processor, parts.tokenizer),
        train_dataset=corpus if train_dataset is None else train_dataset,
        eval_dataset=corpus,
    )


def pairs_of(view):
    return {(example["language_a"], example["language_b"]) for example in view.__getitems__(range(len(view)))}


@pytest.mark.parametrize(
    ("data", "arguments", "expected"),
    [
        ({}, {}, {("de", "en"), ("de", "fr"), ("en", "fr")}),
        ({"languages": ["fr", "en"]}, {}, {("fr", "en")}),
        ({"pairs": [("fr", "de")]}, {}, {("fr", "de")}),
    ],
)
def test_triplets_are_of_the_languages_asked_for(tmp_path, data, arguments, expected):
    trainer = make_trainer(tmp_path, {"triplet": TaskData(shapes_corpus(), **data)}, **arguments)
    assert pairs_of(trainer.tasks["triplet"]) == expected
    assert len(trainer.tasks["triplet"]) == 16 * len(expected)


def test_the_reproduced_mural_weighs_both_tasks_by_half(tmp_path):
    corpus = shapes_corpus()
    trainer = make_trainer(tmp_path, {"image_text": corpus, "text_text": corpus}, max_steps=1)
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["loss"] == pytest.approx((logged["loss_image_text"] + logged["loss_text_text"]) / 2, abs=1e-3)


def test_triplets_teach_all_languages(tmp_path):
    trainer = make_trainer(
        tmp_path,
        max_steps=40,
        optim="adamw_torch",
        learning_rate=1e-2,
        image_augmentation={"horizontal_flip": 0.0},
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    losses = [entry["loss_triplet"] for entry in trainer.state.log_history if "loss_triplet" in entry]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 1  # the margin keeps the texts' part high
    for language in ("en", "de", "fr"):
        name = f"eval_mean_recall_{language}"
        assert after[name] > before[name] + 20
