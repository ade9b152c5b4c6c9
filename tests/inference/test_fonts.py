"""The parts of fonts that a page brings, from a package as Fontsource publishes it; nothing is fetched."""

import io
import json
import logging
import os
import sys
import tarfile

import pytest

from babelens.data.npm import Package, file_integrity, tarball_of
from babelens.inference import fonts as module
from babelens.inference.fonts import code_ranges, fetch_fonts, script_of, web_fonts

FILES = {
    "unicode.json": json.dumps({"[0]": "U+0600-06FF", "arabic": "U+0627,U+0660", "latin": "U+0000-00FF"}).encode(),
    "files/noto-sans-x-0-wght-normal.woff2": b"first",
    "files/noto-sans-x-arabic-wght-normal.woff2": b"second",
    "files/noto-sans-x-latin-wght-normal.woff2": b"third",
    "files/noto-sans-x-latin-wght-italic.woff2": b"slanted",
}


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder with one package, and the list of fonts that names it."""
    entry = {"package": "@fonts/noto-sans-x", "version": "1.0.0", "scripts": ["Arab"]}
    tarball = tarball_of(Package(entry["package"], entry["version"], ""), tmp_path)
    with tarfile.open(tarball, "w:gz") as archive:
        for name, data in FILES.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    fonts = tmp_path / "fonts.json"
    fonts.write_text(json.dumps([entry | {"integrity": file_integrity(tarball)}]))
    monkeypatch.setattr(module, "FONTS", fonts)
    return tmp_path


def test_a_page_gets_no_more_files_than_its_texts_need(packages):
    (font,) = web_fonts([("باب", "ar"), ("car", "en"), ("дом", "ru"), ("ا", "fa")], packages)
    assert font.languages == ["ar", "fa"]
    assert sorted(font.files) == [(b"first", "U+0600-06FF"), (b"second", "U+0627,U+0660")]
    (alone,) = web_fonts([("ا", "ar")], packages)  # as in style sheets, the last file for a letter is taken
    assert alone.files == [(b"second", "U+0627,U+0660")]
    assert web_fonts([("car", "ar"), ("赤", "ja")], packages) == []


def test_a_package_that_is_missing_or_damaged_is_left_out(packages, tmp_path):
    assert web_fonts([("باب", "ar")], tmp_path / "elsewhere") == []
    (tarball,) = packages.glob("*.tgz")
    tarball.write_bytes(tarball.read_bytes()[:-9])
    assert web_fonts([("باب", "ar")], packages) == []


@pytest.mark.parametrize(
    ("language", "script"),
    [
        ("de", "Latn"),
        ("ja", "Jpan"),
        ("zh", "Hans"),
        ("zh-TW", "Hant"),
        ("sr-Latn", "Latn"),
        ("fa", "Arab"),
        ("hi", "Deva"),
    ],
)
def test_scripts(language, script):
    assert script_of(language) == script


def test_fonts_that_cannot_be_fetched_are_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "npm").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('ENOTFOUND')\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with caplog.at_level(logging.WARNING):
        fetch_fonts(["ja", "am"], tmp_path / "packages")
    messages = [record.message for record in caplog.records]
    assert "no font for the script Ethi: the system must have one" in messages
    assert any(message.startswith("no font for the script Jpan") and "ENOTFOUND" in message for message in messages)


@pytest.mark.data
def test_fetched_fonts_have_the_letters_of_the_benchmarks_languages(tmp_path):
    """Every name of the benchmark in the languages of its published numbers can be read."""
    from babelens.configuration.defaults import BENCHMARK_LANGUAGES
    from babelens.data.emoji.benchmark import load_emoji

    languages = [language for group in BENCHMARK_LANGUAGES.values() for language in group]
    fetch_fonts(languages, tmp_path)
    names = [each for row in load_emoji(vendors="noto", languages=languages)["captions"] for each in row]
    texts = [(each["text"], each["language"]) for each in names]
    fonts = web_fonts(texts, tmp_path)
    for language in languages:
        has = [
            part
            for font in fonts
            if language in font.languages
            for _, codes in font.files
            for part in code_ranges(codes)
        ]
        letters = {letter for text, tag in texts if tag == language for letter in text if ord(letter) >= 0x0530}
        assert not [letter for letter in letters if letter.isalpha() and not any(ord(letter) in part for part in has)]
