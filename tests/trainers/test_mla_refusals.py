"""What MLA's trainer refuses."""

import pytest

from babelens.data.batching.mixture import TaskData
from tests.support.tiny_training import shapes_corpus


def test_pairs_without_the_native_language_are_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="translations into 'en', not from"):
        make_mla_trainer({"text_text": TaskData(shapes_corpus(), pairs=[("de", "fr")])})


def test_data_in_other_languages_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match=r"text_text: .* uk"):
        make_mla_trainer(model={"languages": ["uk"]})


def test_a_model_without_languages_is_refused(make_mla_trainer):
    with pytest.raises(ValueError, match="language"):
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
