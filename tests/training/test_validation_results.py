import pytest

from babelens.evaluation.results import read_results
from tests.support.results import numbers_of
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_recipes import liwe, mla, recipe_run, student
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    saved(tiny_clip(), folder / "clip")
    return folder


def validated(content, folder, output):
    run = recipe_run(content | {"validation": {"source": str(folder)}}, output)
    run.report(run.train())
    return numbers_of(output / "run")


@pytest.mark.parametrize("make", [mla, liwe])
def test_every_language_that_the_model_reads_is_evaluated(make, folder, tmp_path):
    assert list(validated(make(folder), folder, tmp_path)) == ["de", "en", "fr"]
    assert {each.n for each in read_results(tmp_path / "run") if each.metric == "t2i_r1"} == {16}
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Measured by `babelens train recipe.yaml`" in card
    assert "during its training" not in card  # which had no evaluations


def test_validation_that_was_trained_on_is_counted_in_log_and_card(folder, tmp_path, caplog):
    content = mla(folder)
    content["train"] |= {"text_text": {"source": str(folder / "pairs.tsv")}, "image_text": {"source": str(folder)}}
    validated(content, folder, tmp_path)
    images = "16 of the 16 held-out images are also in the training data"
    texts = "48 of the 48 held-out texts are also in the training data"
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    run = tmp_path / "run"
    for sentence in (images, texts):
        assert any(sentence in message for message in warned)
        assert sentence in (run / "README.md").read_text(encoding="utf-8")


def test_a_student_is_evaluated_in_languages_that_it_was_not_trained_on(folder, tmp_path, caplog):
    content = student(folder)
    content["model"]["overrides"] = content["model"].get("overrides", {}) | {"languages": ["de"]}
    content["train"]["text_text"]["pairs"] = {"from": ["de"], "to": ["en"]}
    assert list(validated(content, folder, tmp_path)) == ["de", "en", "fr"]
    assert "does not read" not in caplog.text
    assert "| fr | nothing |" in (tmp_path / "run" / "README.md").read_text()
