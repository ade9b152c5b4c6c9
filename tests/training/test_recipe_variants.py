import pytest

from babelens.training.recipe_file import find_recipe, read_recipe, run_name, shipped_recipes
from babelens.training.schema import load_recipe
from babelens.utils.errors import RecipeError

BASE = """
method: mural
model: {preset: mural-tiny}
train:
  image_text: {source: photos, languages: [en, no]}
  text_text: {source: pairs.tsv}
training: {max_steps: 5}
variants:
  short:
    training: {max_steps: 1}
  images:
    extends: short
    train: {text_text: null}
  lost: {extends: nothing}
  circle: {extends: [images, circle]}
  short-images:
    extends: [german, images]
    training: {seed: 3}
  german:
    train: {image_text: {languages: [de]}, text_text: {source: others.tsv}}
    training: {max_steps: 9}
"""


@pytest.fixture
def base(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE, encoding="utf-8")
    return str(tmp_path / "base.yaml")


def test_every_recipe_loads():
    for name in shipped_recipes():
        recipe = load_recipe(name)
        assert recipe.train and recipe.file == find_recipe(name), name


def test_runs_of_recipes_have_folders_of_their_own():
    names = shipped_recipes()
    assert len({run_name(name) for name in names}) == len(names)
    assert run_name("mural/base") == "mural-base" and run_name("mural/base:large") == "mural-base-large"


def test_a_variant_changes_what_it_names(base):
    assert read_recipe(base)["training"] == {"max_steps": 5}
    images = read_recipe(f"{base}:images")
    assert images["training"] == {"max_steps": 1} and list(images["train"]) == ["image_text"]
    assert images["train"]["image_text"]["languages"] == ["en", "no"] and "variants" not in images
    assert run_name(f"{base}:images") == "base-images"


def test_a_variant_of_several_takes_their_keys_in_order(base):
    both = read_recipe(f"{base}:short-images")
    assert both["training"] == {"max_steps": 1, "seed": 3} and list(both["train"]) == ["image_text"]
    assert both["train"]["image_text"]["languages"] == ["de"] and both["method"] == "mural"


def test_recipes_of_the_same_folder_are_extended(base, tmp_path):
    (tmp_path / "more.yaml").write_text("extends: base:short\ntraining: {seed: 3}\n", encoding="utf-8")
    assert read_recipe(tmp_path / "more.yaml")["training"] == {"max_steps": 1, "seed": 3}
    (tmp_path / "loop.yaml").write_text("extends: loop\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="leads back"):
        read_recipe(tmp_path / "loop.yaml")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mural/bose", "did you mean 'mural/base'"),
        ("mural/base:lorge", "did you mean 'mural/base:large'"),
        ("{base}:shirt", "short"),
        ("{base}:lost", "lost.*'nothing'"),
        ("{base}:circle", "'circle' leads back"),
    ],
)
def test_wrong_names(base, name, message):
    with pytest.raises(RecipeError, match=message):
        read_recipe(name.format(base=base))


def test_a_key_of_a_stage_is_set_by_its_name():
    recipe = load_recipe("photos/mural", {"stages.layers.training.max_steps": 450, "stages.layers.languages": ["de"]})
    shipped = load_recipe("photos/mural")
    assert recipe.stages[0] == shipped.stages[0]
    assert recipe.stages[1].training == shipped.stages[1].training | {"max_steps": 450}
    assert recipe.stages[1].languages == ["de"] and recipe.stages[1].tasks == shipped.stages[1].tasks
    with pytest.raises(RecipeError, match="stages"):
        load_recipe("photos/mural", {"stages.nothing.training.max_steps": 1})
