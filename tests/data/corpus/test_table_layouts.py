"""Tables and JSON as spreadsheets, pandas, the Hub and well-known collections write them."""

import gzip
import io
import json
import lzma
import tarfile
import unicodedata

import pandas as pd
import pytest
from PIL import Image

from babelens.data import load_bitext, load_captions, load_translations
from babelens.data.batching.views import image_text_pairs, images_of
from babelens.data.corpus.tables import pair_in_name
from babelens.data.readers.bitext import is_bitext, read_translations
from babelens.utils.errors import CorpusError

ENGLISH = ["Thank you so much.", 'The "best" chair, new', "two dogs"]
GERMAN = ["Vielen Dank.", "Der „beste“ Stuhl; neu", "zwei Hunde"]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


def texts(corpus):
    return [tuple(each["text"] for each in row["captions"]) for row in corpus]


@pytest.fixture
def photos(tmp_path):
    for number in range(2):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    return tmp_path


# ---- Translations ----


@pytest.mark.parametrize(
    "record",
    [
        lambda en, de: {"translation": {"en": en, "de": de}},
        lambda en, de: {"id": 7, "en": en, "de": de, "url": "https://a.b"},
    ],
)
def test_json_of_translations(record, tmp_path):
    records = [record(*pair) for pair in PAIRS]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "data.json").write_text(json.dumps({"version": 1, "data": records}))
    for name in ("x.jsonl", "data.json"):
        for streaming in (False, True):
            assert texts(load_translations(tmp_path / name, streaming=streaming)) == PAIRS


@pytest.mark.parametrize(
    ("name", "pair"),
    [("TED2020-en-de-train.tsv.gz", ("en", "de")), ("WikiMatrix.en-sw.tsv.gz", ("en", "sw")), ("my-shop.tsv", None)],
)
def test_the_name_of_a_file_tells_its_languages(name, pair):
    assert pair_in_name(name) == pair


@pytest.mark.parametrize("name", ["TED2020-en-de-train.tsv.gz", "en-de.tsv.xz"])
def test_a_table_without_a_header(name, tmp_path):
    content = "".join(f"{en}\t{de}\t1.2\n" for en, de in PAIRS).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else lzma.compress(content))
    assert texts(read_translations(str(tmp_path / name))) == PAIRS == texts(load_translations(tmp_path / name))
    assert is_bitext(str(tmp_path / name)) and texts(load_bitext(tmp_path / name)) == PAIRS
    assert texts(load_bitext(tmp_path / name, min_score=1)) == PAIRS
    header = b"en\tde\n" + b"".join(f"{en}\t{de}\n".encode() for en, de in PAIRS)
    (tmp_path / "x-en-de.tsv").write_bytes(header)
    assert not is_bitext(str(tmp_path / "x-en-de.tsv"))
    assert texts(read_translations(str(tmp_path / "x-en-de.tsv"))) == PAIRS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("quoting", ["none", "minimal", "all"])
def test_tab_separated_in_all_ways(encoding, quoting, tmp_path):
    marked = {"none": str, "all": lambda cell: '"' + cell.replace('"', '""') + '"'}
    marked["minimal"] = lambda cell: marked["all"](cell) if '"' in cell else cell
    rows = [["en", "de"], *PAIRS]
    text = "".join("\t".join(map(marked[quoting], row)) + "\r\n" for row in rows)
    (tmp_path / "x.tsv").write_bytes(text.encode(encoding))
    assert texts(load_translations(tmp_path / "x.tsv")) == PAIRS
    assert texts(load_translations(tmp_path / "x.tsv", streaming=True)) == PAIRS


# ---- Captions ----


def test_excels_first_line(photos):
    (photos / "x.csv").write_text("sep=;\r\nimage;text_de\r\n0.png;roter Stuhl, neu\r\n", encoding="utf-8-sig")
    assert texts(load_captions(photos / "x.csv")) == [("roter Stuhl, neu",)]


def test_cells_that_a_spreadsheet_adds_at_the_end(photos):
    (photos / "x.csv").write_text("image;text_de;;\n0.png;roter Stuhl;;\n;;;\n1.png;Tisch;;\n", encoding="utf-8")
    assert texts(load_captions(photos / "x.csv")) == [("roter Stuhl",), ("Tisch",)]


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
def test_names_that_the_disk_composes_otherwise(on_disk, tmp_path):
    other = {"NFC": "NFD", "NFD": "NFC"}[on_disk]
    folder = tmp_path / unicodedata.normalize(on_disk, "Bücher")
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / unicodedata.normalize(on_disk, "Käse.png"))
    name = unicodedata.normalize(other, "Bücher/Käse.png")
    (tmp_path / "x.csv").write_text(f"image,text_de\n{name},ein Käse\n", encoding="utf-8")
    corpus = load_captions(tmp_path / "x.csv")
    assert texts(corpus) == [("ein Käse",)] and corpus[0]["image"].size == (8, 8)


def test_names_in_tar_shards_may_be_composed_in_two_ways(tmp_path):
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "PNG")
    parts = {
        unicodedata.normalize("NFD", "Käse") + ".png": image.getvalue(),
        unicodedata.normalize("NFC", "Käse") + ".txt": "ein Käse".encode(),
    }
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert texts(load_captions(tmp_path / "x.tar", language="de", streaming=True)) == [("ein Käse",)]


def test_addresses_of_images_that_are_local(photos):
    address = "https://cdn.example.com/a/{}.png?size=large"
    rows = [{"image_url": address.format(n), "caption_de": text} for n, text in enumerate(("rot", "grün"))]
    pd.DataFrame(rows).to_csv(photos / "x.csv", index=False)
    assert texts(load_captions(photos / "x.csv")) == [("rot",), ("grün",)]
    (photos / "1.png").unlink()
    with pytest.raises(CorpusError, match=r"line 3: 'https://cdn\.example\.com/a/1\.png.*download"):
        load_captions(photos / "x.csv")
    (photos / "0.png").unlink()
    corpus = load_captions(photos / "x.csv")
    assert texts(corpus) == [("rot",), ("grün",)] and corpus["image_url"][1] == address.format(1)
    for needs_images in (image_text_pairs, images_of):
        with pytest.raises(CorpusError, match="download"):
            needs_images(corpus)


def test_cocos_captions(photos):
    for folder in ("annotations", "val2014"):
        (photos / folder).mkdir()
    for number in range(2):
        (photos / f"{number}.png").rename(photos / "val2014" / f"{number}.png")
    document = {
        "info": {},
        "images": [{"id": 10 + n, "file_name": f"{n}.png", "license": 1} for n in range(2)],
        "annotations": [{"image_id": 10 + n % 2, "id": n, "caption": f"caption {n}"} for n in range(4)],
    }
    (photos / "annotations" / "captions_val2014.json").write_text(json.dumps(document))
    corpus = load_captions(photos / "annotations" / "captions_val2014.json", language="en")
    assert texts(corpus) == [("caption 0", "caption 2"), ("caption 1", "caption 3")]
    assert list(corpus["image_id"]) == ["10", "11"]
