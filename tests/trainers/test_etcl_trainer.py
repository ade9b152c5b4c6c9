import pytest

from babelens import ContrastiveTrainingArguments, EtclConfig, EtclModel, EtclProcessor, EtclTrainer
from babelens.data.batching.mixture import TaskData
from tests.support.tiny_training import QUIET, TEXT, VISION, shapes_corpus, shapes_processor


def make_trainer(output, train_dataset):
    parts = shapes_processor()
    text = TEXT | {"vocab_size": len(parts.tokenizer)}
    model = EtclModel(EtclConfig(text_config=text, vision_config=VISION, temperature_init_value=0.1))
    settings = QUIET | {"per_device_train_batch_size": 8, "max_steps": 1}
    return EtclTrainer(
        model,
        ContrastiveTrainingArguments(output_dir=str(output), **settings),
        processing_class=EtclProcessor(parts.image_processor, parts.tokenizer),
        train_dataset=train_dataset,
    )


def pairs_of(view):
    return {(example["language_a"], example["language_b"]) for example in view.__getitems__(range(len(view)))}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {("de", "en"), ("de", "fr"), ("en", "fr")}),
        ({"languages": ["fr", "en"]}, {("fr", "en")}),
        ({"pairs": [("fr", "de")]}, {("fr", "de")}),
    ],
)
def test_triplets_are_of_the_languages_asked_for(tmp_path, data, expected):
    trainer = make_trainer(tmp_path, {"triplet": TaskData(shapes_corpus(), **data)})
    assert pairs_of(trainer.tasks["triplet"]) == expected
    assert len(trainer.tasks["triplet"]) == 16 * len(expected)


def test_the_reproduced_mural_weighs_both_tasks_by_half(tmp_path):
    corpus = shapes_corpus()
    trainer = make_trainer(tmp_path, {"image_text": corpus, "text_text": corpus})
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["loss"] == pytest.approx((logged["loss_image_text"] + logged["loss_text_text"]) / 2, abs=1e-3)
