"""Recipes of MLA's baselines, from files to a published folder, on shapes."""

import json

import pytest
import torch
import yaml
from datasets import Dataset
from transformers import AutoModel, AutoProcessor
from typer.testing import CliRunner

from babelens import MlaModel, MlaProcessor
from babelens.cli.main import app
from babelens.modeling.acquirer import plain_state_dict
from babelens.training.base import recipe_data
from babelens.training.loading import load_recipe
from babelens.training.recipe import find_recipe
from babelens.utils.errors import RecipeError
from tests.support.tiny_native import saved, tiny_bert, tiny_clip
from tests.support.tiny_training import shapes_corpus

CPU = {"report_to": "none", "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The shapes as files, and native models: a plain CLIP, and one that MLA has been around."""
    folder = tmp_path_factory.mktemp("shapes")
    rows = []
    for row in shapes_corpus():
        row["image"].save(folder / f"{row['image_id']}.png")
        captions = {caption["language"]: caption["text"] for caption in row["captions"]}
        rows.append({"file_name": f"{row['image_id']}.png", "captions": captions})
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    saved(tiny_clip(), folder / "clip")
    saved(tiny_bert(), folder / "bert")
    native, native_processor = tiny_clip()
    tokenizer = tiny_bert()[1]
    vocabulary = {"vocab_size": len(tokenizer), "sep_token_id": tokenizer.sep_token_id, "embedding_size": 8}
    mla = (
        MlaModel.from_native(native, **vocabulary),
        MlaProcessor.for_native(native.config, native_processor, tokenizer),
    )
    saved(mla, folder / "mla")
    return folder


def recipe(folder, **changes):
    languages = ["en", "de"]
    text = {"source": str(folder), "pairs": [[language, "en"] for language in languages], "license": "CC0-1.0"}
    training = CPU | {"per_device_train_batch_size": 8, "max_steps": 2, "learning_rate": 1e-2}
    return {
        "method": "mla_student",
        "model": {
            "from_pretrained": str(folder / "clip"),
            "attn_implementation": "eager",
            "overrides": {"strategy": "acquisition", "languages": ["de"], "acquirer_size": 8},
        },
        "text_model": {"preset": "cma-tiny", "training": CPU | {"max_steps": 2, "per_device_train_batch_size": 8}},
        "multilingual_tokenizer": {"vocab_size": 200, "languages": languages},
        "train": {
            "text_text": text,
            "image_text": {"source": str(folder), "languages": languages, "license": "CC0-1.0"},
        },
        "stages": [
            {"name": "transfer", "tasks": ["text_text"], "training": {}},
            {"name": "exposure", "tasks": ["image_text"], "training": {}},
        ],
        "training": training,
    } | changes


def train(content, output, *options):
    file = output.parent / f"{output.name}.yaml"
    file.write_text(yaml.safe_dump(content))
    CliRunner().invoke(app, ["train", str(file), "--output", str(output), *options], catch_exceptions=False)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("trained") / "cma-shapes"
    train(recipe(folder), output)
    return output


def test_cma_in_two_stages(trained, folder):
    model, processor = AutoModel.from_pretrained(trained), AutoProcessor.from_pretrained(trained)
    assert model.config.strategy == "acquisition" and model.config.known_languages == ["en", "de"]
    inputs = processor(text=["Balken in rot"], language="de", return_tensors="pt")
    assert model.get_text_features(**inputs).pooler_output.shape == (1, 16)
    plain = tiny_clip()[0].state_dict()
    found = model.native_state_dict()
    assert all(torch.equal(found[name], value) for name, value in plain.items())
    bert = AutoModel.from_pretrained(trained / "checkpoints" / "text_model" / "finished", add_pooling_layer=False)
    frozen = plain_state_dict(model.text_model)
    assert all(torch.equal(frozen[name], value) for name, value in bert.state_dict().items())


def test_the_card_says_what_it_is(trained):
    card = (trained / "README.md").read_text()
    assert "paper's CMA" in card.replace("\n", " ")
    assert "- mla_student" in card and "- de" in card and "- fr" not in card


def test_a_run_is_not_begun_twice(trained, folder):
    with pytest.raises(FileExistsError, match="already"):
        train(recipe(folder), trained)
    train(recipe(folder), trained, "--resume")


def test_mkd_with_an_existing_text_model_for_a_native_model_inside_of_mla(folder, tmp_path):
    model = {"from_pretrained": str(folder / "mla"), "overrides": {"strategy": "distillation", "languages": ["de"]}}
    content = recipe(folder, model=model, text_model={"from_pretrained": str(folder / "bert")})
    del content["multilingual_tokenizer"]
    content["stages"] = content["stages"][:1]
    train(content, tmp_path / "mkd")
    student, processor = (kind.from_pretrained(tmp_path / "mkd") for kind in (AutoModel, AutoProcessor))
    assert processor.tokenizer.get_vocab() == tiny_bert()[1].get_vocab()
    assert not torch.equal(
        student.text_model.embeddings.word_embeddings.weight, tiny_bert()[0].embeddings.word_embeddings.weight
    )
    card = (tmp_path / "mkd" / "README.md").read_text()
    assert "| Started from | `mla`, license: unknown |" in card
    assert "| Text tower started from | `bert`, license: unknown |" in card
    # And on from there.
    content["model"] = {"from_pretrained": str(tmp_path / "mkd")}
    train(content, tmp_path / "more")
    more = AutoModel.from_pretrained(tmp_path / "more")
    assert type(more) is type(student) and not torch.equal(more.projection.weight, student.projection.weight)


def test_the_projection_first_and_then_the_upper_layer_of_the_text_encoder(folder, tmp_path):
    encoder, tokenizer = tiny_bert(layers=2)
    saved((encoder, tokenizer), tmp_path / "bert")
    overrides = {"strategy": "projection", "languages": ["de"], "native_texts": "native", "text_pooling": "mean"}
    content = recipe(folder, text_model={"from_pretrained": str(tmp_path / "bert")})
    del content["multilingual_tokenizer"]
    content["model"] |= {"overrides": overrides}
    for source in content["train"].values():
        source |= {"languages": ["de"]}
    content["train"]["text_text"] |= {"languages": None, "pairs": [["de", "en"]]}
    layers = {"towers": {"text": {"train": "upper", "layers": 1}}, "task_batch_sizes": {"text_text": 4}}
    tasks = ["text_text", "image_text"]
    content["stages"] = [
        {"name": "projection", "tasks": tasks},
        {"name": "layers", "tasks": tasks, "training": layers},
    ]
    train(content, tmp_path / "run")
    model = AutoModel.from_pretrained(tmp_path / "run")
    own = encoder.state_dict()
    changed = {name for name, value in model.text_model.state_dict().items() if not torch.equal(value, own[name])}
    assert changed and all(name.startswith("encoder.layer.1.") for name in changed)
    plain = tiny_clip()[0].state_dict()
    assert all(torch.equal(model.native_state_dict()[name], value) for name, value in plain.items())
    assert model.frozen_towers == ("text",)
    content["stages"][1]["training"] = {"towers": {"image": {"train": "none"}}}
    with pytest.raises(RecipeError, match=r"stages.layers.training: towers\.image: a student's images"):
        train(content, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()  # nothing was trained in vain


def test_a_new_student_needs_a_text_model(folder, tmp_path):
    content = recipe(folder)
    del content["text_model"]
    with pytest.raises(RecipeError, match="text_model: a new student needs one"):
        train(content, tmp_path / "none")
    both = recipe(folder, text_model={"preset": "cma-tiny", "from_pretrained": "bert"})
    with pytest.raises(RecipeError, match="text_model: give either preset or from_pretrained"):
        train(both, tmp_path / "both")


def test_a_text_model_is_trained_on_what_each_row_says_in_each_language(tmp_path):
    def texts(**by_language):
        return [{"language": language, "text": text} for language, text in by_language.items()]

    rows = [
        {"captions": texts(de="Hund", en="dog", it="cane"), "keywords": texts(de="Tier, Haustier", it="animale")},
        {"captions": texts(de="Katze"), "keywords": texts(en="cat")},
    ]
    data = recipe_data(load_recipe("emoji/mla/cma"))
    data.corpora = {
        "text_text": Dataset.from_list(rows),
        "image_text": Dataset.from_list(rows[1:]).remove_columns("keywords"),
    }
    assert data.documents() == ["Hund, Tier, Haustier", "dog", "Katze", "cat"]


@pytest.mark.parametrize("name", ["mkd", "cma"])
def test_the_recipes_of_the_emoji_benchmark_fit_mla(name):
    """The same languages and the same steps as MLA's, English added."""
    mla, baseline = load_recipe(find_recipe("emoji/mla/mla")), load_recipe(find_recipe(f"emoji/mla/{name}"))
    languages = mla.model.overrides["languages"]
    assert baseline.model.overrides["languages"] == languages
    assert baseline.train["text_text"].pairs == [("en", "en"), *mla.train["text_text"].pairs]
    assert baseline.multilingual_tokenizer.languages == ["en", *languages]
    assert baseline.stages == mla.stages[: len(baseline.stages)]
    assert baseline.training == mla.training
