"""Contact sheets, galleries and their letters: what is drawn where, and what happens when there are no letters."""

import logging
import os
import sys

import numpy as np
import pytest
from PIL import Image

from babelens.inference.gallery import GalleryRow, TextsRow, contact_sheet, retrieval_gallery
from babelens.inference.lettering import Lettering, script_of

GREEN, RED = (26, 152, 80), (200, 0, 0)


def image(color=RED, size=(40, 20)):
    return Image.new("RGB", size, color)


def row(query, language, right=(False, True, False), **more):
    return GalleryRow(query, language, [image()] * len(right), [0.5] * len(right), list(right), **more)


def ink(image: Image.Image) -> int:
    """Pixels that are not white."""
    return int((np.asarray(image) < 250).any(-1).sum())


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


def test_only_right_images_are_framed():
    gallery = np.asarray(
        retrieval_gallery([row("car", "en"), row("house", "en", right=(False, False, False))], cell=50)
    )
    assert tuple(gallery[4, 248 + 58 + 10]) == GREEN  # the frame's upper edge, above the second image
    green = (gallery == GREEN).all(-1)
    assert not green[:, : 248 + 50].any()
    assert not green[:, 248 + 2 * 58 :].any()
    assert not green[82:].any()  # no frame in the second row


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="at least one image"):
        contact_sheet([])
    with pytest.raises(ValueError, match="2 images came with 1 labels"):
        contact_sheet([image()] * 2, ["a"])
    with pytest.raises(ValueError, match="at least one query"):
        retrieval_gallery([])


def test_pillows_own_letters_write_english_and_know_what_they_cannot():
    lettering = Lettering()
    assert lettering.can_write("red car: “8.5” © it’s", "en")
    assert not lettering.can_write("grün", "de")
    assert not lettering.can_write("赤い車", "ja")
    assert not lettering.can_write("سيارة", "ar")
    assert lettering.attribution is None


def test_a_query_without_letters_is_shown_by_its_language_and_gloss():
    """No boxes: it is drawn as any other text that cannot be written, with more ink than without the gloss."""
    japanese, other = (retrieval_gallery([row(query, "ja", gloss="red car")]) for query in ("赤い車", "青い鳥"))
    assert japanese.tobytes() == other.tobytes()
    assert ink(japanese) > ink(retrieval_gallery([row("赤い車", "ja")]))
    assert ink(retrieval_gallery([row("red car", "en", gloss="red car")])) > ink(japanese)


def test_credits_are_shown_with_any_letters():
    plain, thanked = (retrieval_gallery([row("car", "en")], credits=credits) for credits in ([], ["Häußler, CC-BY"]))
    folded = retrieval_gallery([row("car", "en")], credits=["Hauler, CC-BY"])  # as far as Pillow's own letters go
    assert thanked.height > plain.height
    assert thanked.tobytes() == folded.tobytes()


def test_the_rank_of_a_right_image_that_is_not_shown():
    rows = [row("car", "en", right=(False,), rank=rank) for rank in (None, 17, 18)]
    without, seventeen, eighteen = (retrieval_gallery([each]).tobytes() for each in rows)
    assert len({without, seventeen, eighteen}) == 3
    shown = retrieval_gallery([row("car", "en", rank=2)]).tobytes()
    assert shown == retrieval_gallery([row("car", "en")]).tobytes()


def test_lines_are_broken_between_words_and_cut_with_an_ellipsis():
    lettering = Lettering()
    lines = lettering.wrap("one two three four five six seven eight nine ten", "en", 16, 100, max_lines=3)
    assert len(lines) == 3
    assert lines[-1].endswith("…")
    assert "one two three four five six seven eight nine ten".startswith(" ".join(lines)[:-1])
    assert all(lettering.length(line, "en", 16) <= 110 for line in lines)
    assert lettering.wrap("x" * 30, "en", 16, 100, max_lines=9) != ["x" * 30]
    assert "".join(lettering.wrap("x" * 30, "en", 16, 100, max_lines=9)) == "x" * 30
    assert lettering.wrap("short", "en", 16, 100, max_lines=1) == ["short"]


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


def test_letters_that_cannot_be_fetched_are_named_and_galleries_still_work(tmp_path, monkeypatch, caplog):
    (tmp_path / "npm").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('ENOTFOUND')\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with caplog.at_level(logging.WARNING):
        lettering = Lettering.fetch(["ja", "am"], tmp_path / "packages")
    messages = [record.message for record in caplog.records]
    assert "no font for the script Ethi: galleries show an English gloss" in messages
    assert any(message.startswith("no font for the script Latn") and "ENOTFOUND" in message for message in messages)
    assert any(message.startswith("no font for the script Jpan") for message in messages)
    assert not lettering.can_write("赤い車", "ja")
    assert retrieval_gallery([row("赤い車", "ja", gloss="red car")], lettering=lettering).tobytes() == (
        retrieval_gallery([row("赤い車", "ja", gloss="red car")]).tobytes()
    )


@pytest.mark.data
def test_fetched_letters_write_the_benchmarks_languages(tmp_path):
    """Every name of the benchmark in the languages of its published numbers can be written."""
    from babelens.configuration.defaults import BENCHMARK_LANGUAGES
    from babelens.data.emoji.benchmark import load_emoji

    languages = [language for group in BENCHMARK_LANGUAGES.values() for language in group]
    lettering = Lettering.fetch(languages, tmp_path)
    assert "Open Font License" in lettering.attribution
    names = [
        caption for captions in load_emoji(vendors="noto", languages=languages)["captions"] for caption in captions
    ]
    assert len(names) > 20_000
    assert not [name for name in names if not lettering.can_write(name["text"], name["language"])]
    assert not lettering.can_write("ቀይ መኪና", "am")


def test_texts_of_an_image_are_lines_beside_it_and_right_ones_are_framed():
    found = TextsRow(image(), "en", ["a car", "a house"], [0.5, 0.4], [False, True], label="a model")
    gallery = np.asarray(retrieval_gallery([found], cell=50))
    assert (gallery[:, : 8 + 50] == RED).all(-1).any()  # the image
    green = np.argwhere((gallery == GREEN).all(-1))
    assert green[:, 1].min() >= 240 and green[:, 0].min() > 8 + 16  # the second line
    both = retrieval_gallery([found, row("car", "en", label="another")], cell=50)
    assert both.height > gallery.shape[0] and both.width >= gallery.shape[1]
