"""Publishing to a server that speaks the Hub's protocol: commits, large files, branches, tokens, broken uploads."""

import itertools
import os
import random
import shutil
import signal
import threading
import time
from functools import partial

import pytest
import typer
from fastapi.responses import JSONResponse, Response
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, constants
from safetensors.torch import load_file, save_file
from transformers import AutoModel
from typer.testing import CliRunner

from babelens.cli.push import push as push_command
from babelens.model_cards.card_text import save_card
from babelens.publishing import files_to_publish, push
from babelens.utils.errors import HubUnreachableError, PublishError
from tests.support.forks import forked
from tests.support.hub_store import Refusal

NAME = "ada/mural-tiny"
KILLS = int(os.environ.get("BABELENS_KILLS", "2"))
# huggingface_hub 2.4 uploads files by an argument that httpx2 deprecates.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]


@pytest.fixture(autouse=True)
def no_xet(monkeypatch):
    """The double speaks the protocol of git-lfs; and nobody waits between two attempts."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)


@pytest.fixture
def api(hub):
    return HfApi(endpoint=hub.endpoint, token="hf_ada")


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of the folder, to be changed."""
    return shutil.copytree(finished, tmp_path / "mural-tiny")


def uploads(hub):
    return [request.rpartition("/")[2] for request in hub.requests if request.startswith("PUT /storage/")]


def _write_card_again(folder):
    """For the weights that the folder has now: push refuses the card of others."""
    save_card(ModelCard.load(folder / "README.md"), folder)


def test_a_new_repository_and_the_same_again(hub, api, finished):
    published = push(finished, NAME, api=api)
    head = hub.repository(NAME).branches["main"]
    assert published.changed and published.address == f"{hub.endpoint}/{NAME}/commit/{head}"
    assert set(hub.repository(NAME).at("main").files) == {".gitattributes", *files_to_publish(finished)}
    for path in files_to_publish(finished):
        assert path == "README.md" or hub.file(NAME, path) == (finished / path).read_bytes()
    assert not hub.repository(NAME).private

    sent = len(uploads(hub))
    again = push(finished, NAME, api=api)
    assert not again.changed and again.address == published.address
    assert len(uploads(hub)) == sent and hub.count("/commit/main") == 1


def test_only_what_changed_is_sent(hub, api, folder):
    push(folder, NAME, api=api)
    sent = len(uploads(hub))
    (folder / "notes.txt").write_text("More about it.")
    assert push(folder, NAME, api=api).changed
    assert hub.file(NAME, "notes.txt") == b"More about it." and len(uploads(hub)) == sent


def test_weights_of_an_earlier_model_do_not_stay(hub, api, folder):
    """In one file after several; files that nobody loads by their names are left alone."""
    whole = shutil.copytree(folder, folder.with_name("whole"))
    AutoModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="20kB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    _write_card_again(folder)
    push(folder, NAME, api=api)
    kept = [CommitOperationAdd("figures/model.safetensors", b"mine"), CommitOperationAdd("adapter_config.json", b"{}")]
    api.create_commit(NAME, kept, commit_message="By hand")
    sharded = set(hub.repository(NAME).at("main").files)
    assert sum(name.startswith("model-") for name in sharded) > 1

    push(whole, NAME, api=api)
    assert set(hub.repository(NAME).at("main").files) == {".gitattributes", "figures/model.safetensors"} | {
        *files_to_publish(whole)
    }
    assert not push(whole, NAME, api=api).changed


def test_of_two_models_that_are_pushed_at_once_one_is_refused(hub, api, folder):
    """The repository has the files of one of them, and the weights of no other."""
    sharded = shutil.copytree(folder, folder.with_name("sharded"))
    AutoModel.from_pretrained(folder).save_pretrained(sharded, max_shard_size="20kB")
    (sharded / "model.safetensors").unlink(missing_ok=True)
    (sharded / "glossary.tsv").write_text("de\thund\tdog\n")
    _write_card_again(sharded)
    both = threading.Barrier(2)

    class Waiting(HfApi):
        def create_commit(self, *args, **kwargs):
            both.wait(60)  # until both have asked what is there
            return super().create_commit(*args, **kwargs)

    said = {}

    def run(pushed):
        try:
            said[pushed] = push(pushed, NAME, api=Waiting(endpoint=hub.endpoint, token="hf_ada"))
        except HubUnreachableError as error:
            said[pushed] = error

    threads = [threading.Thread(target=run, args=[each]) for each in (folder, sharded)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    refused = next(each for each in said if isinstance(said[each], HubUnreachableError))
    first = next(each for each in said if each != refused)
    assert "another commit was made there in the meantime" in str(said[refused]) and said[first].changed
    for last in (first, refused):
        push(last, NAME, api=api)
        assert set(hub.repository(NAME).at("main").files) == {".gitattributes", *files_to_publish(last)}


def test_a_private_repository_stays_private(hub, api, finished):
    push(finished, NAME, private=True, api=api)
    assert hub.repository(NAME).private
    assert not push(finished, NAME, private=True, api=api).changed
    hub.repository(NAME).private = False
    with pytest.raises(PublishError, match="exists already and is public"):
        push(finished, NAME, private=True, api=api)


def test_a_branch_is_made_and_the_main_one_stays(hub, api, folder):
    push(folder, NAME, api=api)
    main = hub.repository(NAME).branches["main"]
    (folder / "notes.txt").write_text("new")
    for expected in (True, False):
        published = push(folder, NAME, revision="v2", api=api)
        assert published.changed is expected
    assert hub.repository(NAME).branches["main"] == main
    assert hub.file(NAME, "notes.txt", revision="v2") == b"new"


def test_large_files_go_in_parts(hub, api, finished):
    hub.storage.part_size = 30_000
    push(finished, NAME, api=api)
    weights = (finished / "model.safetensors").read_bytes()
    assert len(weights) > 60_000 and hub.file(NAME, "model.safetensors") == weights
    assert hub.count("POST /complete/") == 1


def test_an_upload_that_broke_off_is_gone_on_with(hub, api, finished):
    """The images of examples arrive; the weights do not, and are all that is sent the second time."""
    hub.storage.part_size = 30_000

    def broken(request):
        if request.method == "PUT" and request.query_params.get("part") == "2":
            return JSONResponse({"error": "Request has expired"}, 403)

    hub.faults.append(broken)
    with pytest.raises(HubUnreachableError, match=r"model\.safetensors.*Run the same command again") as caught:
        push(finished, NAME, api=api)
    assert "\n" not in str(caught.value)
    assert len(hub.repository(NAME).commits) == 1  # the first one, of the repository itself
    arrived, first = set(hub.store.large), uploads(hub)
    assert len(arrived) == 1
    hub.faults.clear()
    assert push(finished, NAME, api=api).changed
    assert not arrived & set(uploads(hub)[len(first) :])
    assert hub.file(NAME, "model.safetensors") == (finished / "model.safetensors").read_bytes()


def test_a_storage_that_fails_for_a_moment_is_asked_again(hub, api, finished):
    failures = [500, 503]
    hub.faults.append(
        lambda request: Response(status_code=failures.pop()) if failures and request.method == "PUT" else None
    )
    assert push(finished, NAME, api=api).changed and not failures


@pytest.mark.parametrize(
    ("token", "repository", "reason"),
    [
        ("hf_nobody", NAME, "log in with `hf auth login`, or set HF_TOKEN"),
        (False, NAME, "log in with `hf auth login`, or set HF_TOKEN"),
        ("hf_ada_reads", NAME, "the token may not write there"),
        ("hf_ada", "bo/mural-tiny", "the token may not write there"),
    ],
)
def test_a_wrong_token_is_one_sentence(hub, finished, token, repository, reason):
    with pytest.raises(HubUnreachableError, match=reason) as caught:
        push(finished, repository, api=HfApi(endpoint=hub.endpoint, token=token))
    assert "\n" not in str(caught.value) and not hub.store.repositories


def test_a_card_that_the_hub_refuses_is_one_sentence(hub, api, finished, monkeypatch):
    """Should the Hub have a rule that is not checked before."""
    monkeypatch.setattr("babelens.publishing.folder_problems", lambda folder: [])

    def refuse(text, kind):
        raise Refusal(400, '"license" must be one of the identifiers of the Hub')

    monkeypatch.setattr("tests.support.hub_server.check_card", refuse)
    with pytest.raises(PublishError, match=r'Invalid metadata in README\.md\. "license" must be one') as caught:
        push(finished, NAME, api=api)
    assert "\n" not in str(caught.value) and not uploads(hub)


def test_the_command_tells_what_it_did(hub, finished, monkeypatch):
    monkeypatch.setattr("babelens.publishing.HfApi", partial(HfApi, endpoint=hub.endpoint, token="hf_ada"))
    app = typer.Typer()
    app.command()(push_command)

    def run(*arguments):
        return CliRunner().invoke(app, [str(finished), NAME, *arguments], env={"COLUMNS": "200"})

    address = f"{hub.endpoint}/{NAME}/commit/"
    assert f"Published: {address}" in run("--private").output
    assert f"Nothing has changed since: {address}" in run("--private").output
    assert f"Published: {address}" not in run("--revision", "v2").output
    assert set(hub.repository(NAME).branches) == {"main", "v2"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the killed process is a fork, which starts at once")
@pytest.mark.timeout(300 if KILLS <= 2 else 0)
def test_a_killed_push_leaves_the_repository_as_it_was_and_the_next_one_completes_it(hub, api, folder):
    """Killed at random moments; `BABELENS_KILLS=50` kills it more often."""
    push(folder, NAME, api=api)
    draw, kills, broken_off = random.Random(0), 0, 0
    began = time.perf_counter()
    _change(folder, "first")
    push(folder, NAME, api=api)
    duration = time.perf_counter() - began
    for life in itertools.count():
        if kills == KILLS:
            break
        before = hub.repository(NAME).at("main")
        _change(folder, str(life))
        child = forked()
        if child == 0:
            try:
                push(folder, NAME, api=HfApi(endpoint=hub.endpoint, token="hf_ada"))
            finally:
                os._exit(0)
        time.sleep(draw.uniform(0, 1.2) * duration)
        os.kill(child, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        head = hub.repository(NAME).at("main")
        broken_off += head.oid == before.oid
        assert push(folder, NAME, api=api).changed == (head.oid == before.oid)
        assert set(hub.repository(NAME).at("main").files) == {".gitattributes", *files_to_publish(folder)}
        for path in ("model.safetensors", "notes.txt"):
            assert hub.file(NAME, path) == (folder / path).read_bytes()
    print(f"{kills} kills, of which {broken_off} before the commit; a push takes {duration:.2f} s")


def _change(folder, text):
    """A large file and a small one."""
    (folder / "notes.txt").write_text(text)
    weights = load_file(folder / "model.safetensors")
    name = min(weights)
    save_file(weights | {name: weights[name] + 1}, folder / "model.safetensors", metadata={"format": "pt"})
    _write_card_again(folder)
