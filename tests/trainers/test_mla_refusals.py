"""What MLA's trainer refuses."""

import pytest
import torch

from babelens.data.batching.mixture import TaskData
from babelens.utils.errors import InputError
from tests.support.mla_training import changed
from tests.support.tiny_training import PoisonGradient, shapes_corpus


def test_pairs_without_the_native_language_are_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="translations into 'en', not from"):
        make_mla_trainer({"text_text": TaskData(shapes_corpus(), pairs=[("de", "fr")])})


def test_data_in_other_languages_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="text_text: the data has no texts in uk, only in"):
        make_mla_trainer(model={"languages": ["uk"]})


def test_a_model_without_languages_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="not acquired a language"):
        make_mla_trainer(["text_text"], model={"languages": []}).train()


@pytest.mark.parametrize(
    "data",
    [
        {"image_text": TaskData(shapes_corpus(), languages=["en"])},
        {"text_text": TaskData(shapes_corpus(), pairs=[("fr", "en")])},
    ],
    ids=["native images", "frozen translations"],
)
def test_data_whose_language_is_not_trained_is_refused(make_mla_trainer, data):
    with pytest.raises(ValueError, match=r"'en'|'fr'"):
        make_mla_trainer(data, languages=["de"])


def test_a_stream_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match=r"text_text: MLA needs a Dataset, not a stream"):
        make_mla_trainer({"text_text": shapes_corpus().to_iterable_dataset()})


def test_a_non_finite_gradient_stops_before_the_weights(make_mla_trainer):
    trainer = make_mla_trainer(("text_text", "image_text"))
    poison = PoisonGradient(step=2)
    trainer.add_callback(poison)
    with pytest.raises(InputError, match="norm is nan in step 2"):
        trainer.train()
    assert not changed(trainer.model, {name: torch.from_numpy(value) for name, value in poison.before.items()})
