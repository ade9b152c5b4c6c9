import runpy
from pathlib import Path

import pytest

from babelens.data import languages_of, load_captions
from tests.support.image_sources import write_captioned
from tests.support.tiny_recipes import mural, recipe_run
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    content = mural(write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de")))
    content["train"]["image_text"] |= {"languages": ["en"], "translations": "text_text"}
    del content["train"]["text_text"]["pairs"]
    return content


def trained_on(run):
    view = run.data.task_data("image_text", run.recipe.all_stages[0])
    return set(languages_of(view.corpus)) if view.languages is None else set(view.languages)


def test_captions_get_their_translations_and_the_card_says_so(run, content, tmp_path):
    given = recipe_run(content, tmp_path)
    assert trained_on(given) == {"en", "de", "fr"} == set(given.data.image_languages)
    assert given.data.pair_languages == []
    count = given.data.count_examples("image_text", given.recipe.all_stages[0])
    assert count == 3 * len(given.data.corpora["image_text"])
    run("train", tmp_path / "recipe.yaml", "--output", tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert "images and captions, with translations of" in card and "pairs.tsv" in card


def test_a_stage_may_take_some_of_the_languages(content, tmp_path):
    stages = [{"name": "a", "tasks": ["image_text"], "languages": ["de"]}]
    run = recipe_run(content | {"stages": stages}, tmp_path)
    assert trained_on(run) == {"de"} == set(run.data.image_languages)


def test_a_stream_of_captions(content, tmp_path):
    settings = {"train.image_text.options": {"streaming": True}, "tokenizer.languages": None}
    run = recipe_run(content, tmp_path, settings=settings)
    rows = list(run.data.corpora["image_text"].take(2))
    assert [{c["language"] for c in row["captions"]} for row in rows] == [{"en", "de", "fr"}] * 2
    assert set(run.data.languages_of_task("image_text")) == {"en", "de", "fr"}
    settings["train.text_text.pairs"] = [["en", "de"], ["de", "fr"]]
    run = recipe_run(content, tmp_path, settings=settings)
    assert set(run.data.image_languages) == {"en", "de"} and run.data.pair_languages == ["fr"]


def test_captions_are_translated_between_languages_that_have_some(tmp_path):
    """SMALR's data are made so (Burns et al. 2020, table 4), from a file of translations."""
    translate = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "translate_captions.py"))["main"]
    rows = [{"captions": {"en": [f"a dot {n}", f"a spot {n}"], "de": [f"ein Punkt {n}"]}} for n in range(4)]
    write_captioned(tmp_path / "photos", rows)
    table = [f"{en} {n}\t{en} auf Deutsch {n}\t{en} en français {n}" for n in range(4) for en in ("a dot", "a spot")]
    table += [f"a point {n}\tein Punkt {n}\t" for n in range(4)]
    (tmp_path / "table.tsv").write_text("\n".join(["en\tde\tfr", *table]))
    given = [str(tmp_path / "photos"), str(tmp_path / "table.tsv"), "--translate", "en:de,fr"]
    translate([*given, "--translate", "de:en", "--everywhere", "--output", str(tmp_path / "everywhere")])
    translate([*given, "--output", str(tmp_path / "missing")])
    translate([*given, "--replace", "--output", str(tmp_path / "replaced")])

    def found(name):
        captions = load_captions(tmp_path / name)[3]["captions"]
        return {tag: [each["text"] for each in captions if each["language"] == tag] for tag in ("en", "de", "fr")}

    english, german = ["a dot 3", "a spot 3"], ["a dot auf Deutsch 3", "a spot auf Deutsch 3"]
    french = ["a dot en français 3", "a spot en français 3"]
    everywhere = {"en": [*english, "a point 3"], "de": ["ein Punkt 3", *german], "fr": french}
    assert found("everywhere") == everywhere
    assert found("missing") == {"en": english, "de": ["ein Punkt 3"], "fr": french}
    assert found("replaced") == {"en": english, "de": german, "fr": french}
