import re
import shutil

import pytest
import torch
from huggingface_hub import HfApi, ModelCard, constants
from huggingface_hub.errors import EntryNotFoundError
from transformers import AutoModel, AutoProcessor
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.model_cards.base_models import BaseModel
from babelens.modeling.peft_mla import save_adapter
from babelens.publishing import files_to_publish, folder_problems, push
from babelens.utils.errors import PublishError, SourceUnavailableError
from tests.hub.test_damaged_folders import change_weights
from tests.support.hub_double import HubDouble
from tests.support.tiny_training import shapes_trainer

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
ID = "ada/mural-tiny"


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "mural-tiny")


def test_everything_but_the_traces_of_training_is_uploaded(hub, folder):
    expected = set(files_to_publish(folder))
    traces = ("checkpoint-10/model.safetensors", "runs/events", "training_args.bin", ".cache/x", "extra.PKL", "a.pth")
    for trace in traces:
        (folder / trace).parent.mkdir(parents=True, exist_ok=True)
        (folder / trace).touch()
    before = (folder / "README.md").read_text()
    published = push(folder, ID, private=True, api=hub)
    found = hub.repositories["model", ID]
    assert published.changed and published.address.startswith(f"{hub.endpoint}/{ID}/commit/") and found.private
    files = {name: content for name, content in found.files.items() if name != ".gitattributes"}
    assert set(files) == expected
    assert {"config.json", "model.safetensors", "modeling_mural.py", "README.md", "examples/auto.png"} <= expected
    assert all((folder / path).read_bytes() == content for path, content in files.items() if path != "README.md")
    card = files["README.md"].decode()
    assert card == before.replace("your-name/mural-tiny", ID) != before == (folder / "README.md").read_text()
    assert not push(folder, ID, api=hub).changed
    found.private = False
    with pytest.raises(PublishError, match="is public"):
        push(folder, ID, private=True, api=hub)


def test_weights_of_an_earlier_model_do_not_stay(hub, folder):
    push(folder, ID, api=hub)
    found = hub.repositories["model", ID].files
    found |= {"model-00001-of-00002.safetensors": b"x", "adapter_config.json": b"{}", "notes.txt": b"mine"}
    push(folder, ID, api=hub)
    assert "notes.txt" in found and "model.safetensors" in found
    assert "model-00001-of-00002.safetensors" not in found and "adapter_config.json" not in found


def test_of_two_models_that_are_pushed_at_once_one_is_refused(hub, folder, monkeypatch):
    push(folder, ID, api=hub)
    asked = hub.repo_info

    def overtaken(*arguments, **options):
        info = asked(*arguments, **options)
        hub.repositories["model", ID].sha = "f" * 40
        return info

    monkeypatch.setattr(hub, "repo_info", overtaken)
    (folder / "notes.txt").write_text("new")
    with pytest.raises(SourceUnavailableError, match="somebody made another commit there"):
        push(folder, ID, api=hub)


@pytest.mark.parametrize(("user", "reason"), [("", "log in with"), ("bo", "may not write there")])
def test_a_wrong_token_is_one_sentence(finished, user, reason):
    hub = HubDouble(user)
    with pytest.raises(SourceUnavailableError, match=reason):
        push(finished, ID, api=hub)
    assert not hub.repositories


def test_a_card_that_the_hub_refuses_is_one_sentence_and_leaves_no_repository(hub, finished, monkeypatch):
    def refuse(card):
        raise ValueError('- Error: "license" must be one of [apache-2.0, …]')

    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setattr(ModelCard, "validate", refuse)
    with pytest.raises(PublishError, match="license"):
        push(finished, ID, api=hub)
    assert not hub.repositories


def edit_card(folder, **metadata):
    card = ModelCard.load(folder / "README.md")
    for key, value in metadata.items():
        card.data[key] = value
    card.save(folder / "README.md")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda f: (f / "modeling_mural.py").write_text("from .lost import x\n"), "lost.py is missing"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 50), "model.safetensors is truncated or damaged"),
        (lambda f: change_weights(f, lambda all_: {k: v * torch.nan for k, v in all_.items()}), "NaN"),
        (lambda f: edit_card(f, model_identity="other"), "written for other weights"),
        (lambda f: (f / "examples/auto.png").unlink(), "'examples/auto.png', which is missing"),
        (lambda f: (f / "notes.txt").symlink_to("/etc/passwd"), "notes.txt is a link to /etc/passwd"),
        (lambda f: (f / "notes.json").write_text('"hf_aBcDeFgHiJkLmNoPqRsTuVwX"'), "holds a token"),
    ],
)
def test_an_unfit_folder_is_refused_before_anything_is_created(hub, folder, damage, complaint):
    damage(folder)
    assert any(complaint in problem for problem in folder_problems(folder)), folder_problems(folder)
    with pytest.raises(PublishError, match=re.escape(complaint)):
        push(folder, ID, api=hub)
    assert not hub.repositories


def test_a_license_is_not_freer_than_that_of_a_base_on_the_hub(hub, folder, monkeypatch):
    licenses = {"them/free": "mit", "them/research": "cc-by-nc-4.0"}
    monkeypatch.setattr(
        "babelens.publishing.base_model_facts", lambda name: BaseModel(name=name, license=licenses[name], on_hub=True)
    )
    edit_card(folder, license="apache-2.0", base_model=list(licenses))
    with pytest.raises(PublishError, match=r"README\.md: .*them/research.*cc-by-nc-4\.0"):
        push(folder, ID, api=hub)
    assert not hub.repositories
    edit_card(folder, license="cc-by-nc-4.0")
    push(folder, ID, api=hub)


def test_an_adapter_names_a_base_on_the_hub(make_mla, tmp_path):
    model, _ = make_mla()
    for base_model, named in (("openai/clip-vit-base-patch32", False), (str(tmp_path), True)):
        folder = tmp_path / f"adapter-{named}"
        save_adapter(model, "de", folder, base_model=base_model)
        (folder / "README.md").write_text("---\nlicense: mit\n---\n# Adapter\n")
        assert [each for each in folder_problems(folder) if "is a local folder" in each] != [] or not named
        assert (folder_problems(folder) == []) != named
    (folder / "adapter_model.safetensors").unlink()
    assert any("adapter_model.safetensors is missing" in each for each in folder_problems(folder))


def test_the_command_checks_tells_and_publishes_a_model_and_its_space(hub, finished, folder, monkeypatch):
    monkeypatch.setattr("babelens.publishing.HfApi", lambda: hub)

    def run(*arguments):
        return CliRunner().invoke(app, ["push", *map(str, arguments)], env={"COLUMNS": "200"})

    dry = run(finished, ID, "--space", "ada/try", "--dry-run")
    assert dry.exit_code == 0 and "can be published" in dry.output and "app.py" in dry.output
    assert all(path in dry.output for path in files_to_publish(finished)) and not hub.repositories
    assert isinstance(run(finished, ID, "--space", "no name").exception, PublishError)
    (folder / "model.safetensors").unlink()
    assert "- model.safetensors is missing" in str(run(folder, ID).exception) and not hub.repositories
    assert run(finished, ID, "--space", "ada/try").output.count("Published: ") == 2
    assert set(hub.repositories) == {("model", ID), ("space", "ada/try")}


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
