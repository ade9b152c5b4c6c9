"""Publishing: what goes up, what stays, and what is refused."""

import json
import re
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch
import typer
from huggingface_hub import HfApi, ModelCard
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from babelens.cli.push import push as push_command
from babelens.model_cards.base_models import BaseModel
from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import DataSource, ModelCardFacts
from babelens.model_cards.short_cards import AdapterCardFacts, write_short_card
from babelens.modeling.peft_mla import save_embedding
from babelens.modeling.peft_mla.conversion import save_adapter
from babelens.publishing import Published, doubts, files_to_publish, folder_problems, push
from babelens.utils.errors import HubUnreachableError, PublishError
from tests.support.hub_store import check_card


class RecordingHub:
    """Takes what `push` sends to the Hub; an HfApi as far as it is used."""

    endpoint = "https://huggingface.co"

    def __init__(self):
        self.repositories, self.files = {}, {}

    def create_repo(self, repo_id, *, private, exist_ok):
        self.repositories[repo_id] = private
        return SimpleNamespace(repo_id=repo_id)

    def repo_info(self, repo_id, *, repo_type):
        return SimpleNamespace(sha="0", private=self.repositories[repo_id], siblings=[])

    def create_commit(self, repo_id, operations, *, commit_message, repo_type, revision, parent_commit):
        for operation in operations:
            with operation.as_file() as file:
                self.files[operation.path_in_repo] = file.read()
        return SimpleNamespace(commit_url=f"https://huggingface.co/{repo_id}/commit/1", oid="1")


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of the folder, to be changed."""
    shutil.copytree(finished, tmp_path / "mural-tiny")
    return tmp_path / "mural-tiny"


def test_everything_but_the_traces_of_training_is_uploaded(folder):
    result = set(files_to_publish(folder))
    pickles = [f"extra{suffix}" for suffix in (".pkl", ".pickle", ".joblib", ".ckpt", ".PKL", ".pth")]
    traces = ("checkpoint-10/model.safetensors", "runs/events", "training_args.bin", "optimizer.pt", ".cache/x")
    for trace in (*traces, *pickles):
        (folder / trace).parent.mkdir(parents=True, exist_ok=True)
        (folder / trace).touch()
    hub = RecordingHub()
    published = push(folder, "owner/name", private=True, api=hub)
    assert published == Published("https://huggingface.co/owner/name/commit/1", changed=True)
    assert hub.repositories == {"owner/name": True}
    assert set(hub.files) == result
    assert {
        "config.json",
        "model.safetensors",
        "modeling_mural.py",
        "handler.py",
        "requirements.txt",
    } <= result
    assert {"README.md", "examples/auto.png", "processor_config.json", "tokenizer.json"} <= result
    assert all((folder / path).read_bytes() == content for path, content in hub.files.items() if path != "README.md")


def test_the_published_card_names_the_repository_and_the_folders_does_not_change(folder):
    before, hub = (folder / "README.md").read_text(), RecordingHub()
    push(folder, "owner/other-name", api=hub)
    published = hub.files["README.md"].decode()
    assert 'AutoModel.from_pretrained("owner/other-name", trust_remote_code=True)' in published
    assert published == before.replace("your-name/mural-tiny", "owner/other-name") != before
    assert (folder / "README.md").read_text() == before


@pytest.mark.parametrize("name", ["my run", "run (2)", 'a"b', "überall", "a#b|c", "a\nb", "名"])
def test_the_card_of_a_run_with_any_name_names_the_repository(folder, name):
    data = DataSource(name="Synthetic images", license="CC0-1.0", role="images", attribution="nobody")
    write_card(folder, ModelCardFacts(model_name=name, method="mural", image_languages=["de"], training_data=[data]))
    hub = RecordingHub()
    push(folder, "owner/name", api=hub)
    card = hub.files["README.md"].decode()
    named = re.findall(r'(?:from_pretrained\(|SentenceTransformer\(|model=)"([^"]*)"[,)]', card)
    assert set(named) == {"owner/name"} and len(named) == 5 and "your-name" not in card


def test_a_card_of_an_editor_that_marks_utf8_is_published_without_the_mark(folder):
    """Else the Hub's double finds no metadata in it."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8-sig")
    hub = RecordingHub()
    push(folder, "owner/name", api=hub)
    assert hub.files["README.md"].startswith(b"---\nlanguage:")
    assert check_card(hub.files["README.md"].decode(), "model") == []


def test_what_was_published_works_without_the_package(finished, run_without_babelens, tmp_path):
    hub = RecordingHub()
    push(finished, "owner/name", api=hub)
    for path, content in hub.files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    code = """
import base64, json, sys
sys.path.insert(0, sys.argv[1])
from handler import EndpointHandler
image = base64.b64encode(open(sys.argv[1] + "/examples/auto.png", "rb").read()).decode()
labels = ["ein rotes auto", "un chien gris"]
print(json.dumps(EndpointHandler(sys.argv[1])({"inputs": image, "parameters": {"candidate_labels": labels}})))
"""
    answers = json.loads(run_without_babelens(code, tmp_path).splitlines()[-1])
    assert {answer["label"] for answer in answers} == {"ein rotes auto", "un chien gris"}
    assert sum(answer["score"] for answer in answers) == pytest.approx(1)


def edit_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_card(folder, **metadata):
    card = ModelCard.load(folder / "README.md")
    for key, value in metadata.items():
        card.data[key] = value
    card.save(folder / "README.md")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-50])


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (
            lambda f: edit_json(f / "config.json", lambda c: c.pop("auto_map")),
            "config.json: auto_map has no AutoModel",
        ),
        (lambda f: (f / "modeling_mural.py").unlink(), "modeling_mural.py is missing, which config.json names"),
        (lambda f: (f / "pipelines.py").unlink(), "pipelines.py is missing, which modules.json names"),
        (lambda f: (f / "modules.json").write_text("{}"), "modules.json is not a list of modules with their types"),
        (
            lambda f: (f / "modeling_mural.py").write_text("from .missing import x\nclass MuralModel:\n    pass\n"),
            "missing.py is missing, which modeling_mural.py needs",
        ),
        (lambda f: (f / "modeling_mural.py").write_text(""), "modeling_mural.py does not define MuralModel"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
        (
            lambda f: (
                (f / "model.safetensors").rename(f / "x")
                and (f / "model.safetensors.index.json").write_text(
                    '{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
                )
            ),
            "model-00001-of-00001.safetensors is missing",
        ),
        (lambda f: truncate(f / "model.safetensors"), "model.safetensors is truncated or damaged"),
        (lambda f: change_weights(f, lambda all_: {k: v * torch.nan for k, v in all_.items()}), "NaN"),
        (lambda f: change_weights(f, lambda all_: dict(list(all_.items())[1:])), "lacks the weights"),
        (lambda f: (f / "tokenizer.json").write_text(""), "tokenizer.json is empty"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json is not a tokenizer"),
        (lambda f: truncate(f / "config.json"), "config.json is truncated or damaged"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json holds no settings"),
        (lambda f: edit_json(f / "config.json", lambda c: c.update(auto_map=["x"])), "auto_map is not a mapping"),
        (
            lambda f: edit_json(f / "processor_config.json", lambda c: c.update(image_processor="x")),
            "image_processor holds no settings",
        ),
        (lambda f: (f / "modeling_mural.py").write_text("class ("), "modeling_mural.py is no Python"),
        (lambda f: (f / "modeling_mural.py").write_bytes(b"\xff"), "modeling_mural.py is no Python"),
        (lambda f: (f / "README.md").write_text("---\na: [\n---\n"), "README.md: "),
        (lambda f: (f / "README.md").write_bytes(b"\xff"), "README.md: "),
        (lambda f: edit_card(f, widget=["x"]), "an example of the widget is not a mapping"),
        (lambda f: (f / "notes.txt").symlink_to("/etc/passwd"), "notes.txt is a link to /etc/passwd"),
        (lambda f: (f / "more").symlink_to("/etc"), "more is a link to /etc"),
        (lambda f: (f / "processor_config.json").unlink(), "processor_config.json is missing"),
        (lambda f: (f / "tokenizer_config.json").unlink(), "tokenizer_config.json is missing"),
        (
            lambda f: edit_json(f / "processor_config.json", lambda c: c["image_processor"].pop("auto_map")),
            "image_processor: auto_map has no AutoImageProcessor",
        ),
        (lambda f: (f / "README.md").unlink(), "README.md is missing"),
        (lambda f: (f / "README.md").write_text("# Model"), "README.md: the metadata have no license"),
        (lambda f: edit_card(f, license="apache"), "'apache' is no license that the Hub has an identifier for"),
        (lambda f: edit_card(f, language=["zh-Hant"]), "language 'zh-Hant' is no ISO 639 code"),
        (lambda f: (f / "examples/auto.png").unlink(), "the widget shows 'examples/auto.png', which is missing"),
    ],
)
def test_an_unfit_folder_is_refused_before_anything_is_created(folder, damage, complaint):
    assert folder_problems(folder) == []
    damage(folder)
    assert any(complaint in problem for problem in folder_problems(folder))
    hub = RecordingHub()
    with pytest.raises(PublishError, match=re.escape(complaint)):
        push(folder, "owner/name", api=hub)
    assert not hub.repositories


def test_a_license_is_not_freer_than_that_of_a_base_on_the_hub(folder, monkeypatch):
    licenses = {"them/free": "mit", "them/research": "cc-by-nc-4.0"}
    monkeypatch.setattr(
        "babelens.publishing.base_model_facts",
        lambda name: BaseModel(name=name, license=licenses[name], on_hub=True),
    )
    edit_card(folder, license="apache-2.0", base_model=list(licenses))
    hub = RecordingHub()
    with pytest.raises(PublishError, match=r"README\.md: .*them/research.*cc-by-nc-4\.0"):
        push(folder, "me/search", api=hub)
    assert not hub.repositories
    for license, bases in {"apache-2.0": "them/free", "cc-by-nc-4.0": list(licenses)}.items():
        edit_card(folder, license=license, base_model=bases)
        push(folder, "me/search", api=hub)
        assert f"license: {license}".encode() in hub.files["README.md"]


def test_an_adapter_can_be_published_when_what_it_goes_with_is_on_the_hub(make_mla, tmp_path):
    model, _ = make_mla()
    facts = AdapterCardFacts(
        name="clip-de",
        language="de",
        native_language="en",
        base_model="openai/clip-vit-base-patch32",
        on_mla=False,
        parameters=1,
        trained_embedding=True,
        embedding="embedding",
        max_text_length=64,
        pairs=1,
        exposed=False,
        command="babelens train mla/adapter",
    )
    for base_model, problems in (("openai/clip-vit-base-patch32", 0), (str(tmp_path), 1)):
        folder = tmp_path / f"adapter{problems}"
        save_adapter(model, "de", folder, embedding="./embedding", base_model=base_model)
        save_embedding(model, folder / "embedding")
        card = ModelCard.load(write_short_card(folder, facts)).data.to_dict()
        assert card["language"] == ["de"] and "language_bcp47" not in card
        assert len(folder_problems(folder)) == problems
    (tmp_path / "tagged").mkdir()
    # By its tag, which the model has learned, and not by its code alone, a Space asks for it.
    tagged = ModelCard.load(write_short_card(tmp_path / "tagged", replace(facts, language="sr-Latn"))).data.to_dict()
    assert tagged["language"] == ["sr"] and tagged["language_bcp47"] == ["sr-Latn"]
    assert "base_model_name_or_path" in folder_problems(folder)[0]
    for place in ("../clip", "/lost/clip", "~/clip"):
        edit_json(
            tmp_path / "adapter1" / "adapter_config.json", lambda c, at=place: c.update(base_model_name_or_path=at)
        )
        assert "is a folder of this machine" in folder_problems(tmp_path / "adapter1")[0]
    hub = RecordingHub()
    push(tmp_path / "adapter0", "owner/clip-de", api=hub)
    assert hub.repositories
    (tmp_path / "adapter0" / "adapter_model.safetensors").unlink()
    assert folder_problems(tmp_path / "adapter0") == [
        "adapter_model.safetensors is missing: train mla/adapter writes it"
    ]


@pytest.fixture
def command(monkeypatch):
    """Runs `babelens push …` where the Hub cannot be reached."""

    def refuse(*args, **kwargs):
        raise AssertionError("nothing may be uploaded")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    app = typer.Typer()
    app.command()(push_command)
    return lambda *arguments: CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "200"}
    )


def test_a_dry_run_shows_what_would_be_uploaded(command, finished):
    result = command(finished, "owner/name", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "fit to be published" in result.output
    for path in files_to_publish(finished):
        assert path in result.output


def test_the_command_names_what_is_wrong(command, folder):
    (folder / "model.safetensors").unlink()
    result = command(folder, "owner/name")
    assert result.exit_code == 1
    assert "- model.safetensors is missing" in result.output
    assert command(folder, "a/b/c").exit_code == 2
    assert command(folder / "nowhere", "owner/name").exit_code == 2


def test_a_hub_that_does_not_answer_is_one_sentence(finished):
    with pytest.raises(HubUnreachableError, match=r"could not be published as owner/name .*refused"):
        push(finished, "owner/name", api=HfApi(endpoint="http://127.0.0.1:1", token="hf_none"))


def test_a_page_in_the_place_of_an_answer_is_one_sentence(finished):
    class Page(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>log in</html>")

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api = HfApi(endpoint=f"http://127.0.0.1:{server.server_port}", token="hf_none")
    with pytest.raises(HubUnreachableError, match="could not be published as owner/name") as caught:
        push(finished, "owner/name", api=api)
    server.shutdown()
    server.server_close()
    assert "\n" not in str(caught.value)


def test_paths_of_the_machine_are_warned_of(folder, caplog):
    clean = doubts(folder)
    assert clean == []
    with (folder / "README.md").open("a") as card:
        card.write("\nTrained on `/home/jane/photos/train`.\n")
    (folder / "evaluation").mkdir(exist_ok=True)
    (folder / "evaluation" / "x.json").write_text('{"data": "/srv/jane/photos"}')
    assert doubts(folder) == [
        "README.md names a path of this machine: /home/jane/photos/train",
        "evaluation/x.json names a path of this machine: /srv/jane/photos",
    ]
    push(folder, "owner/name", api=RecordingHub())
    assert "README.md names a path of this machine" in caplog.text
