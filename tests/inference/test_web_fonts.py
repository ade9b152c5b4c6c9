"""The parts of fonts that a page brings, from a package as Fontsource publishes it; nothing is fetched."""

import io
import json
import tarfile

import pytest

from babelens.data.npm import Package, file_integrity, tarball_of
from babelens.inference import lettering as module
from babelens.inference.lettering import web_fonts

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
