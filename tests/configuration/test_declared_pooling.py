"""The pooling that the folders of sentence-transformers state."""

import json

import pytest

from babelens.modeling.tower_loading import chosen_pooling, declared_pooling
from babelens.utils.errors import ModelFolderError, ModelKindError
from tests.support.tiny_native import saved, tiny_bert

OLD = dict.fromkeys(
    ("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens", "pooling_mode_lasttoken"), False
)


@pytest.fixture
def bert(tmp_path):
    return saved(tiny_bert(), tmp_path / "bert")


def stating(folder, settings):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("settings", "pooling"),
    [
        (OLD | {"pooling_mode_mean_tokens": True}, "mean"),
        (OLD | {"pooling_mode_lasttoken": True}, "eos"),
        ({"pooling_mode": ["cls"]}, "cls"),
    ],
)
def test_a_folder_states_its_pooling(bert, settings, pooling):
    assert declared_pooling(stating(bert, settings)) == pooling


def test_a_folder_without_the_file_and_a_model_state_none(bert):
    assert declared_pooling(bert) is None
    assert declared_pooling(tiny_bert()[0]) is None


@pytest.mark.parametrize(
    ("settings", "stated"),
    [
        (OLD | {"pooling_mode_max_tokens": True}, "max"),
        (OLD | {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls and mean"),
    ],
)
def test_another_pooling_is_refused(bert, settings, stated):
    with pytest.raises(ModelKindError, match=f"pools texts by {stated} .*choose text_pooling, one of cls, mean, eos"):
        declared_pooling(stating(bert, settings))


@pytest.mark.parametrize("settings", ["{", "[]"])
def test_a_damaged_file_is_refused(bert, settings):
    with pytest.raises(ModelFolderError, match="bert"):
        declared_pooling(stating(bert, settings))


def test_no_folder(tmp_path):
    with pytest.raises(ModelFolderError, match="No folder"):
        chosen_pooling(tmp_path / "nothing")
