"""What MLA's trainer refuses."""

import pytest
import torch

from babelens import MlaTrainingArguments
from babelens.data.batching.mixture import TaskData
from babelens.utils.errors import NonFiniteError
from tests.support.mla_training import changed
from tests.support.tiny_training import PoisonGradient, shapes_corpus


def test_pairs_without_the_native_language_are_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="translations into 'en', not from"):
        make_mla_trainer({"text_text": TaskData(shapes_corpus(), pairs=[("de", "fr")])})


def test_data_in_other_languages_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="text_text: the data has no text in uk, only in"):
        make_mla_trainer(model={"languages": ["uk"]})


@pytest.mark.parametrize("task", ["text_text", "image_text"])
def test_a_model_without_languages_is_refused(make_mla_trainer, task):
    with pytest.raises(ValueError, match="no language"):
        make_mla_trainer([task], model={"languages": []}).train()


def test_languages_that_the_model_did_not_acquire_are_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="'uk'"):
        make_mla_trainer(languages=["de", "uk"])


@pytest.mark.parametrize(
    "data",
    [
        {"image_text": TaskData(shapes_corpus(), languages=["en"])},
        {"image_text": TaskData(shapes_corpus(), languages=["fr"])},
        {"text_text": TaskData(shapes_corpus(), pairs=[("fr", "en")])},
        {"text_text": TaskData(shapes_corpus(), pairs=[("en", "en")])},
    ],
    ids=["native images", "frozen images", "frozen translations", "native translations"],
)
def test_data_whose_language_is_not_trained_is_refused(make_mla_trainer, data):
    with pytest.raises(ValueError, match=r"'en'|'fr'"):
        make_mla_trainer(data, languages=["de"])


def test_a_stream_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match=r"text_text: MLA needs a Dataset, not a stream"):
        make_mla_trainer({"text_text": shapes_corpus().to_iterable_dataset()})


def test_an_unknown_task_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="MlaTrainer has no task 'translation'; its tasks are"):
        make_mla_trainer(["translation"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"trainable": "embedding"},
        {"text_text_objective": "cosine"},
        {"image_text_objective": "mae"},
    ],
)
def test_impossible_arguments_are_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MlaTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **wrong)


@pytest.mark.parametrize("settings", [{}, {"embed_chunk_size": 3, "max_grad_norm": 0.0}], ids=["clipped", "chunks"])
def test_a_non_finite_gradient_stops_before_the_weights(make_mla_trainer, settings):
    trainer = make_mla_trainer(("text_text", "image_text"), **settings)
    poison = PoisonGradient(step=2)
    trainer.add_callback(poison)
    with pytest.raises(NonFiniteError, match="norm is nan in step 2"):
        trainer.train()
    assert not changed(trainer.model, {name: torch.from_numpy(value) for name, value in poison.before.items()})
