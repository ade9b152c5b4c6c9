"""Single keys of a recipe that are set beside its file, as by the option --set; and what the shipped recipes name."""

import pytest
from transformers import TrainingArguments

from babelens import ContrastiveTrainingArguments
from babelens.training.loading import load_recipe
from babelens.training.recipe_file import RECIPES, with_key
from babelens.utils.errors import RecipeError


def test_a_key_of_a_stage_is_set_by_its_name():
    recipe = load_recipe("photos/mural", {"stages.layers.training.max_steps": 450, "stages.layers.languages": ["de"]})
    shipped = load_recipe("photos/mural")
    assert recipe.stages[0] == shipped.stages[0]
    assert recipe.stages[1].training == shipped.stages[1].training | {"max_steps": 450}
    assert recipe.stages[1].languages == ["de"] and recipe.stages[1].tasks == shipped.stages[1].tasks


def test_what_was_given_is_not_changed():
    settings = {"stages": [{"name": "one", "training": {"seed": 1}}, {"name": "two"}]}
    changed = with_key(settings, "stages.one.training.seed", 2)
    assert changed == {"stages": [{"name": "one", "training": {"seed": 2}}, {"name": "two"}]}
    assert settings == {"stages": [{"name": "one", "training": {"seed": 1}}, {"name": "two"}]}


@pytest.mark.parametrize("key", ["stages.one", "stages.0.tasks", "stages.two.training", "stages.one.tasks.x"])
def test_a_key_that_names_no_stage_is_refused(key):
    with pytest.raises(RecipeError, match=r"stages"):
        with_key({"stages": [{"name": "one", "tasks": 1}]}, key, {})


# The recipes that the papers train with LAMB, each with its stages' number; it is no default, so each names it.
LAMB = {
    "etcl/6lang": 1,
    "etcl/base": 2,
    "etcl/finetune-mscoco": 1,
    "etcl/finetune-multi30k": 1,
    "etcl/mural": 1,
    "etcl/plus-one": 1,
    "etcl/triplets": 1,
    "mural/align-base": 1,
    "mural/align-en": 1,
    "mural/align-l2": 1,
    "mural/align-translate-train": 1,
    "mural/base": 1,
    "mural/finetune-co-captions": 1,
    "mural/finetune-multi30k-coco": 1,
    "mural/finetune-wit": 1,
    "mural/from-align": 1,
    "mural/large": 1,
}


def test_the_recipes_of_the_papers_name_lamb_and_no_others_do(tmp_path):
    found = {}
    for path in sorted(RECIPES.rglob("*.yaml")):
        recipe = load_recipe(path)
        named = [(recipe.training | stage.training).get("optim") for stage in recipe.all_stages]
        if "lamb" in named:
            assert set(named) == {"lamb"}, path
            found[path.relative_to(RECIPES).with_suffix("").as_posix()] = len(named)
    assert found == LAMB
    assert ContrastiveTrainingArguments(str(tmp_path), use_cpu=True).optim == TrainingArguments(str(tmp_path)).optim
