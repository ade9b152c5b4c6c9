"""Bilingual dictionaries: which words they map, and what is refused."""

import gzip

import pytest

from babelens.processing.word_vectors import dictionary_words
from babelens.utils.errors import InputError

MUSE = "Hund dog\nhund hound\nkatze cat\nkatze kitty\nhaus house\nroß steed\n"


@pytest.fixture
def dictionary(tmp_path):
    def write(content, name="de-en.txt"):
        path = tmp_path / name
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return write


@pytest.mark.parametrize("name", ["de-en.txt", "de-en.txt.gz"])
def test_the_first_known_translation_counts(dictionary, name):
    path = dictionary(MUSE, name)
    words = ["katze", "ross", "maus", "hund"]
    found = dictionary_words(path, words, "de", ["dog", "hound", "kitty", "steed"], "en")
    # folded as vocabularies are: Hund is hund, and Roß is ross
    assert list(found.items()) == [("katze", "kitty"), ("ross", "steed"), ("hund", "dog")]
    assert dictionary_words(path, ["hund"], "de", ["tree"], "en") == {}


def test_tabs_divide_entries_of_several_words(dictionary):
    path = dictionary("\ufeffrotes Auto\tred car\r\nrot\tred\n")
    assert dictionary_words(path, ["rot", "auto"], "de", ["red", "car"], "en") == {"rot": "red"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("hund dog\nkatze\n", r"de-en\.txt, line 2: 'katze' is not a word and its translation"),
        ("hund\tdog\tnoun\n", r"line 1: 'hund\\tdog\\tnoun' is not"),
        ("", "the file has no words"),
    ],
)
def test_broken_dictionaries_are_refused_with_file_and_line(dictionary, content, complaint):
    with pytest.raises(InputError, match=complaint):
        dictionary_words(dictionary(content), ["hund"], "de", ["dog"], "en")


def test_missing_and_cut_files_are_refused_by_name(dictionary, tmp_path):
    with pytest.raises(InputError, match=r"fr-en\.txt: no such file"):
        dictionary_words(tmp_path / "fr-en.txt", [], "fr", [], "en")
    cut = dictionary(MUSE * 99, "de-en.txt.gz")
    cut.write_bytes(cut.read_bytes()[:40])
    with pytest.raises(InputError, match=r"de-en\.txt\.gz: "):
        dictionary_words(cut, [], "de", [], "en")
