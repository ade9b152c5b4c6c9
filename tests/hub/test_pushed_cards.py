"""transformers' own `push_to_hub` uploads our cards, not the stock ones."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi, ModelCard, RepoUrl
from huggingface_hub.errors import EntryNotFoundError
from transformers import AutoModel, AutoProcessor

from tests.support.tiny_training import shapes_trainer


class Uploads:
    def __init__(self, monkeypatch) -> None:
        self.files: dict[str, str] = {}
        address = "https://huggingface.co/owner/tiny"
        monkeypatch.setattr(HfApi, "create_repo", lambda *args, **kwargs: RepoUrl(address))
        monkeypatch.setattr(HfApi, "create_commit", self.create_commit)
        monkeypatch.setattr("transformers.utils.hub.ModelCard", NoCard)

    def create_commit(self, repo_id, operations, **kwargs) -> None:
        for operation in operations:
            if operation.path_in_repo == "README.md":
                self.files["README.md"] = Path(operation.path_or_fileobj).read_text()

    @property
    def card(self) -> ModelCard:
        return ModelCard(self.files["README.md"])


class NoCard(ModelCard):
    @classmethod
    def load(cls, *args, **kwargs):
        raise EntryNotFoundError("there is no card")


@pytest.fixture
def uploads(monkeypatch) -> Uploads:
    return Uploads(monkeypatch)


def test_the_card_of_its_folder_goes_along(finished, uploads):
    for part in (AutoModel.from_pretrained(finished), AutoProcessor.from_pretrained(finished)):
        part.push_to_hub("owner/tiny")
        assert uploads.files["README.md"] == (finished / "README.md").read_text().replace(
            "your-name/mural-tiny", "owner/tiny"
        )


def test_a_model_that_was_changed_leaves_the_card_of_its_folder(finished, uploads):
    model = AutoModel.from_pretrained(finished)
    model.temperature.data += 1
    model.push_to_hub("owner/tiny")
    assert "was not recorded" in uploads.card.text


def test_a_trainer_says_how_it_trained(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=1)
    trainer.train()
    trainer.create_model_card()
    text = (tmp_path / "README.md").read_text()
    assert "A MuralModel of [babelens]" in text and "1 steps in" in text and "`max_steps` 1" in text
    assert "Trainer" not in text
