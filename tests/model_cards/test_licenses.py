import dataclasses
import logging

import pytest
import yaml
from huggingface_hub import ModelCardData, ModelInfo

from babelens.model_cards import base_models
from babelens.model_cards.base_models import (
    IMAGE_TOWER,
    TEXT_TOWER,
    BaseModel,
    base_model_facts,
    check_weights_license,
    weights_license,
    what_it_forbids,
)
from babelens.model_cards.cards import model_card
from babelens.model_cards.facts import DataSource, ModelCardFacts
from babelens.utils.errors import PublishError

CAPTIONS = DataSource(name="Captions", license="CC0-1.0", role="captions", attribution="nobody")


def base(license: str, **facts: object) -> BaseModel:
    return BaseModel(**{"name": "owner/model", "license": license, "on_hub": True} | facts)


def towers(image: str, text: str) -> list[BaseModel]:
    return [base(image, name="owner/eye", role=IMAGE_TOWER), base(text, name="owner/ear", role=TEXT_TOWER)]


def facts(**changes: object) -> ModelCardFacts:
    given = {"model_name": "m", "method": "mural", "training_data": [CAPTIONS], "image_languages": ["en"]}
    return ModelCardFacts(**given | changes)


@pytest.mark.parametrize(
    ("card", "license", "name"),
    [
        ("---\nlicense: other\nlicense_name: dinov3-license\n---\n", "other", "dinov3-license"),
        ("---\nlicense: [apache-2.0, cc-by-nc-4.0]\n---\n", "other", "apache-2.0, cc-by-nc-4.0"),
        ("---\nlicense: [\n---\n", "unknown", None),
        (None, "unknown", None),
    ],
)
def test_a_folders_card_tells_its_license(tmp_path, card, license, name):
    folder = tmp_path / "siglip"
    folder.mkdir()
    if card is not None:
        (folder / "README.md").write_bytes(card.encode("utf-8", "surrogateescape"))
    found = base_model_facts(folder, IMAGE_TOWER)
    assert (found.name, found.license, found.license_name) == ("siglip", license, name)
    assert found.role == IMAGE_TOWER and not found.on_hub


def test_the_hub_tells_the_license_of_a_repository(monkeypatch):
    data = ModelCardData(license="apache-2.0")
    monkeypatch.setattr(base_models, "model_info", lambda name, timeout: ModelInfo(id=name, card_data=data))
    assert base_model_facts("owner/model") == base("apache-2.0")
    monkeypatch.setattr(base_models, "model_info", lambda name, timeout: ModelInfo(id=name))
    assert base_model_facts("owner/model").license == "unknown"


def test_without_an_answer_the_downloaded_card_counts_and_without_one_nothing(monkeypatch, tmp_path, caplog):
    def refuse(name, timeout):
        raise OSError("no network")

    monkeypatch.setattr(base_models, "model_info", refuse)
    monkeypatch.setattr(base_models, "try_to_load_from_cache", lambda name, file: None)
    with caplog.at_level(logging.WARNING):
        assert base_model_facts("owner/model").license == "unknown"
    assert "the license of owner/model is unknown, because its card could not be fetched" in caplog.text
    (tmp_path / "README.md").write_text("---\nlicense: gemma\n---\n")
    monkeypatch.setattr(base_models, "try_to_load_from_cache", lambda name, file: str(tmp_path / file))
    assert base_model_facts("owner/model") == base("gemma")


def test_weights_carry_the_strictest_license_of_data_and_towers():
    shared = dataclasses.replace(CAPTIONS, license="CC-BY-SA-4.0")
    assert weights_license([CAPTIONS], towers("apache-2.0", "mit")) == "apache-2.0"
    assert weights_license([CAPTIONS], towers("apache-2.0", "cc-by-sa-4.0")) == "cc-by-sa-4.0"
    assert weights_license([shared], towers("apache-2.0", "mit")) == "cc-by-sa-4.0"


@pytest.mark.parametrize(
    ("license", "words"),
    [
        ("cc-by-nc-4.0", "not for commercial use"),
        ("other", "terms of its own"),
        ("unknown", "its license is not known"),
    ],
)
def test_licenses_outside_of_the_order_are_left_to_people_and_named(license, words):
    models = towers("mit", license)
    assert words in what_it_forbids(models[1])
    with pytest.raises(PublishError, match=f"owner/ear, which training starts from, is under '{license}'") as caught:
        weights_license([CAPTIONS], models)
    assert words in str(caught.value) and "state `license`" in str(caught.value)
    stated = model_card(facts(base_models=models, license="other", license_name="by agreement"))
    assert f"{license}: " in stated.text and words in stated.text


@pytest.mark.parametrize(
    ("of_base", "stated", "is_right"),
    [
        ("cc-by-nc-4.0", "apache-2.0", False),
        ("cc-by-nc-4.0", "cc-by-nc-4.0", True),
        ("cc-by-nd-4.0", "cc-by-nd-4.0", False),
        ("llama3.1", "llama3", False),
        ("other", "apache-2.0", True),  # what it says is not known here: the card says so
    ],
)
def test_a_stated_license_is_not_freer_than_a_restricted_base(of_base, stated, is_right):
    models = towers("apache-2.0", of_base)
    if is_right:
        check_weights_license(stated, models)
        assert model_card(facts(base_models=models, license=stated)).data.license == stated
        return
    with pytest.raises(PublishError, match=f"cannot be under '{stated}': owner/ear, .* is under '{of_base}'"):
        model_card(facts(base_models=models, license=stated))


def metadata(card: object) -> dict:
    return yaml.safe_load(str(card).split("---\n")[1])


def test_the_card_names_both_towers_with_their_licenses():
    card = model_card(facts(base_models=towers("apache-2.0", "mit")))
    assert metadata(card)["base_model"] == ["owner/eye", "owner/ear"]
    assert metadata(card)["base_model_relation"] == "finetune" and metadata(card)["license"] == "apache-2.0"
    link = "[owner/eye](https://huggingface.co/owner/eye)"
    assert f"| Image tower started from | {link}, license: apache-2.0 |" in card.text
    assert "| Text tower started from | [owner/ear](https://huggingface.co/owner/ear), license: mit |" in card.text
    assert "strictest license of both" in card.text and "holds for these weights" not in card.text
    models = [base("cc-by-nc-4.0"), base("other", name="meta/dinov3", license_name="dinov3-license", role=IMAGE_TOWER)]
    text = model_card(facts(base_models=models, license="cc-by-nc-4.0")).text
    assert (
        "(https://huggingface.co/owner/model) holds for these weights too. cc-by-nc-4.0: not for commercial use.**"
        in text
    )
    assert "other (dinov3-license): on terms of its own" in text
