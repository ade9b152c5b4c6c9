import pytest
import torch

import babelens
from babelens.presets import list_presets, load_preset, merged, preset_facts


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_builds_its_methods_model_of_the_papers_size(name):
    facts, config = preset_facts(name), load_preset(name)
    with torch.device("meta"):
        model = babelens.METHODS[config.model_type].model(config)
    assert type(config) is babelens.METHODS[facts["method"]].config
    assert type(config).from_dict(config.to_dict()).to_dict() == config.to_dict()
    total = sum(p.numel() for p in model.parameters())
    assert sum(model.parameter_parts().values()) == total
    for part, millions in facts.get("paper", {}).items():
        if part == "total" or "total" not in facts["paper"]:
            counted = {"total": total} | model.parameter_parts()
            assert counted[part] / 1e6 == pytest.approx(millions, rel=0.03), part


def test_align_is_mural_without_the_text_text_task():
    mural, align = load_preset("mural-base").to_dict(), load_preset("align-base").to_dict()
    assert align.pop("tasks") == ["image_text"] and mural.pop("tasks") == ["image_text", "text_text"]
    assert align.pop("label_smoothing") == 0.1 and mural.pop("label_smoothing") == 0  # as transformers' AlignModel
    assert align == mural


def test_changes_are_merged_at_every_depth_and_wrong_names_refused():
    settings = {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}
    changed = merged(settings, {"a": {"b": {"c": 5}, "e": [7]}, "g": 4})
    assert changed == {"a": {"b": {"c": 5, "d": 2}, "e": [7]}, "f": 3, "g": 4}
    with pytest.raises(ValueError, match=r"there is no preset 'mural-huge'; there are: .*mural-base"):
        load_preset("mural-huge")
    with pytest.raises(ValueError, match="no key 'vocab_size'"):
        load_preset("mural-base", vocab_size=500)
    with pytest.raises(ValueError, match=r"text_config\.hiden_size.*did you mean 'text_config\.hidden_size'"):
        load_preset("mural-base", text_config={"hiden_size": 16})
