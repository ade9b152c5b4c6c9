import re
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModel

from babelens.data import load_captions
from babelens.evaluation import evaluate_retrieval
from babelens.inference.embedder import Embedder
from babelens.model_folders import atomic_directory
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from babelens.utils.errors import ModelFolderError
from tests.support.killed_saving import killed_at_each_operation
from tests.support.results import metrics_of, numbers_of
from tests.support.tiny_recipes import SAVING, mural
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))
    content = mural(folder)
    content["training"] |= SAVING | {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2}
    content["tokenizer"] |= {"continuing_subword_prefix": "@"}
    (folder / "shapes.yaml").write_text(yaml.safe_dump(content))
    return folder / "shapes.yaml"


@pytest.fixture(scope="module")
def trained(run, recipe_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "mural-shapes"
    run("train", recipe_file, "--output", folder)
    return folder


def test_the_folder_is_fit_to_be_published(run, trained):
    assert "checkpoint-" not in run("push", trained, "someone/mural-shapes", "--dry-run").output
    card = (trained / "README.md").read_text()
    assert "apache-2.0" in card and re.search(r"Computed in (float32|bfloat16)\.", card)
    assert all(f"- {tag}" in card for tag in ("en", "de", "fr"))


def test_the_card_has_the_results_on_the_validation_data(trained, recipe_file):
    card, shapes = (trained / "README.md").read_text(), recipe_file.parent
    assert f"**Validation data ({shapes.name})**, recall in percent" in card
    assert "evaluated on these data during its training as well" in card
    recalls = numbers_of(trained, shapes.name)
    embedder = Embedder.from_pretrained(trained, batch_size=8)
    assert recalls == metrics_of(evaluate_retrieval(embedder, load_captions(shapes), ["de", "en"]))
    for language, numbers in recalls.items():
        assert re.search(rf"\| {language} \| captioned images \|.* {numbers['mean_recall']:.1f} \| 16 \| 16 \|", card)
    results = ModelCard.load(trained / "README.md").data.eval_results
    assert {result.dataset_config for result in results} == {"de", "en"}


def test_resuming_a_finished_run_changes_nothing(run, trained, recipe_file):
    before = (trained / "model.safetensors").read_bytes()
    run("train", recipe_file, "--output", trained, "--resume")
    assert (trained / "model.safetensors").read_bytes() == before


def test_a_save_that_was_killed_is_refused_and_then_repaired(trained, recipe_file, tmp_path):
    """Over an older result, while the new one's files move to their places."""
    folder = tmp_path / "mural-shapes"
    shutil.copytree(trained, folder)
    run = RecipeRun(load_recipe(recipe_file), folder, "")
    before = (folder / "model.safetensors").read_bytes()

    def save():
        with atomic_directory(folder) as scratch:
            for name in ("config.json", "model.safetensors", "processor_config.json", "tokenizer.json"):
                shutil.copy(trained / name, scratch)

    for number in killed_at_each_operation(save, lambda: None, events=["os.rename"]):
        if number == 2:
            break
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        Embedder.from_pretrained(folder)
    run.train(resume=True)
    AutoModel.from_pretrained(folder)
    assert (folder / "model.safetensors").read_bytes() == before


def test_an_output_that_cannot_be_written_is_refused_before_training(run, recipe_file, tmp_path):
    (tmp_path / "file").write_text("no folder")
    for output in (tmp_path / "file" / "model", tmp_path / ("m" * 300)):
        done = run("train", recipe_file, "--output", output, code=1)
        assert isinstance(done.exception, OSError) and "loss" not in done.output
