import re
import shlex
import sys
from pathlib import Path

from babelens.data.readers.published import PUBLISHED
from babelens.training.recipe_file import parse
from babelens.training.schema import load_recipe
from tests.support.recipe_world import NAMES

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
try:
    from experiments_page import PAGE, experiments_page, read_table
finally:
    sys.path.pop(0)

TABLE = read_table()
ROWS = [(paper["name"], row) for paper in TABLE["papers"] for row in paper["rows"]]
# `unread` are sources of its recipes that the settings in `how` take away.
KEYS = {"table", "row", "recipes", "how", "data", "none", "unread"}
OWN_RECIPES = {"mla/adapter", "mla/student"}  # for a file of translations, of no paper
FOLDERS = ("mural", "etcl", "mla", "rc3", "smalr")
# `features` and `translate_captions.py` write these.
OWN_FILES = {"data/multi30k-train", "data/coco-train", "data/cc12m-translated"}


def sources_of(name):
    recipe = load_recipe(name)
    tests = getattr(recipe, "test", None) or {}
    found = set()
    for source in [*recipe.train.values(), *tests.values()]:
        parts = source.options["sources"] if source.source == "several" else [{"source": source.source}]
        found |= {part["source"] for part in parts}
    return found


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == experiments_page()


def test_a_row_names_recipes_and_the_data_that_they_read():
    for paper, row in ROWS:
        shown = paper, row["table"], row["row"]
        assert ("recipes" in row) != ("none" in row) and row.keys() <= KEYS, shown
        if "none" in row:
            assert row["none"] in TABLE["reasons"], shown
            continue
        assert set(row["recipes"]) <= set(NAMES), shown
        facts = [TABLE["data"][key] for key in row["data"]]
        readable = {source for each in facts for source in (*each.get("sources", ()), *each.get("stand_in", ()))}
        read = {source for name in row["recipes"] for source in sources_of(name)} - OWN_FILES
        assert read - {*row.get("unread", ())} <= readable, shown


def test_every_recipe_of_a_paper_trains_a_row():
    trained = {name for _, row in ROWS for name in row.get("recipes", ())}
    assert {name for name in NAMES if name.partition("/")[0] in FOLDERS} - OWN_RECIPES == trained


def test_data_are_had_or_not_for_a_known_reason():
    for facts in TABLE["data"].values():
        assert facts["state"] in TABLE["states"]
        tasks = {"xvnli", "xgqa", "marvl", "nlvr2", "xflickrco"}
        assert {*facts.get("sources", ()), *facts.get("stand_in", ())} <= PUBLISHED.keys() | tasks
        assert facts["state"] == "unpublished" or "stand_in" not in facts


def settings_of(row):
    return re.findall(r"`([^`]*--set [^`]*)`", row.get("how", ""))


def test_settings_that_the_table_names_are_those_of_its_recipes():
    for _, row in ROWS:
        for code in settings_of(row):
            pairs = (word.split("=", 1) for word in shlex.split(code) if word != "--set")
            assert load_recipe(row["recipes"][-1], {key: parse(value) for key, value in pairs})
