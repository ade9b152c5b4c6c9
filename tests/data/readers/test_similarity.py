"""Sentence pairs with scores, as tables and JSON lines."""

import json

import pytest

from babelens.configuration.errors import BadTextError, CorpusError, LanguageTagError
from babelens.data import load_similarity
from babelens.data.readers.bitext import is_similarity_file

ROWS = [
    {"text_a": "ein Hund", "language_a": "de", "text_b": "a dog", "language_b": "en", "score": 5.0},
    {"text_a": 'zwei "Katzen"', "language_a": "de", "text_b": "a car", "language_b": "en", "score": 0.5},
]


def written(path, rows=ROWS):
    if path.suffix == ".tsv":
        lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        path.write_text("\n".join("\t".join(line) for line in lines), "utf-8")
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("name", ["sts.tsv", "sts.jsonl"])
def test_both_forms_hold_the_same(tmp_path, name):
    file = written(tmp_path / name)
    assert is_similarity_file(file)
    assert list(load_similarity(file)) == ROWS


@pytest.mark.parametrize("name", ["sts.tsv", "sts.jsonl"])
def test_one_language_for_both(tmp_path, name):
    rows = [{"score": 1, "text_a": "a", "text_b": "b", "language": "sr_latn"}]
    row = load_similarity(written(tmp_path / name, rows))[0]
    assert row == {"text_a": "a", "language_a": "sr-Latn", "text_b": "b", "language_b": "sr-Latn", "score": 1.0}


def test_translations_are_no_pairs_with_scores(tmp_path):
    (tmp_path / "pairs.tsv").write_text("de\ten\nein Hund\ta dog\n")
    (tmp_path / "pairs.jsonl").write_text('{"de": "ein Hund", "en": "a dog"}\n')
    (tmp_path / "empty.tsv").touch()
    for name in ("pairs.tsv", "pairs.jsonl", "empty.tsv", "missing.tsv", "CCMatrix.de-en"):
        assert not is_similarity_file(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"text_b": " "}, BadTextError, "'text_b' should be a text"),
        ({"score": "good"}, CorpusError, "'score' should be a number, and is 'good'"),
        ({"score": "nan"}, CorpusError, "'score' should be a number"),
        ({"language_a": "klingonish"}, LanguageTagError, "klingonish"),
        ({"language_a": ""}, CorpusError, "there is no 'language_a' and no 'language'"),
    ],
)
@pytest.mark.parametrize("name", ["sts.tsv", "sts.jsonl"])
def test_a_row_that_cannot_be_used_is_named(tmp_path, name, change, error, message):
    file = written(tmp_path / name, [ROWS[0], ROWS[1] | change])
    with pytest.raises(error, match=rf"{name} line {3 if name == 'sts.tsv' else 2}: .*{message}"):
        load_similarity(file)


def test_a_table_with_other_cells_and_a_missing_file_are_refused(tmp_path):
    file = written(tmp_path / "sts.tsv")
    file.write_text(file.read_text() + "\nshort\trow")
    with pytest.raises(CorpusError, match=r"line 4: 2 cells, where the header has 5 columns"):
        load_similarity(file)
    with pytest.raises(CorpusError, match="no such file"):
        load_similarity(tmp_path / "missing.tsv")
