"""Single keys of a recipe that are set beside its file, as by the option --set."""

import pytest

from babelens.configuration.errors import RecipeError
from babelens.workflows.loading import load_recipe
from babelens.workflows.recipe_file import with_key


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


@pytest.mark.parametrize(
    ("stages", "key", "message"),
    [
        ([{"name": "one"}, 1], "stages.one.training", r"stages.one.training: stages is .*, which has no keys"),
        ([{"name": "one"}, {}], "stages.one.training", r"stages.one.training: stages is .*, which has no keys"),
        ([], "stages.one.training", r"stages.one.training: stages is \[\], which has no keys"),
        ([{"name": "one"}, {"name": "two"}], "stages.0.tasks", r"look like stages.one.KEY; known names: one, two$"),
        (
            [{"name": "one"}],
            "stages.one",
            "stages.one: the keys of stages look like stages.one.KEY; known names: one$",
        ),
        (
            [{"name": "one", "tasks": 1}],
            "stages.one.tasks.x",
            "stages.one.tasks.x: stages.one.tasks is 1, which has no",
        ),
    ],
)
def test_a_key_that_names_no_stage_is_refused(stages, key, message):
    with pytest.raises(RecipeError, match=message):
        with_key({"stages": stages}, key, {})
