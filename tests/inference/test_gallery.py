"""Contact sheets and their letters: what is drawn where, and what happens when there are no letters."""

import logging
import os
import sys

import numpy as np
import pytest
from PIL import Image

from babelens.inference.gallery import contact_sheet
from babelens.inference.lettering import Lettering, script_of

RED = (200, 0, 0)


def image(color=RED, size=(40, 20)):
    return Image.new("RGB", size, color)


def test_a_sheet_has_a_cell_for_each_image():
    sheet = contact_sheet([image()] * 5, columns=3, cell=50)
    assert sheet.size == (3 * 58 + 8, 2 * 58 + 8)
    red = (np.asarray(sheet) == RED).all(-1)
    assert red.sum() == 5 * 50 * 25  # scaled to the width of the cell
    assert red[8 + 12 : 8 + 37, 8:58].all()  # in the middle of its height
    assert not red[66:, 124:].any()  # the sixth cell is empty
    assert contact_sheet([image()], columns=8, cell=50).width == 66


def test_labels_stand_below_their_images_and_stay_in_their_cells():
    plain, labelled = (contact_sheet([image()] * 2, labels, cell=50) for labels in (["", ""], ["0.31", "word " * 30]))
    assert plain.size == labelled.size
    drawn = (np.asarray(plain) != np.asarray(labelled)).any(-1)
    assert not drawn[: 8 + 50].any()
    assert drawn[:, :58].any()
    assert drawn[:, 66:116].any()
    assert not drawn[:, 58:66].any()
    assert not drawn[:, 117:].any()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="at least one image"):
        contact_sheet([])
    with pytest.raises(ValueError, match="2 images came with 1 labels"):
        contact_sheet([image()] * 2, ["a"])


def test_pillows_own_letters_write_english_and_know_what_they_cannot():
    lettering = Lettering()
    assert lettering.can_write("red car: “8.5” © it’s", "en")
    assert not lettering.can_write("grün", "de")
    assert not lettering.can_write("赤い車", "ja")
    assert not lettering.can_write("سيارة", "ar")


def test_a_label_without_letters_is_its_language():
    """No boxes."""
    red, blue, tag = (
        contact_sheet([image()], [label], languages=[language])
        for label, language in (("赤い車", "ja"), ("青い鳥", "ja"), ("[ja]", "en"))
    )
    assert red.tobytes() == blue.tobytes() == tag.tobytes()


def test_a_long_line_is_cut_with_an_ellipsis():
    lettering, words = Lettering(), "one two three four five six seven eight nine ten"
    line = lettering.shortened(words, "en", 16, 100)
    assert line.endswith("…") and words.startswith(line[:-1]) and lettering.length(line, "en", 16) <= 100
    assert lettering.length(line + words[len(line) :][:3], "en", 16) > 100  # no more would fit
    assert lettering.shortened("short \n line", "en", 16, 100) == "short line"


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


def test_letters_that_cannot_be_fetched_are_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "npm").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('ENOTFOUND')\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with caplog.at_level(logging.WARNING):
        lettering = Lettering.fetch(["ja", "am"], tmp_path / "packages")
    messages = [record.message for record in caplog.records]
    assert "no font for the script Ethi: its texts are shown by their language" in messages
    assert any(message.startswith("no font for the script Latn") and "ENOTFOUND" in message for message in messages)
    assert any(message.startswith("no font for the script Jpan") for message in messages)
    assert not lettering.can_write("赤い車", "ja")


@pytest.mark.data
def test_fetched_letters_write_the_benchmarks_languages(tmp_path):
    """Every name of the benchmark in the languages of its published numbers can be written."""
    from babelens.configuration.defaults import BENCHMARK_LANGUAGES
    from babelens.data.emoji.benchmark import load_emoji

    languages = [language for group in BENCHMARK_LANGUAGES.values() for language in group]
    lettering = Lettering.fetch(languages, tmp_path)
    names = [
        caption for captions in load_emoji(vendors="noto", languages=languages)["captions"] for caption in captions
    ]
    assert len(names) > 20_000
    assert not [name for name in names if not lettering.can_write(name["text"], name["language"])]
    assert not lettering.can_write("ቀይ መኪና", "am")
