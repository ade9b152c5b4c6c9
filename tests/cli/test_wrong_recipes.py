import copy

import pytest
import yaml
from transformers.trainer_callback import CallbackHandler

from babelens.training.recipe_file import parse
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from babelens.utils.errors import BabelensError, RecipeError
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_recipes import mla, mural
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
    ("model.from_pretrained", "x", "model: give exactly one"),
    ("model.presett", "x", "unknown key model.presett; did you mean 'preset'"),
    ("train.image_text.langauges", ["en"], "unknown key train.image_text.langauges; did you mean 'languages'"),
    ("stages", [STAGE | {"name": "../../evil"}], "stages.0.name"),
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
    (mural, "model.overrides", {"text_poling": "mean"}, "model.overrides: "),
    (mural, "model.preset", "mural-tinny", "did you mean 'mural-tiny'"),
    (mural, "train.text_text.pairs", [["en", "ja"]], "train.text_text.pairs: the data has no text in 'ja'"),
    (mural, "stages", [STAGE | {"training": {"max_steps": "x"}}], "stages.a.training.max_steps"),
    (mural, "license", "Apache 2.0", "'apache-2.0'"),
    (mural, "training.per_device_train_batch_size", 999, "999"),
    (mla, "model.overrides.languages", ["de", "xx"], "model.overrides.languages.1: 'xx'"),
]


@pytest.mark.parametrize(("make", "key", "value", "named"), RUNS)
def test_what_does_not_fit_is_refused_before_training(refused, folder, make, key, value, named):
    assert named in str(refused(yaml.safe_dump(with_value(make(folder), key, value))))


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\x00m",
        "method: mural\nmethod: etcl",
        "method: !!python/object/apply:os.system [true]",
        "x: " + "[" * 5000,
    ],
    ids=range(4),
)
def test_a_file_that_is_not_a_recipe_is_refused_by_name(refused, text):
    assert "wrong.yaml: " in str(refused(text))


def test_a_model_that_training_continues_from_gets_other_tasks_and_nothing_else(refused, folder, make_mural, tmp_path):
    align = tmp_path / "align"
    saved(make_mural(tasks=["image_text"]), align)
    content = mural(folder) | {"model": {"from_pretrained": str(align)}, "tokenizer": None, "image": None}
    assert "model.overrides.tasks" in str(refused(yaml.safe_dump(content)))
    for name, value in {"projection_dim": 8, "text_text_temperature": -1}.items():
        content["model"]["overrides"] = {"tasks": ["image_text", "text_text"], name: value}
        assert name in str(refused(yaml.safe_dump(content)))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1e-3", 1e-3),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("~", None),
        ("", None),
        ("{<<: {a: 1}, b: 2}", {"a": 1, "b": 2}),
    ],
)
def test_values_are_those_of_yaml_1_2(written, read):
    assert parse(written) == read and type(parse(written)) is type(read)


def test_no_on_and_off_are_what_each_key_means_by_them(tmp_path):
    file = tmp_path / "switches.yaml"
    content = mural(write_shapes(tmp_path, captioned=("en", "de")))
    del content["training"]
    text = yaml.safe_dump(content) + "unseen_languages: [no, nb]\n"
    file.write_text(f"{text}training: {{eval_strategy: no, report_to: none, use_cpu: on, bf16: no, fp16: off}}\n")
    options = {"check_images": "no", "streaming": "off"}
    settings = {"tokenizer.lowercase": "off", "train.image_text.options": options, "training.save_strategy": "no"}
    recipe = load_recipe(file, settings)
    assert recipe.unseen_languages == ["no", "nb"]
    assert recipe.tokenizer.lowercase is False
    assert recipe.train["image_text"].loader_options() == {"check_images": False, "streaming": False}
    assert len(recipe.train["image_text"].load()) == 16
    arguments = RecipeRun(recipe, tmp_path / "run", "").arguments(recipe.all_stages[0])
    assert (arguments.eval_strategy, arguments.save_strategy, arguments.report_to) == ("no", "no", [])
    assert (arguments.use_cpu, arguments.bf16, arguments.fp16) == (True, False, False)
