"""Presets: each builds its method's model, of the size that the paper prints."""

import pytest
import torch

import babelens
from babelens.configuration.presets import list_presets, load_preset, preset_facts


def on_meta(name: str) -> torch.nn.Module:
    config = load_preset(name)
    with torch.device("meta"):
        return babelens.METHODS[config.model_type].model(config)


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_builds_its_methods_model(name):
    facts, config = preset_facts(name), load_preset(name)
    assert type(config) is babelens.METHODS[facts["method"]].config
    assert sum(on_meta(name).parameter_parts().values()) == sum(p.numel() for p in on_meta(name).parameters())
    assert type(config).from_dict(config.to_dict()).to_dict() == config.to_dict()


@pytest.mark.parametrize("name", [name for name in list_presets() if preset_facts(name).get("paper")])
def test_numbers_of_parameters_are_within_3_percent_of_papers(name):
    facts = preset_facts(name)
    model = on_meta(name)
    counted = {"total": sum(p.numel() for p in model.parameters())} | model.parameter_parts()
    for part, millions in facts["paper"].items():
        if part == "total" or "total" not in facts["paper"]:
            assert counted[part] / 1e6 == pytest.approx(millions, rel=0.03), part
    assert facts["source"]


def test_the_papers_sizes_are_there():
    totals = {
        name: preset_facts(name)["paper"]["total"] for name in ("mural-base", "mural-large", "align-base", "align-l2")
    }
    assert totals == {"mural-base": 300, "mural-large": 430, "align-base": 300, "align-l2": 840}  # METHODS: section 2
    assert list_presets() == sorted(list_presets())


def test_align_is_mural_without_the_text_text_task():
    mural, align = load_preset("mural-base").to_dict(), load_preset("align-base").to_dict()
    assert align.pop("tasks") == ["image_text"] and mural.pop("tasks") == ["image_text", "text_text"]
    assert align.pop("label_smoothing") == 0.1 and mural.pop("label_smoothing") == 0  # as transformers' AlignModel
    assert align == mural


def test_overrides_replace_and_merge_and_do_not_stay():
    before = load_preset("mural-large").to_dict()
    changed = load_preset("mural-large", text_config={"vocab_size": 500}, tasks=["image_text"])
    assert changed.text_config.vocab_size == 500
    assert changed.text_config.model_type == "electra" and changed.text_config.embedding_size == 256
    assert changed.tasks == ["image_text"]
    assert load_preset("mural-large").to_dict() == before


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match=r"there is no preset 'mural-huge'; there are: .*mural-base"):
        load_preset("mural-huge")
    with pytest.raises(ValueError, match="no key 'vocab_size'"):
        load_preset("mural-base", vocab_size=500)
    with pytest.raises(ValueError, match=r"text_config\.hiden_size.*did you mean 'text_config\.hidden_size'"):
        load_preset("mural-base", text_config={"hiden_size": 16})
