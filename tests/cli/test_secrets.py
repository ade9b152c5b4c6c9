import json
import logging
import shlex
import sys

import pytest
import yaml
from typer.testing import CliRunner

from babelens.cli.main import _Redacting, app, main
from babelens.model_cards.card_text import publishable
from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import DataSource, ModelCardFacts, TrainingRun
from babelens.publishing import _run_of, folder_problems
from babelens.training.run import RecipeRun
from tests.support.tiny_recipes import mural
from tests.support.tiny_training import write_shapes

SECRETS = ("hf_" + "aBcDeFgHiJkLmNoPqRsTuVwX", "plain-hunter2")


def _leaves_no_secret(*texts):
    assert not [secret for secret in SECRETS for text in texts if secret in text]


@pytest.fixture(params=["hub_token", "run_name"])
def trained(request, tmp_path, monkeypatch):
    """A run whose token is recognized by its name, or by its form only."""
    (tmp_path / "shapes").mkdir()
    files = write_shapes(tmp_path / "shapes", captioned=("en",))
    secret = SECRETS[1] if request.param == "hub_token" else SECRETS[0]
    recipe = mural(files)
    recipe["train"] = {"image_text": recipe["train"]["image_text"] | {"languages": ["en"]}}
    del recipe["validation"]
    file = tmp_path / "shapes.yaml"
    file.write_text(yaml.safe_dump(recipe))
    words = ["train", str(file), "--output", str(tmp_path / "run"), "--set", f"training.{request.param}={secret}"]
    used = []
    monkeypatch.setattr(sys, "argv", ["babelens", *words])
    begin = RecipeRun.train
    monkeypatch.setattr(RecipeRun, "train", lambda run, **how: used.append(run) or begin(run, **how))
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert used[0].recipe.training[request.param] == secret  # what the run itself reads
    return tmp_path / "run", done, words


def test_a_run_keeps_no_token(trained):
    folder, done, words = trained
    texts = [
        path.read_bytes().decode("utf-8", "replace")
        for path in folder.rglob("*")
        if path.is_file() and path.name != "training_args.bin"  # transformers' own, which is never pushed
    ]
    _leaves_no_secret(done.output, *texts)
    assert "***" in (folder / "README.md").read_text() and (folder / "checkpoints" / "recipe.yaml").is_file()
    # A new token does not make another run.
    again = CliRunner().invoke(app, [*words[:-1], words[-1] + "2", "--resume"], catch_exceptions=False)
    assert again.exit_code == 0
    _leaves_no_secret(again.output)


def test_cards_of_scripts(monkeypatch):
    class Trainer:
        args = None

        class state:
            log_history = ({"train_runtime": 1.0, "step": 1, "train_loss": 1.0},)

    command = ["train.py", "--hub_token", SECRETS[1], "--hub_model_id", "a/b", f"--api-key={SECRETS[1]}"]
    monkeypatch.setattr(sys, "argv", [*command, "--note", SECRETS[0]])
    monkeypatch.setattr("babelens.publishing.training_run", lambda args, history, command: command)
    told = _run_of(Trainer)
    _leaves_no_secret(told)
    assert "--hub_model_id a/b" in told


def test_facts_of_cards_and_reports(tmp_path):
    secret = f"--password {SECRETS[1]} https://me:{SECRETS[1]}@host/data"
    run = TrainingRun(
        command=f"HF_TOKEN={SECRETS[0]} babelens train x {secret}",
        hyperparameters={"hub_token": SECRETS[1], "more": {"wandb_key": SECRETS[1]}, "args": ["--auth", SECRETS[1]]},
        steps=1,
        seconds=1.0,
        loss=1.0,
        hardware="one core",
        versions="torch 2",
    )
    data = DataSource(name=f"s3://{SECRETS[1]}:x@bucket/a", license="CC0-1.0", role="images", attribution=SECRETS[0])
    facts = ModelCardFacts(model_name="m", method="mural", training_data=[data], image_languages=["en"], run=run)
    _leaves_no_secret(write_card(tmp_path, facts).read_text(), str(publishable(facts)))


def test_logs_and_errors(monkeypatch, capsys):
    record = logging.LogRecord("babelens", logging.INFO, "", 0, "token was %r, now %s", (SECRETS[0], SECRETS[0]), None)
    _leaves_no_secret(_Redacting().format(record))
    monkeypatch.setattr(sys, "argv", ["babelens", "train", "emoji/mural", "--set", f"hub_token: {SECRETS[0]}"])
    with pytest.raises(SystemExit):
        main()
    _leaves_no_secret(capsys.readouterr().err)


def test_a_folder_that_holds_a_token_is_not_pushed(tmp_path):
    (tmp_path / "notes.json").write_text(json.dumps({"command": shlex.join(["x", SECRETS[0]])}))
    problems = [each for each in folder_problems(tmp_path) if "notes.json" in each]
    assert problems
    _leaves_no_secret(*problems)
