"""transformers' own `push_to_hub` uploads our cards, not the stock ones."""

import pytest
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import EntryNotFoundError
from transformers import AutoModel, AutoProcessor

from tests.support.tiny_training import shapes_trainer


class NoCard(ModelCard):
    @classmethod
    def load(cls, *args, **kwargs):
        raise EntryNotFoundError("there is no card")


@pytest.fixture
def uploaded_card(hub, monkeypatch):
    monkeypatch.setattr(HfApi, "create_repo", hub.create_repo)
    monkeypatch.setattr(HfApi, "create_commit", hub.create_commit)
    monkeypatch.setattr("transformers.utils.hub.ModelCard", NoCard)
    return lambda: hub.repositories["model", "ada/tiny"].files["README.md"].decode()


def test_the_card_of_its_folder_goes_along(finished, uploaded_card):
    expected = (finished / "README.md").read_text().replace("your-name/mural-tiny", "ada/tiny")
    for part in (AutoModel.from_pretrained(finished), AutoProcessor.from_pretrained(finished)):
        part.push_to_hub("ada/tiny")
        assert uploaded_card() == expected


def test_a_model_that_was_changed_leaves_the_card_of_its_folder(finished, uploaded_card):
    model = AutoModel.from_pretrained(finished)
    model.temperature.data += 1
    model.push_to_hub("ada/tiny")
    assert "was not recorded" in uploaded_card()


def test_a_trainer_says_how_it_trained(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=1)
    trainer.train()
    trainer.create_model_card()
    text = (tmp_path / "README.md").read_text()
    assert "A MuralModel of [babelens]" in text and "1 steps in" in text and "`max_steps` 1" in text
    assert "Trainer" not in text
