import json

import pytest

from babelens.modeling.tower_loading import declared_pooling
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
    [(OLD | {"pooling_mode_lasttoken": True}, "eos"), ({"pooling_mode": ["cls"]}, "cls"), (None, None)],
)
def test_a_folder_states_its_pooling_or_none(bert, settings, pooling):
    assert declared_pooling(stating(bert, settings) if settings else bert) == pooling


@pytest.mark.parametrize(
    ("settings", "error", "word"),
    [
        (OLD | {"pooling_mode_max_tokens": True}, ModelKindError, "max .*choose text_pooling"),
        (OLD | {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ModelKindError, "cls and mean"),
        ("[]", ModelFolderError, "bert"),
    ],
)
def test_other_poolings_and_damaged_files_are_refused(bert, settings, error, word):
    with pytest.raises(error, match=word):
        declared_pooling(stating(bert, settings))
