import gzip

import PIL.Image
import pytest

from babelens.data import load_multi30k, triplets
from babelens.utils.errors import CorpusError
from tests.support.published_layouts import FLICKR, caption, write_multi30k


@pytest.fixture
def task(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "image_splits").mkdir()
    (tmp_path / "images").mkdir()
    for language, text in {"en": "A dog.\nA man.\n", "de": "Ein Hund.\nEin Mann.\n"}.items():
        (tmp_path / "raw" / f"val.{language}.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "image_splits" / "val.txt").write_text("1018148011.jpg\n1029450589.jpg\n")
    for width, name in enumerate(("1018148011.jpg", "1029450589.jpg"), 1):
        PIL.Image.new("RGB", (width, 9)).save(tmp_path / "images" / name)
    return tmp_path


def test_sentences_of_a_line_belong_to_the_image_of_that_line(task):
    corpus = load_multi30k(task, "val", ["en", "de"], images=task / "images")
    assert corpus.column_names == ["image", "image_id", "captions"]
    rows = [(e["image"].width, e["image_id"], e["text_a"], e["text_b"]) for e in triplets(corpus, [("en", "de")])]
    assert rows == [(1, "1018148011.jpg", "A dog.", "Ein Hund."), (2, "1029450589.jpg", "A man.", "Ein Mann.")]


def test_lines_that_do_not_match_are_refused(task):
    (task / "raw" / "val.de.gz").write_bytes(gzip.compress(b"Ein Hund.\n"))
    with pytest.raises(CorpusError, match=r"val\.de\.gz has 1 sentences for 2 images"):
        load_multi30k(task, "val", ["en", "de"])
    (task / "raw" / "val.de.gz").write_bytes(gzip.compress(b"Ein Hund.\n\nEin Mann.\n"))
    with pytest.raises(CorpusError, match=r"val\.de\.gz line 2: the line is empty"):
        load_multi30k(task, "val", ["en", "de"])
    (task / "raw" / "val.de.gz").write_bytes(gzip.compress(b"Ein Hund.\nEin Mann.\n")[:-9])
    with pytest.raises(CorpusError, match=r"val\.de\.gz after line"):
        load_multi30k(task, "val", ["en", "de"])


def test_five_descriptions_beside_the_sentences(tmp_path):
    """Descriptions are of images in an order of their own."""
    write_multi30k(tmp_path)
    corpus = load_multi30k(tmp_path, "val", ["en", "de"], described=["en"])
    first = [(each["language"], each["text"]) for each in corpus[0]["captions"]]
    assert corpus["image_id"] == FLICKR
    assert first == [("en", caption("en", 0, kind)) for kind in range(1, 6)] + [("de", caption("de", 0))]
    alone = load_multi30k(tmp_path / "task2", "val", ["de", "en"], described=["de", "en"])
    assert [len(row) for row in alone["captions"]] == [10] * len(FLICKR)
    assert alone[0]["captions"][5] == {"language": "en", "text": caption("en", len(FLICKR) - 1, 1)}
