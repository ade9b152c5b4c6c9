"""Machine translation before training (`translate` in a recipe) and before the search (`--translate-test`)."""

import copy
import json
import runpy
from pathlib import Path

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.data.corpus.corpus import languages_of
from babelens.data.corpus.loading import load_captions
from babelens.evaluation import evaluate_retrieval
from babelens.inference import Embedder, Seq2SeqTranslator
from babelens.training.base import RecipeRun
from babelens.training.loading import load_recipe
from babelens.utils.errors import RecipeError
from tests.support.tiny_recipes import mural, smalr
from tests.support.tiny_training import write_shapes
from tests.support.translation_models import save_nllb


@pytest.fixture(scope="module", autouse=True)
def translations(tmp_path_factory):
    """Translations are kept here."""
    with pytest.MonkeyPatch.context() as patched:
        folder = tmp_path_factory.mktemp("translations")
        patched.setattr("babelens.inference.translation_cache.DEFAULT_CACHE", folder)
        yield folder


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    return save_nllb(tmp_path_factory.mktemp("nllb"))


# ---- Before the search ----


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    lines = []
    for n in range(6):
        Image.new("RGB", (20, 20), (40 * n, 255 - 40 * n, 10)).save(folder / f"{n}.png")
        lines.append(
            {"file_name": f"{n}.png", "captions": {"en": [f"number {n}"], "de": [f"nummer {n}", f"bild {n}"]}}
        )
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_recall_with_and_without_translation_and_its_time(run, model, photos, nllb, translations, tmp_path):
    options = ("--data", photos, "--translator", nllb, "--output", tmp_path / "photos.json")
    report = json.loads(run("evaluate", "captions", model, *options, "--json").stdout)
    corpus, embedder = load_captions(photos), Embedder.from_pretrained(model)
    assert report["recalls"] == evaluate_retrieval(embedder, corpus, ["de", "en"])
    german = report["translate_test"]["de"]
    assert german["untranslated"] == report["recalls"]["de"] and report["translate_test"]["en"]["translated"] is None
    assert german["gain"]["mean_recall"] == german["translated"]["mean_recall"] - german["untranslated"]["mean_recall"]
    assert len(list(translations.glob("*.sqlite"))) == 1 and (tmp_path / "photos.ranks.npz").is_file()
    shown = run("evaluate", "captions", model, *options).stdout
    seconds = german["seconds_per_1000_texts"]["translation"]
    assert "translated into en" in shown and f"{seconds:.2f}" in shown  # as it was when they were translated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--translator", "nothing-here"], "nothing-here"),
        (["--translator", "MODEL"], "AutoModelForSeq2SeqLM"),
    ],
)
def test_a_translator_that_cannot_be_used(run, model, photos, nllb, options, message):
    given = [{"MODEL": model, "NLLB": nllb}.get(option, option) for option in options]
    shown = run("evaluate", "captions", model, "--data", photos, *given, code=2).output
    assert message in " ".join(shown.replace("│", " ").split())


# ---- Before training ----


@pytest.fixture(scope="module")
def content(tmp_path_factory, nllb):
    """MURAL on captions in English and German, the English ones also in Spanish and Czech by translation."""
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))
    content = mural(folder)
    content["train"] = {"image_text": content["train"]["image_text"]}
    content["train"]["image_text"] |= {
        "languages": ["en", "es", "cs"],
        "translate": {"model": str(nllb), "from": "en", "to": ["es", "cs"]},
    }
    return content


def prepared(content, folder, **translate):
    content = copy.deepcopy(content)
    content["train"]["image_text"]["translate"] |= translate
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_captions_are_translated_before_training_and_the_card_says_so(content, nllb, tmp_path):
    file = prepared(content, tmp_path)
    result = CliRunner().invoke(app, ["train", str(file), "--output", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    corpus = RecipeRun(load_recipe(file), tmp_path / "again", "").data.corpora["image_text"]
    languages = languages_of(corpus)
    assert languages.keys() == {"en", "de", "es", "cs"} and len(set(languages.values())) == 1
    row = {caption["language"]: caption["text"] for caption in corpus["captions"][0]}
    translator = Seq2SeqTranslator.from_pretrained(nllb, device="cpu")
    assert row["cs"] == translator.translate([row["en"]], "en", "cs")[0]
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert f"translated by machine from en into es, cs ({nllb.name})" in card


def test_models_of_one_pair_each(content, nllb, tmp_path):
    run = RecipeRun(load_recipe(prepared(content, tmp_path, model={"es": str(nllb), "CS": str(nllb)})), tmp_path, "")
    assert {"es", "cs"} < languages_of(run.data.corpora["image_text"]).keys()


def test_captions_are_translated_between_languages_that_have_some(tmp_path):
    """As SMALR's data are (Burns et al. 2020, table 4), from a file of translations."""
    rows = [{"captions": {"en": [f"a dot {n}", f"a spot {n}"], "de": [f"ein Punkt {n}"]}} for n in range(16)]
    (tmp_path / "photos").mkdir()
    for n, row in enumerate(rows):
        row["file_name"] = f"{n}.png"
        Image.new("RGB", (8, 8), (n, n, n)).save(tmp_path / "photos" / row["file_name"])
    (tmp_path / "photos" / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = [
        f"{text} {n}\t{text} auf Deutsch {n}\t{text} en français {n}"
        for n in range(16)
        for text in ("a dot", "a spot")
    ]
    table += [f"a point {n}\tein Punkt {n}\t" for n in range(16)]
    (tmp_path / "table.tsv").write_text("\n".join(["en\tde\tfr", *table]))
    translate = [
        {"model": str(tmp_path / "table.tsv"), "from": "en", "to": ["de", "fr"], "everywhere": True},
        {"model": str(tmp_path / "table.tsv"), "from": "de", "to": ["en"], "everywhere": True},
    ]
    source = {"source": str(tmp_path / "photos"), "translate": translate}
    content = smalr(tmp_path) | {
        "train": {"text_text": source, "image_text": source | {"languages": ["en", "de", "fr"]}}
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
    captions = RecipeRun(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "run", "").data.corpora["image_text"][3][
        "captions"
    ]
    found = {tag: [c["text"] for c in captions if c["language"] == tag] for tag in ("en", "de", "fr")}
    assert found == {
        "en": ["a dot 3", "a spot 3", "a point 3"],
        "de": ["ein Punkt 3", "a dot auf Deutsch 3", "a spot auf Deutsch 3"],
        "fr": ["a dot en français 3", "a spot en français 3"],
    }


def test_data_are_written_with_translations_in_the_place_of_captions(tmp_path):
    """As captions to ask with (Burns et al. 2020, table 17)."""
    (tmp_path / "photos").mkdir()
    write_shapes(tmp_path / "photos", captioned=("en", "de"))
    english = [
        c["text"] for row in load_captions(tmp_path / "photos")["captions"] for c in row if c["language"] == "en"
    ]
    table = tmp_path / "table.tsv"
    table.write_text("\n".join(["en\tde\tfr", *(f"{text}\tzu {text}\tà {text}" for text in dict.fromkeys(english))]))
    translate = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "translate_captions.py"))["main"]
    given = [str(tmp_path / "photos"), str(table), "--targets", "de,fr"]
    translate([*given, "--output", str(tmp_path / "added")])
    translate([*given, "--replace", "--output", str(tmp_path / "replaced")])
    found = {name: load_captions(tmp_path / name)[0]["captions"] for name in ("added", "replaced")}
    texts = {name: {c["language"]: c["text"] for c in captions} for name, captions in found.items()}
    assert texts["replaced"] == {"en": english[0], "de": f"zu {english[0]}", "fr": f"à {english[0]}"}
    assert texts["added"].keys() == texts["replaced"].keys() and texts["added"]["de"] != texts["replaced"]["de"]


def test_only_languages_that_are_trained_on_are_translated_into(content, tmp_path):
    file = prepared(content, tmp_path)

    def languages(*named, stages=()):
        overrides = {"train.image_text.languages": list(named) or None, "stages": list(stages)}
        run = RecipeRun(load_recipe(file, overrides), tmp_path, "")
        return set(languages_of(run.data.corpora["image_text"]))

    assert languages("en", "cs") == {"en", "de", "cs"}
    assert languages("en") == {"en", "de"}
    assert languages() == {"en", "de", "es", "cs"}
    staged = {"name": "a", "tasks": ["image_text"], "languages": ["es"]}
    assert languages("en", stages=[staged]) == {"en", "de", "es"}


def test_validation_data_may_be_translated_and_the_card_says_so(content, nllb, tmp_path):
    file = prepared(content, tmp_path)
    overrides = {"validation.translate": {"model": str(nllb), "from": "de", "to": ["fr"]}}
    run = RecipeRun(load_recipe(file, overrides), tmp_path, "")
    assert set(languages_of(run.data.validation)) == {"en", "de", "fr"}
    assert "from de into fr" in str(run.recipe.validation.translated)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"form": "en"}, "train.image_text: unknown key translate.form; did you mean 'from'"),
        ({"from": "english"}, "translate: 'english' is not a language tag"),
        ({"to": ["en"]}, "translate.to: name other languages than en"),
        ({"to": []}, "translate.to: name other languages than en"),
        ({"to": "de"}, "translate.to"),
        ({"model": {"es": "x"}}, "translate.model: give one model, or one for each of es, cs"),
        ({"batch_size": 0}, "translate.batch_size must be at least 1"),
        ({"model": "nothing-here"}, "train.image_text.translate: .*nothing-here"),
        ({"from": "ja"}, "train.image_text.translate: no captions in ja to translate"),
    ],
)
def test_wrong_keys(content, tmp_path, changed, message):
    with pytest.raises(RecipeError, match=message):
        RecipeRun(load_recipe(prepared(content, tmp_path, **changed)), tmp_path / "run", "").train()


def test_a_language_that_the_model_does_not_translate(content, tmp_path):
    recipe = load_recipe(prepared(content, tmp_path, to=["es", "la"]), {"train.image_text.languages": None})
    message = r"train.image_text.translate: this translation model has no token for 'la'"
    with pytest.raises(RecipeError, match=message):
        RecipeRun(recipe, tmp_path / "run", "").train()


def test_a_translation_without_a_target_is_refused(content, tmp_path):
    without = copy.deepcopy(content)
    del without["train"]["image_text"]["translate"]["to"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(without))
    with pytest.raises(RecipeError, match=r"translate.to is missing"):
        load_recipe(tmp_path / "recipe.yaml")
