"""`babelens evaluate mteb`: mteb runs on tiny tasks, and the card holds the scores that it printed."""

import json
import shutil

import mteb
import pytest
from huggingface_hub import ModelCard

from tests.contracts import drawn_images
from tests.support import tiny_mteb_tasks as tasks
from tests.support.tiny_text_encoders import saved_encoder

PAIRS = [("ein hund", "a dog"), ("zwei katzen", "two cats"), ("der rote ball", "the red ball")]


@pytest.fixture
def folder(model, tmp_path):
    """The folder of a model with a card."""
    shutil.copytree(model, tmp_path / "clip")
    (tmp_path / "clip" / "README.md").write_text("---\nlicense: mit\nlanguage: en\n---\n# A model\n")
    return tmp_path / "clip"


@pytest.fixture(autouse=True)
def tiny_tasks(monkeypatch):
    made = {
        "TinyBitext": lambda: tasks.bitext(PAIRS),
        "TinyZeroShot": lambda: tasks.zero_shot(drawn_images(3), [0, 1, 0], ["rot", "blau"]),
    }
    monkeypatch.setattr(mteb, "get_task", lambda name: made[name]())


def letters(output):
    """What an error in a box says, whose lines break where the path of a folder makes them."""
    return "".join(filter(str.isalnum, output))


def test_scores_are_printed_kept_and_added_to_the_card(run, folder):
    given = ("evaluate", "mteb", folder, "--tasks", "TinyBitext,TinyZeroShot", "--languages", "de")
    results = json.loads(run(*given, "--card", "--json").stdout)
    assert list(results) == ["TinyBitext", "TinyZeroShot"]
    f1 = results["TinyBitext"]["splits"]["test"]["de-en"]["f1"]
    assert results["TinyBitext"]["main_metric"] == "f1"
    (kept,) = (folder / "evaluation" / "mteb" / "results").glob("local__clip/*/TinyBitext.json")
    assert json.loads(kept.read_text())["scores"]["test"][0]["f1"] == pytest.approx(f1, abs=1e-5)
    scores = {each.dataset_name: each for each in ModelCard.load(folder / "README.md").data.eval_results}
    assert scores["TinyBitext (de-en)"].metric_value == pytest.approx(100 * f1, abs=1e-3)
    assert scores["TinyZeroShot (default)"].metric_type == "accuracy"


def test_tables_and_another_folder(run, folder, tmp_path):
    shown = run("evaluate", "mteb", folder, "--tasks", "TinyBitext", "--output", tmp_path / "mteb").output
    assert "TinyBitext, in %" in shown and "deu-Latn, eng-Latn" in shown and "f1" in shown
    assert list((tmp_path / "mteb").rglob("TinyBitext.json")) and not (folder / "evaluation").exists()


def test_a_text_encoder_with_its_prompt(run, tmp_path):
    saved_encoder("bert", tmp_path / "bert", "mean_tokens")
    given = ("evaluate", "mteb", tmp_path / "bert", "--tasks", "TinyBitext", "--json")
    for prompt in ("query: ", "passage: "):  # results of one are not those of the other
        results = json.loads(run(*given, "--text-prompt", prompt).stdout)
        assert results["TinyBitext"]["main_metric"] == "f1"
    assert len(list((tmp_path / "bert" / "evaluation" / "mteb" / "results" / "local__bert").iterdir())) == 2


def test_wrong_calls(run, folder, model):
    assert "hasnomodelcard" in letters(
        run("evaluate", "mteb", model, "--tasks", "TinyBitext", "--card", code=2).output
    )
    shown = run("evaluate", "mteb", folder, "--tasks", "TinyBitext", "--languages", "sw", code=1)
    assert "TinyBitext has no texts in sw; its subsets are de-en" in str(shown.exception)
