"""Recipes are read as YAML 1.2: `no`, `on` and numbers, in files and on the command line."""

import pytest
import yaml

from babelens.training.recipe_file import parse
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from tests.support.tiny_recipes import mural
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))


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
def test_values_are_those_of_yaml_1_2(tmp_path, written, read):
    assert parse(written) == read and type(parse(written)) is type(read)


def test_norwegian_is_a_language_and_no_a_strategy(folder, tmp_path):
    file = tmp_path / "norwegian.yaml"
    text = yaml.safe_dump(mural(folder))
    file.write_text(text + "unseen_languages: [no, nb]\n")
    recipe = load_recipe(file, {"training.save_strategy": "no", "training.learning_rate": 1})
    assert recipe.unseen_languages == ["no", "nb"] and recipe.training["learning_rate"] == 1


def test_on_and_off_are_what_each_key_means_by_them(folder, tmp_path):
    file = tmp_path / "switches.yaml"
    content = mural(folder)
    for section, key in (("training", "report_to"), ("training", "use_cpu")):
        del content[section][key]
    words = "  eval_strategy: no\n  save_strategy: no\n  report_to: none\n  use_cpu: on\n  bf16: no\n  fp16: off\n"
    text = yaml.safe_dump({key: value for key, value in content.items() if key != "training"})
    settings = "".join(f"  {key}: {value}\n" for key, value in content["training"].items())
    file.write_text(f"{text}training:\n{settings}{words}")
    options = {"check_images": "no", "streaming": "off"}
    recipe = load_recipe(file, {"tokenizer.lowercase": "off", "train.image_text.options": options})
    assert recipe.tokenizer.lowercase is False
    assert recipe.train["image_text"].loader_options() == {"check_images": False, "streaming": False}
    assert len(recipe.train["image_text"].load()) == 16
    arguments = RecipeRun(recipe, tmp_path / "run", "").arguments(recipe.all_stages[0])
    assert (arguments.eval_strategy, arguments.save_strategy, arguments.report_to) == ("no", "no", [])
    assert (arguments.use_cpu, arguments.bf16, arguments.fp16) == (True, False, False)
