"""Resuming when the data or the recipe has changed since the run began: another vocabulary would read it."""

import json

import pytest
import yaml
from safetensors.torch import load_file
from tiny_native import saved, tiny_clip
from tiny_recipes import liwe, mla, mural, rc3, smalr, student
from tiny_training import write_shapes
from transformers import AutoProcessor
from transformers.trainer_callback import CallbackHandler
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.configuration.errors import ChangedRunError
from babelens.workflows.base import RecipeRun
from babelens.workflows.data import corpus_digest
from babelens.workflows.loading import load_recipe

pytestmark = pytest.mark.live

METHODS = {maker.__name__: maker for maker in (mural, mla, student, smalr, liwe, rc3)}
SAVING = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "logging_steps": 1, "disable_tqdm": True}


@pytest.fixture
def folder(tmp_path):
    folder = write_shapes(tmp_path)
    saved(tiny_clip(), folder / "clip")
    return folder


def train(folder, content, output="run", *, resume=False, break_at=None):
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))

    def break_off(handler, args, state, control):
        if state.global_step == break_at:
            raise RuntimeError("power cut")
        return on_step_begin(handler, args, state, control)

    on_step_begin = CallbackHandler.on_step_begin
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CallbackHandler, "on_step_begin", break_off)
        RecipeRun(load_recipe(file), folder / output, "").train(resume=resume)


def recipe_of(method, folder):
    content = METHODS[method](folder)
    if method == "rc3":
        content["model"]["overrides"] = {"visual": "patches", "patch_size": 16, "image_size": 64}
    return content | {"training": content["training"] | SAVING}


def break_off(folder, content):
    with pytest.raises(RuntimeError, match="power cut"):
        train(folder, content, break_at=3)


def replace(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize("method", METHODS)
def test_other_words_are_refused_and_the_same_go_on_bitwise(method, folder):
    content = recipe_of(method, folder)
    break_off(folder, content)
    task = "strict" if method == "rc3" else "text_text" if "text_text" in content["train"] else "image_text"
    file = folder / ("pairs.tsv" if task == "text_text" else "metadata.jsonl")
    replace(file, "a red dot", "a crimson dot")
    with pytest.raises(ChangedRunError, match=rf"train\.{task}: the data are not those .*anew in another folder"):
        train(folder, content, resume=True)
    replace(file, "a crimson dot", "a red dot")
    train(folder, content, resume=True)
    train(folder, content, "unbroken")
    found, expected = (load_file(folder / run / "model.safetensors") for run in ("run", "unbroken"))
    assert found.keys() == expected.keys()
    assert all((found[name] == value).all() for name, value in expected.items())


def test_another_image_is_refused(folder):
    content = recipe_of("mural", folder)
    break_off(folder, content)
    (folder / "red-dot.png").write_bytes((folder / "blue-dot.png").read_bytes())
    with pytest.raises(ChangedRunError, match=r"train\.image_text: the data"):
        train(folder, content, resume=True)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("tokenizer", {"vocab_size": 150}),
        ("image", {"resize": 40, "crop": 32}),
        ("model", {"overrides": {}}),
        ("train", {}),
    ],
)
def test_another_recipe_is_refused_by_key(folder, section, change):
    content = recipe_of("mural", folder)
    break_off(folder, content)
    if section == "train":
        content["train"]["image_text"]["languages"] = ["en"]
    else:
        content[section] = content[section] | change
    with pytest.raises(ChangedRunError, match=rf"{section}\..* was .* when the run began, and is "):
        train(folder, content, resume=True)


def test_other_arguments_are_said(folder, caplog):
    content = recipe_of("mural", folder)
    break_off(folder, content)
    content["training"]["max_steps"] = 5
    train(folder, content, resume=True)
    assert "training.max_steps was 4 when the run began, and goes on as 5" in caplog.text


def test_data_may_move_and_be_named_otherwise(folder):
    content = recipe_of("mural", folder)
    break_off(folder, content)
    (folder / "pairs.tsv").rename(folder / "translations.tsv")
    content["train"]["text_text"] |= {"source": str(folder / "translations.tsv"), "attribution": "somebody"}
    train(folder, content | {"license": "mit"}, resume=True)


def test_a_run_of_an_earlier_version_goes_on_with_its_checkpoints_vocabulary(folder, caplog):
    """Which kept neither what it began with nor a processor of its own."""
    content = recipe_of("mural", folder)
    break_off(folder, content)
    (folder / "run/checkpoints/run.json").unlink()
    for file in (folder / "run/checkpoints/processor").iterdir():
        file.unlink()
    (folder / "run/checkpoints/processor").rmdir()
    began = AutoProcessor.from_pretrained(folder / "run/checkpoints/checkpoint-2").tokenizer.get_vocab()
    replace(folder / "pairs.tsv", "point", "pastille")
    train(folder, content, resume=True)
    assert AutoProcessor.from_pretrained(folder / "run").tokenizer.get_vocab() == began
    assert "does not say with what data the run began" in caplog.text


def test_the_command_says_it_in_one_sentence(folder):
    content = recipe_of("mural", folder)
    break_off(folder, content)
    replace(folder / "pairs.tsv", "a red dot", "a crimson dot")
    done = CliRunner().invoke(app, ["train", str(folder / "recipe.yaml"), "--output", str(folder / "run"), "--resume"])
    assert isinstance(done.exception, ChangedRunError)


def test_a_digest_depends_on_what_a_corpus_holds_and_not_on_how(folder):
    from babelens.data import load_captions

    corpus = load_captions(folder)
    corpus.save_to_disk(folder / "saved")
    assert corpus_digest(load_captions(folder / "saved")) == corpus_digest(corpus)
    moved = corpus.select([1, 0, *range(2, len(corpus))])
    assert corpus_digest(moved) != corpus_digest(corpus)
    assert corpus_digest(moved.select([1, 0, *range(2, len(corpus))])) == corpus_digest(corpus)


def test_what_a_run_began_with_is_readable(folder):
    break_off(folder, recipe_of("mural", folder))
    record = json.loads((folder / "run/checkpoints/run.json").read_text())
    assert record["settings"]["training.max_steps"] == 4
    assert set(record["data"]) == {"train.image_text", "train.text_text"}
