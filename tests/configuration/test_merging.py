"""Nested settings, merged."""

from babelens.configuration.presets import merged


def test_mappings_are_merged_at_every_depth_and_lists_replaced():
    settings = {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}
    assert merged(settings, {"a": {"b": {"c": 5}, "e": [7]}, "g": 4}) == {
        "a": {"b": {"c": 5, "d": 2}, "e": [7]},
        "f": 3,
        "g": 4,
    }
    assert settings == {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}


def test_null_and_other_values_replace_a_mapping():
    assert merged({"a": {"b": 1}}, {"a": None}) == {"a": None}
    assert merged({"a": 1}, {"a": {"b": 1}}) == {"a": {"b": 1}}


def test_settings_of_another_kind_of_model_replace_the_old_ones():
    tower = {"model_type": "resnet", "depths": [1, 1]}
    assert merged({"vision_config": tower}, {"vision_config": {"depths": [2]}}) == {
        "vision_config": {"model_type": "resnet", "depths": [2]}
    }
    other = {"model_type": "clip_vision_model", "hidden_size": 8}
    assert merged({"vision_config": tower}, {"vision_config": other}) == {"vision_config": other}
