import json
from unittest.mock import Mock

import pytest

from babelens.cli.info import parameter_facts
from babelens.data import load_captions
from babelens.presets import list_presets
from babelens.utils.errors import CorpusError, ModelFolderError
from tests.support.image_sources import write_captioned


def test_parts_of_presets_add_up_and_totals_meet_the_paper():
    for preset in list_presets():
        facts = parameter_facts(preset)
        parameters = dict(facts["parameters"])
        total = parameters.pop("total")
        assert sum(parameters.values()) == total, preset
        if facts["paper"]:
            assert total == pytest.approx(facts["paper"].get("total", total), rel=0.03), preset


def test_an_unknown_name(run):
    error = run("info", "no-such-model", code=1).exception
    assert "no-such-model" in str(error) and "mural-base" in str(error)


@pytest.mark.parametrize("name", ["jane/photos", "jane/model"])
def test_a_name_on_the_hub_is_a_data_set_if_it_is_no_model(run, monkeypatch, name):
    def refusing(error):
        return Mock(side_effect=error("refused"))

    monkeypatch.setattr("babelens.utils.pretrained.load_config", refusing(ModelFolderError))
    monkeypatch.setattr("babelens.cli.info.read_source", refusing(CorpusError))
    monkeypatch.setattr("huggingface_hub.HfApi.repo_exists", lambda *_, **__: "photos" in name)
    error = run("info", name, code=1).exception
    assert type(error) is (CorpusError if "photos" in name else ModelFolderError)


@pytest.fixture
def photos(tmp_path):
    captions = [{"en": ["a cat", "cat"], "de": "Katze"}, {"en": "my cat"}, {"de": "die Sonne"}]
    named = zip(("cat", "cat", "sun"), ("train", "test", "train"), captions, strict=True)
    rows = [{"image_id": name, "split": split, "captions": each} for name, split, each in named]
    return write_captioned(tmp_path, rows)


def test_images_languages_and_splits(run, photos):
    found = json.loads(run("info", photos, "--json").stdout)
    assert found == {
        "source": str(photos),
        "images": 3,
        "image_ids": 2,
        "captions": 5,
        "languages": {"de": {"captions": 2, "mean_characters": 7.0}, "en": {"captions": 3, "mean_characters": 4.7}},
        "splits": {"train": 2, "test": 1},
        "skipped": [],
    }


def test_bad_images_are_named_and_the_rest_is_written_as_a_data_set(run, photos):
    (photos / "1.png").write_bytes((photos / "1.png").read_bytes()[:40])
    shown = " ".join(run("info", photos, "--output", photos / "saved").output.split())  # a long path wraps
    assert "2 images, 2 image ids" in shown and "Images left out: 1" in shown and "1.png" in shown
    assert len(load_captions(photos / "saved", split="train")) == 2
