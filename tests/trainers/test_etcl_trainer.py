import pytest

from babelens import ContrastiveTrainingArguments, EtclTrainer
from babelens.data.batching.mixture import TaskData
from tests.support.tiny_training import QUIET, shapes_corpus


@pytest.fixture
def make_trainer(make_etcl, tmp_path):
    model, processor = make_etcl()
    arguments = ContrastiveTrainingArguments(str(tmp_path), **QUIET, per_device_train_batch_size=8, max_steps=1)
    return lambda data: EtclTrainer(model, arguments, processing_class=processor, train_dataset=data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {("de", "en"), ("de", "fr"), ("en", "fr")}),
        ({"languages": ["fr", "en"]}, {("fr", "en")}),
        ({"pairs": [("fr", "de")]}, {("fr", "de")}),
    ],
)
def test_triplets_are_of_the_languages_asked_for(make_trainer, data, expected):
    view = make_trainer({"triplet": TaskData(shapes_corpus(), **data)}).tasks["triplet"]
    examples = view.__getitems__(range(len(view)))
    assert {(example["language_a"], example["language_b"]) for example in examples} == expected
    assert len(view) == 16 * len(expected)


def test_the_reproduced_mural_weighs_both_tasks_by_half(make_trainer):
    corpus = shapes_corpus()
    trainer = make_trainer({"image_text": corpus, "text_text": corpus})
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["loss"] == pytest.approx((logged["loss_image_text"] + logged["loss_text_text"]) / 2, abs=1e-3)
