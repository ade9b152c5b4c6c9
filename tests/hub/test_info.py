"""Parameter counts, without the parameters."""

import json

import pytest
import typer
from typer.testing import CliRunner

from babelens.cli.info import info, parameter_facts
from babelens.configuration.presets import list_presets


def run(*arguments):
    app = typer.Typer()
    app.command()(info)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})


@pytest.mark.parametrize("preset", list_presets())
def test_parts_add_up_and_totals_meet_the_paper(preset):
    facts = parameter_facts(preset)
    parameters = dict(facts["parameters"])
    total = parameters.pop("total")
    assert sum(parameters.values()) == total
    if facts["paper"]:
        assert total == pytest.approx(facts["paper"].get("total", total), rel=0.03)
        assert facts["source"]


def test_a_folder_is_counted_from_its_config_alone(published, make_mural, tmp_path):
    (tmp_path / "config.json").write_bytes((published / "config.json").read_bytes())
    result = run(str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert facts["parameters"]["total"] == sum(p.numel() for p in make_mural()[0].parameters())
    assert facts["model_type"] == "mural" and facts["paper"] == {}


def test_the_table_sets_the_paper_beside_the_model():
    result = run("mural-base")
    assert "305,182,257" in result.output and "300 M" in result.output and "+1.7%" in result.output


def test_transformers_own_models_are_counted_by_their_modules(tmp_path):
    from transformers import CLIPConfig

    CLIPConfig().save_pretrained(tmp_path)
    parameters = parameter_facts(str(tmp_path))["parameters"]
    assert parameters["total"] == 151_277_313  # CLIP ViT-B/32
    assert parameters["text_model"] == 63_165_952


def test_a_name_that_nothing_has_is_refused(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = run("no-such-model")
    assert result.exit_code == 2
    assert "is no preset" in result.output and "mural-base" in result.output
