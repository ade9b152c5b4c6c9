"""`babelens evaluate texts`, with a dual encoder and with a text encoder."""

import json

import pytest
from tiny_text_encoders import saved_encoder

from babelens.configuration.errors import SaveError
from babelens.configuration.locks import locked_path

ROWS = [("ein Hund", "a dog", 4.0), ("zwei Katzen", "two cats", 5.0), ("ein Ball", "a red car", 0.5)]


@pytest.fixture
def similarity(tmp_path):
    lines = ["text_a\tlanguage_a\ttext_b\tlanguage_b\tscore", *(f"{a}\tde\t{b}\ten\t{score}" for a, b, score in ROWS)]
    (tmp_path / "sts.tsv").write_text("\n".join(lines))
    return tmp_path / "sts.tsv"


@pytest.fixture
def pairs(tmp_path):
    (tmp_path / "pairs.tsv").write_text("\n".join(["de\ten\tfr", *(f"{a}\t{b}\t{a} {b}" for a, b, _ in ROWS)]))
    return tmp_path / "pairs.tsv"


def letters(output):
    """What an error in a box says, whose lines break where the path of a folder makes them."""
    return "".join(filter(str.isalnum, output))


def test_similarity(run, model, similarity, tmp_path):
    shown = run("evaluate", model, "--texts", similarity, "--output", tmp_path / "out.json").output
    assert "similarity" in shown and "spearman" in shown and "de-en" in shown
    results = json.loads((tmp_path / "out.json").read_text())
    assert results["de-en"]["n_pairs"] == 3 and -100 <= results["de-en"]["spearman"] <= 100


def test_results_that_another_command_writes(run, model, similarity, tmp_path):
    """The second of two commands with one file stops at once, and the first one keeps it."""
    command = ("evaluate", model, "--texts", similarity, "--output", tmp_path / "new" / "out.json")
    with locked_path(tmp_path / "new" / "out.json"):
        refused = run(*command, code=1).exception
        assert isinstance(refused, SaveError) and "out.json is in use by process" in str(refused)
    assert not (tmp_path / "new").exists()
    run(*command)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.json"]


def test_translations_of_chosen_languages(run, model, pairs):
    results = json.loads(run("evaluate", model, "--texts", pairs, "--languages", "de,en", "--json").stdout)
    assert list(results) == ["de-en", "en-de"] and results["de-en"]["n_texts"] == 3
    assert len(json.loads(run("evaluate", "texts", model, "--texts", pairs, "--json").stdout)) == 6


def test_models_are_compared_text_by_text(run, model, pairs, tmp_path):
    saved_encoder("bert", tmp_path / "bert")
    results = [tmp_path / "clip.json", tmp_path / "bert.json"]
    run("evaluate", model, "--texts", pairs, "--output", results[0])
    run("evaluate", tmp_path / "bert", "--texts", pairs, "--output", results[1], "--text-pooling", "mean")
    before, after = (json.loads(path.read_text()) for path in results)
    compared = json.loads(run("compare", *results, "--format", "json").stdout)
    of = {(each["language"], each["metric"]): each for each in compared if each["run"] == "bert"}
    for pair in ("de-en", "en-de", "fr-de"):
        assert of[pair, "r1"]["difference"] == pytest.approx(after[pair]["r1"] - before[pair]["r1"])
        assert of[pair, "r1"]["p"] is not None and of[pair, "r10"]["difference"] == 0
    assert of["mean", "r1"]["difference_low"] is not None


def test_published_bitext(run, model, tmp_path):
    for language, side in (("de", 0), ("en", 1)):
        (tmp_path / f"CCMatrix.de-en.{language}").write_text("\n".join(row[side] for row in ROWS))
    results = json.loads(run("evaluate", model, "--texts", tmp_path / "CCMatrix.de-en", "--json").stdout)
    assert results["en-de"]["n_candidates"] == 3


def test_a_text_encoder(run, similarity, tmp_path):
    saved_encoder("bert", tmp_path / "bert")
    shown = run("evaluate", tmp_path / "bert", "--texts", similarity, code=2).output
    assert "choosetextpooling" in letters(shown)
    own = ("--text-pooling", "mean", "--text-prompt", "query: ")
    results = json.loads(run("evaluate", tmp_path / "bert", "--texts", similarity, *own, "--json").stdout)
    assert results["de-en"]["n_pairs"] == 3


def test_wrong_calls(run, model, similarity):
    shown = run("evaluate", model, "--texts", similarity, "--languages", "de,en", code=2).output
    assert "thisfilehasscores" in letters(shown)
    shown = run("evaluate", model, "--texts", similarity, "--text-prompt", "query: ", code=2).output
    assert "noencoderoftextsalone" in letters(shown)
