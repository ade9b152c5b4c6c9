import gzip
import os
import zipfile

import pytest
from datasets import Dataset

from babelens.data import load_bitext, translation_pairs
from babelens.data.readers.bitext import is_bitext
from babelens.utils.errors import BabelensError, CorpusError, LanguageTagError

GERMAN = ["eine Katze", "ein Hund", "ein Pferd"]
ENGLISH = ["a cat", "a dog", "a horse"]
SCORES = ["1.21", "1.05", "1.03"]
EXPECTED = [{"de": german, "en": english} for german, english in zip(GERMAN, ENGLISH, strict=True)]


def lines(texts):
    return "".join(f"{text}\n" for text in texts).encode()


def table(folder, name="WikiMatrix.de-en.tsv.gz", rows=None):
    rows = rows or ["\t".join(row) for row in zip(SCORES, GERMAN, ENGLISH, strict=True)]
    (folder / name).write_bytes(gzip.compress(lines(rows)) if name.endswith(".gz") else lines(rows))
    return folder / name


def moses(folder):
    for side, column in {"de": GERMAN, "en": ENGLISH, "scores": SCORES}.items():
        (folder / f"CCMatrix.de-en.{side}").write_bytes(lines(column))
    return folder / "CCMatrix.de-en"


def archive(folder):
    texts = {"en": lines(ENGLISH), "de": lines(GERMAN), "xml": "<alignments/>", "scores": lines(SCORES)}
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {"README": "OPUS", **{f"CCMatrix.de-en.{side}": texts[side] for side in texts}}.items():
            file.writestr(name, content)
    return folder / "de-en.txt.zip"


def texts(corpus):
    return [{caption["language"]: caption["text"] for caption in row["captions"]} for row in corpus]


@pytest.mark.parametrize("write", [table, moses, archive])
def test_each_published_form(write, tmp_path):
    source = write(tmp_path)
    assert texts(load_bitext(source)) == EXPECTED
    view = translation_pairs(load_bitext(str(source)), [("en", "de")])
    assert [(example["text_a"], example["language_b"]) for example in view] == [(text, "de") for text in ENGLISH]
    assert is_bitext(str(source))


def test_a_dataset_is_written_once_for_the_same_files_and_options(tmp_path):
    source = archive(tmp_path)
    rows = load_bitext(source, min_score=1.04, streaming=False)
    assert isinstance(rows, Dataset) and texts(rows) == EXPECTED[:2]
    assert load_bitext(source, min_score=1.04, streaming=False).cache_files == rows.cache_files
    assert texts(load_bitext(source, streaming=False)) == EXPECTED
    time = source.stat().st_mtime_ns + 1
    os.utime(source, ns=(time, time))
    assert load_bitext(source, min_score=1.04, streaming=False).cache_files != rows.cache_files


def test_scores_below_the_least_are_left_out(tmp_path, caplog):
    caplog.set_level("INFO", logger="babelens")
    assert texts(load_bitext(archive(tmp_path), min_score=1.04)) == EXPECTED[:2]
    assert "read 2 of 3 rows; left out 1 with a score below 1.04" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]  # it was asked for


def test_empty_and_long_texts_are_counted_and_named(tmp_path, caplog):
    pairs = ["eine Katze\ta cat", "\ta dog", "ein Hund\t ", f"{'x' * 10_001}\tlong", "ein Pferd\ta horse"]
    rows = [f"1.1\t{pair}" for pair in pairs]
    assert texts(load_bitext(table(tmp_path, rows=rows))) == [EXPECTED[0], EXPECTED[2]]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "read 2 of 5 rows; left out 2 with an empty text (line 2, line 3)" in caplog.text
    assert "1 with a text longer than 10,000 characters (line 4)" in caplog.text


def test_files_are_read_by_turns_in_proportion_to_their_sizes(tmp_path):
    for pair, count in {"de-en": 300, "en-fr": 100}.items():
        rows = [f"1.1\t{pair} source {row:04}\t{pair} target {row:04}" for row in range(count)]
        table(tmp_path, f"WikiMatrix.{pair}.tsv", rows)
    corpus = load_bitext(tmp_path / "*.tsv")
    languages = ["de" in row for row in texts(corpus)]
    assert sum(languages) == 300 and len(languages) == 400
    assert all(70 <= sum(languages[start : start + 100]) <= 80 for start in range(0, 400, 100))
    assert texts(corpus) == texts(corpus)
    assert corpus.num_shards == 1 and load_bitext(tmp_path / "*.tsv", shards=2).num_shards == 2


def test_only_files_of_the_languages_are_read(tmp_path):
    table(tmp_path)
    (tmp_path / "WikiMatrix.en-fr.tsv.gz").write_bytes(b"damaged, and never opened")
    assert texts(load_bitext(tmp_path, languages=["DE", "en"])) == EXPECTED
    with pytest.raises(CorpusError, match="no file has two of en, sw; there are de-en; en-fr"):
        load_bitext(tmp_path, languages=["en", "sw"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.de-en.tsv.gz", b"1.1\teine Katze\n", r"x\.de-en\.tsv\.gz line 1: 2 cells, where two texts"),
        ("x.de-en.tsv.gz", b"1.1\ta\tb\nde\ten\tfr\n", r"x\.de-en\.tsv\.gz line 2: 'de' is not a score"),
        ("x.de-en.tsv.gz", b"1.1\ta\t\xff\n", r"x\.de-en\.tsv\.gz line 1: not UTF-8"),
        ("x.tmx", b"<tmx/>", r"x\.tmx: .*\.tsv"),
        ("x.zip", b"no archive", r"x\.zip: "),
    ],
)
def test_files_of_another_form_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(BabelensError, match=message) as caught:
        list(load_bitext(tmp_path))
    assert isinstance(caught.value, CorpusError | LanguageTagError)


def test_texts_of_different_lengths_are_refused(tmp_path):
    source = moses(tmp_path)
    (tmp_path / "CCMatrix.de-en.en").write_bytes(lines(ENGLISH[:2]))
    with pytest.raises(CorpusError, match=r"CCMatrix\.de-en\.en ends before line 3"):
        list(load_bitext(source))
