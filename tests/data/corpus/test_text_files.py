"""Text files: where a line ends, and what is refused with its number."""

import gzip

import pytest

from babelens.data.corpus import text_files
from babelens.data.corpus.tables import tsv_records
from babelens.data.corpus.text_files import parse_json, parse_object, read_lines, read_texts
from babelens.utils.errors import CorpusError, LanguageTagError

# All that `str.splitlines` takes for the end of a line, but line feeds and carriage returns.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def written(file, content):
    data = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def test_a_line_ends_at_a_line_feed_alone(tmp_path):
    texts = [f"one{separator}text" for separator in SEPARATORS] + [" spaces stay ", "last"]
    file = written(tmp_path / "a.txt.gz", "\ufeff" + "\r\n".join(texts))
    assert read_texts(file) == texts
    assert list(read_lines(file)) == list(enumerate(texts, 1))


def test_damaged_archives_are_refused(tmp_path):
    whole = gzip.compress(b"some text\n" * 1000)
    for content in (b"no gzip", whole[:-10], whole[:20] + b"\0\0\0\0" + whole[24:]):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(CorpusError, match=r"a\.gz after line \d+: "):
            list(read_lines(tmp_path / "a.gz"))


def test_a_line_that_decompresses_to_more_than_a_line_may_have(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_BYTES", 1000)
    file = written(tmp_path / "a.gz", b"fine\n" + b"x" * 998 + b"\n" + b"x" * 1000)
    lines = read_lines(file)
    assert [len(text) for _, text in (next(lines), next(lines))] == [4, 998]
    with pytest.raises(CorpusError, match=r"a\.gz line 3: more than the 1,000 bytes"):
        next(lines)


def test_json_that_is_nested_too_deeply_or_is_not_an_object_is_refused():
    for depth in (33, 100_000):
        with pytest.raises(CorpusError, match="nested more than 32 deep"):
            parse_json("[" * depth + "1" + "]" * depth)
    assert parse_json("[" * 32 + "1" + "]" * 32)
    for text, message in (("[1]", "object"), ('{"a": 1, "a": 2}', "'a' is given twice"), ("{", "unusable JSON")):
        with pytest.raises(CorpusError, match=message):
            parse_object(text)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("en\tuk\na cat;кіт\n".encode(), "line 2: 1 of 2 cells.*tabs"),
        ("en\tuk\na cat\tкіт\n".encode("cp1251"), "not UTF-8 .*save the file as UTF-8"),
        ("English\tuk\na cat\tкіт\n".encode(), "column 1 of the header: 'English'"),
    ],
)
def test_errors_of_tables_say_what_to_do(data, reason, tmp_path):
    (tmp_path / "pairs.tsv").write_bytes(data)
    with pytest.raises((CorpusError, LanguageTagError), match=reason):
        list(tsv_records(tmp_path / "pairs.tsv"))
