import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from babelens.inference import ImageIndex
from babelens.inference.embed import EmbeddingJob, embed_source
from babelens.inference.embedder import Embedder
from babelens.inference.onnx.export import export_onnx
from babelens.inference.onnx.model import GraphSettings
from babelens.model_cards.cards import add_results
from babelens.publishing import folder_problems
from babelens.search import build_index, open_index, search_index
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from babelens.utils.errors import InputError
from babelens.utils.identity import folder_identity, model_identity
from tests.support.tiny_recipes import mural, recipe_run
from tests.support.tiny_training import write_shapes


def rewrite(file, change):
    content = json.loads(file.read_text("utf-8"))
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def other_epsilon(folder):
    rewrite(folder / "config.json", lambda content: content["vision_config"].update(layer_norm_eps=0.5))


def other_weights(folder):
    weights = load_file(folder / "model.safetensors")
    save_file({name: -value for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})


def other_image_processor(folder):
    rewrite(folder / "processor_config.json", lambda content: content["image_processor"].update(image_mean=[0.1] * 3))


def other_tokenizer(folder):
    def change(content):
        vocabulary = content["model"]["vocab"]
        first, second = sorted(vocabulary, key=vocabulary.get)[-4:-2]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]

    rewrite(folder / "tokenizer.json", change)


OF_IMAGES = {"epsilon of images": other_epsilon, "weights": other_weights, "image processor": other_image_processor}
CHANGES = OF_IMAGES | {"tokenizer": other_tokenizer}


@pytest.fixture(params=CHANGES)
def change(request):
    return CHANGES[request.param]


@pytest.mark.parametrize("change", OF_IMAGES.values(), ids=OF_IMAGES)
def test_what_was_kept_of_images_is_not_taken_for_that_of_a_changed_model(model, images, change, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    first, kept = Embedder.from_pretrained(folder), tmp_path / "kept"
    ImageIndex.of_folder(first, images, cache=kept)
    job = EmbeddingJob(str(images), tmp_path / "shards")
    embed_source(first, job, model="first")
    build_index(tmp_path / "index", tmp_path / "shards")

    change(folder)
    second = Embedder.from_pretrained(folder)
    found, fresh = ImageIndex.of_folder(second, images, cache=kept), ImageIndex.of_folder(second, images)
    np.testing.assert_array_equal(found.embeddings, fresh.embeddings)
    index = open_index(tmp_path / "index")
    with pytest.raises(InputError):
        search_index(index, second, ["a cat"], language="en")
    with pytest.raises(InputError):
        embed_source(second, job, model="second")


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """A model's folder with graphs. Not to be changed."""
    folder = shutil.copytree(model, tmp_path_factory.mktemp("exported") / "model")
    export_onnx(folder, folder)
    return folder


def test_graphs_of_other_weights_are_not_run(exported, change, tmp_path):
    """The inputs are prepared by the current processor, which need not be the exported one."""
    folder = shutil.copytree(exported, tmp_path / "model")
    before = Embedder.from_pretrained(folder, backend="onnx")
    change(folder)
    if change not in (other_image_processor, other_tokenizer):
        with pytest.raises(InputError, match="other weights"):
            Embedder.from_pretrained(folder, backend="onnx")
        return
    after, torchs = Embedder.from_pretrained(folder, backend="onnx"), Embedder.from_pretrained(folder)
    images = np.random.default_rng(0).integers(0, 256, (2, 40, 40, 3), dtype=np.uint8)
    np.testing.assert_allclose(after.encode_image([*images]), torchs.encode_image([*images]), atol=1e-4)
    assert model_identity(after.model, after.processor) != model_identity(before.model, before.processor)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A recipe that keeps no checkpoints, and its finished run. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "shapes").mkdir()
    content = mural(write_shapes(folder / "shapes"))
    content["training"] |= {"save_strategy": "no"}
    run = recipe_run(content, folder)
    run.report(run.train())
    return folder


@pytest.fixture
def trained(finished, tmp_path):
    return shutil.copytree(finished / "run", tmp_path / "run")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_model_is_not_overwritten(run, finished, trained):
    before = contents(trained)
    done = run("train", finished / "recipe.yaml", "--output", trained, "--resume", code=1)
    assert isinstance(done.exception, FileExistsError)
    assert contents(trained) == before


def test_a_run_that_was_killed_before_its_results_begins_anew(finished, trained):
    (trained / "results.json").unlink()
    again = RecipeRun(load_recipe(finished / "recipe.yaml"), trained, "")
    with pytest.raises(FileExistsError):
        again.train()
    again.report(again.train(resume=True))
    assert folder_problems(trained) == []


def test_graphs_of_other_weights_are_not_published(run, trained):
    settings = trained / "onnx" / "graphs.json"
    settings.parent.mkdir()
    graphs = GraphSettings(16, {}, {}, model=folder_identity(trained, with_processor=False))
    settings.write_text(json.dumps(asdict(graphs)))
    assert folder_problems(trained) == []
    rewrite(settings, lambda content: content.update(model="0" * 32))
    assert any("have other weights" in problem for problem in folder_problems(trained))
    run("push", trained, "owner/name", "--dry-run", code=1)
    rewrite(settings, lambda content: content.pop("model"))
    assert any("does not state which weights" in problem for problem in folder_problems(trained))


def test_a_card_of_other_weights_is_not_published(trained, change):
    assert folder_problems(trained) == []
    change(trained)
    assert "README.md was written for other weights" in "\n".join(folder_problems(trained))
    with pytest.raises(InputError, match="another model"):
        add_results(trained, [])
