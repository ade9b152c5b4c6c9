"""Wrong recipes: one error names the file and every wrong key, before anything is trained."""

import copy

import pytest
import yaml
from transformers.trainer_callback import CallbackHandler

from babelens.training.base import RecipeRun
from babelens.training.loading import load_recipe
from babelens.utils.errors import BabelensError, RecipeError
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_recipes import mla, mural, rc3, smalr, student
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))
    saved(tiny_clip(), folder / "clip")
    return folder


def with_value(content, dotted, value):
    content = copy.deepcopy(content)
    *parents, key = dotted.split(".")
    section = content
    for parent in parents:
        section = section.setdefault(parent, {})
    section[key] = value
    return content


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """The error of a recipe that is loaded and run."""

    def trained(*arguments, **options):
        raise AssertionError("a wrong recipe is trained")

    def refused(text, settings=None):
        file = tmp_path / "wrong.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setattr(CallbackHandler, "on_step_begin", trained)
        with pytest.raises(BabelensError) as error:
            RecipeRun(load_recipe(file, settings), tmp_path / "output", "babelens train wrong.yaml").train()
        assert not list((tmp_path / "output").rglob("*.safetensors"))
        return error.value

    return refused


STAGE = {"name": "a", "tasks": ["image_text"]}
# A wrong value, and what the error names.
SCHEMA = [
    ("method", "murall", "did you mean 'mural'"),
    ("method", 5, "method"),
    ("metod", "mural", "unknown key metod; did you mean 'method'"),
    ("model", "mural-tiny", "model"),
    ("model.from_pretrained", "x", "model"),
    ("model.fresh_heads", True, "fresh_heads"),
    ("model.presett", "x", "unknown key model.presett; did you mean 'preset'"),
    ("words", {"min_frequency": 1}, "unknown key words"),
    ("tokenizer", {}, "tokenizer"),
    ("tokenizer.vocab_size", 8.5, "tokenizer.vocab_size"),
    ("tokenizer.vocab_size", True, "tokenizer.vocab_size"),
    ("tokenizer.lowercase", "never", "tokenizer.lowercase"),
    ("tokenizer.languages", ["xx"], "tokenizer.languages.0: 'xx'"),
    ("image", {"resize": 32, "crop": 36}, "image"),
    ("train", {}, "train"),
    ("train.image_text", {"languages": ["en"]}, "train.image_text.source is missing"),
    ("train.image_text.langauges", ["en"], "unknown key train.image_text.langauges; did you mean 'languages'"),
    ("train.image_text.languages", [False], "train.image_text.languages"),
    ("train.image_text.languages", [], "train.image_text.languages"),
    ("train.text_text.pairs", [["en"]], "train.text_text.pairs"),
    ("train.text_text.pairs", {"from": ["en"]}, "train.text_text.pairs"),
    ("train.text_text.pairs", {"from": ["en"], "to": ["en"]}, "train.text_text.pairs"),
    ("train.image_text.text_filter", {"min_wrds": 3}, "train.image_text.text_filter.min_wrds"),
    ("train.image_text.license", 4.0, "train.image_text.license"),
    ("stages", [STAGE | {"name": "../../evil"}], "stages.0.name"),
    ("stages", [STAGE | {"name": "checkpoint-3"}], "stages.0.name"),
    ("stages", [STAGE | {"name": "processor"}], "stages.0.name"),
    ("stages", [STAGE, STAGE], "stages"),
    ("stages", [STAGE | {"tasks": ["text"]}], "stages.a.tasks"),
    ("unseen_languages", "it", "unseen_languages"),
    ("training", None, "training"),
]


@pytest.mark.parametrize(("key", "value", "named"), SCHEMA)
def test_a_wrong_key_is_named(refused, folder, key, value, named):
    error = refused(yaml.safe_dump(with_value(mural(folder), key, value)))
    assert isinstance(error, RecipeError) and named in str(error) and "wrong.yaml: " in str(error)


def test_all_wrong_keys_are_named_at_once(refused, folder):
    settings = {"metod": 1, "training": 3, "train.text_text.pars": [], "image.crop": 0, "tokenizer.sample": "x"}
    error = str(refused(yaml.safe_dump(mural(folder)), settings))
    for key in ("metod", "training:", "train.text_text.pars; did you mean 'pairs'", "image.crop", "tokenizer.sample"):
        assert key in error


RUNS = [
    (mural, "method", "etcl", "model.preset: 'mural-tiny'"),
    (mural, "model.preset", "mural-tinny", "did you mean 'mural-tiny'"),
    (mural, "model.overrides", {"projektion_dim": 8}, "projektion_dim"),
    (mural, "model.overrides", {"text_config": {"hidden_size": "8"}}, "hidden_size"),
    (mural, "model", {"from_pretrained": "/nowhere"}, "tokenizer"),
    (mural, "tokenizer", None, "tokenizer"),
    (mural, "tokenizer.vocab_size", 5, "tokenizer.vocab_size"),
    (mural, "tokenizer.languages", ["sw"], "tokenizer.languages: the data has no text in 'sw'"),
    (mural, "train.image_text.source", "/nowhere/at/all", "/nowhere/at/all"),
    (mural, "train.image_text.languages", ["no"], "train.image_text.languages: the data has no text in 'no'"),
    (mural, "train.image_text.pairs", [["en", "de"]], "train.image_text.pairs"),
    (mural, "train.text_text.pairs", [["en", "ja"]], "train.text_text.pairs: the data has no text in 'ja'"),
    (mural, "train.image_text.options", {"streming": True}, "streming; did you mean 'streaming'"),
    (mural, "train.image_text.options", {"streaming": "maybe"}, "train.image_text.options.streaming"),
    (mural, "train.image_text.license", "my license", "train.image_text.license"),
    (mural, "train.image_txt", {"source": "emoji"}, "train.image_txt"),
    (mural, "validation.options", {"streaming": True}, "validation.options.streaming"),
    (mural, "stages", [STAGE | {"languages": ["fr"]}], "stages.a.languages: the data has no text in 'fr'"),
    (mural, "stages", [STAGE | {"training": {"max_steps": "x"}}], "stages.a.training.max_steps"),
    (mural, "license", "Apache 2.0", "'apache-2.0'"),
    (mural, "license_name", "mine", "license_name"),
    (mural, "report", "emojii", "did you mean 'emoji'"),
    (mural, "unseen_languages", ["it"], "unseen_languages"),
    (mural, "training.max_stepps", 3, "unknown key training.max_stepps; did you mean 'max_steps'"),
    (mural, "training.output_dir", "x", "unknown key training.output_dir"),
    (mural, "training.learning_rate", "fast", "training.learning_rate"),
    (mural, "training.max_steps", "many", "training.max_steps"),
    (mural, "training.save_strategy", "never", "training: never"),
    (mural, "training.optim", "lam", "training: lam"),
    (mural, "training.metric_for_best_model", "accuracy", "training.metric_for_best_model=accuracy"),
    (mural, "training.eval_languages", ["fr"], "training.eval_languages: the data has no text in 'fr'"),
    (mural, "training.per_device_train_batch_size", 999, "999"),
    (mural, "training.task_weights", {"image_txt": 1}, "training.task_weights: there is no 'image_txt'"),
    (mural, "training.text_augmentation", {"tasks": ["x"]}, "training.text_augmentation: there is no 'x'"),
    (mla, "model.overrides.languages", ["de", "xx"], "model.overrides.languages.1: 'xx'"),
    (mla, "tokenizer", {"vocab_size": 9}, "tokenizer"),
    (mla, "multilingual_tokenizer", None, "multilingual_tokenizer"),
    (mla, "training.trainable", "some", "training.trainable"),
    (student, "model", {"preset": "mkd-tiny"}, "model.from_pretrained"),
    (student, "text_model.preset", "rc3-tiny", "text_model.preset"),
    (student, "text_model.training.save_strategy", "steps", "text_model.training.save_strategy"),
    (smalr, "words.vectors", {"xx": "x.vec"}, "words.vectors.xx"),
    (smalr, "words.dictionary", {"files": {"de": "x"}}, "words.dictionary.threshold is missing"),
    (rc3, "report", "emoji", "report"),
    (rc3, "regions", {"grid": 2, "detector": "x"}, "regions"),
    (rc3, "task", "visual-entailmentt", "task"),
]


@pytest.mark.parametrize(("make", "key", "value", "named"), RUNS)
def test_what_does_not_fit_is_refused_before_training(refused, folder, make, key, value, named):
    assert named in str(refused(yaml.safe_dump(with_value(make(folder), key, value))))


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\x00m",
        "",
        "- mural",
        "method: [mural",
        "method: mural\nmethod: etcl",
        "method: !!python/object/apply:os.system [true]",
        "x: " + "[" * 5000,
        "x: " + "9" * 5000,
        "extends: wrong",
        "extends: nothing",
        "extends: [a]",
        "1: 2",
    ],
    ids=range(12),
)
def test_a_file_that_is_not_a_recipe_is_refused_by_name(refused, text):
    assert "wrong.yaml: " in str(refused(text))


@pytest.mark.parametrize("key", ["method.x", "train.image_text.languages.0", "", "training..seed", "stages[0].name"])
def test_a_setting_of_no_key_is_refused(refused, folder, key):
    assert isinstance(refused(yaml.safe_dump(mural(folder)), {key: 1}), RecipeError)


def test_a_license_without_an_identifier_has_its_name_on_the_card(folder, tmp_path):
    file = tmp_path / "shapes.yaml"
    named = {"license": "other", "license_name": "the-shapes-license"}
    file.write_text(yaml.safe_dump(mural(folder) | named))
    run = RecipeRun(load_recipe(file), tmp_path / "run", "")
    run.write_card(run.train(), None)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "license: other" in card and "license_name: the-shapes-license" in card


def test_a_model_that_training_continues_from_gets_other_tasks_and_nothing_else(refused, folder, make_mural, tmp_path):
    align = tmp_path / "align"
    for part in make_mural(tasks=["image_text"]):
        part.save_pretrained(align)
    content = mural(folder) | {"model": {"from_pretrained": str(align)}, "tokenizer": None, "image": None}
    assert "model.overrides.tasks" in str(refused(yaml.safe_dump(content)))
    for name, value in {"projection_dim": 8, "text_text_temperature": -1}.items():
        content["model"]["overrides"] = {"tasks": ["image_text", "text_text"], name: value}
        assert name in str(refused(yaml.safe_dump(content)))
