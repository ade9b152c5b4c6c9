"""`babelens evaluate texts`, with a dual encoder and with a text encoder."""

import json

import pytest
from tiny_text_encoders import saved_encoder

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


def test_translations_of_chosen_languages(run, model, pairs):
    results = json.loads(run("evaluate", model, "--texts", pairs, "--languages", "de,en", "--json").stdout)
    assert list(results) == ["de-en", "en-de"] and results["de-en"]["n_texts"] == 3
    assert len(json.loads(run("evaluate", "texts", model, "--texts", pairs, "--json").stdout)) == 6


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
