import gzip
import json
import lzma
import unicodedata

import datasets
import pandas as pd
import pytest
from datasets import Dataset
from PIL import Image

from babelens.data import load_bitext, load_captions, load_translations
from babelens.data.batching.views import image_text_pairs, images_of
from babelens.data.corpus import files
from babelens.data.corpus.files import parse_json, read_lines, read_texts
from babelens.data.corpus.tables import pair_in_name
from babelens.data.readers.bitext import is_bitext, read_translations
from babelens.utils.errors import CorpusError, LanguageTagError
from tests.support.tiny_training import prepared

ENGLISH = ["Thank you so much.", 'The "best" chair, new', "two dogs"]
GERMAN = ["Vielen Dank.", "Der „beste“ Stuhl; neu", "zwei Hunde"]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


@pytest.fixture
def photos(tmp_path):
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    return tmp_path


def column(photos):
    return [str(photos / f"{number}.png") for number in range(3)]


def texts(corpus):
    return [tuple(each["text"] for each in row["captions"]) for row in corpus]


def captions(corpus):
    return [{caption["language"]: caption["text"] for caption in row["captions"]} for row in corpus]


def both(dataset, **options):
    return load_captions(dataset, **options), load_captions(dataset.to_iterable_dataset(), **options)


def test_columns_are_named_by_the_caller(photos):
    rows = {"photo": column(photos), "title": ["a", "b", "c"], "lang": ["en", "de", "en"], "text": ["x"] * 3}
    data = Dataset.from_dict(rows)
    for corpus in both(data, image_column="photo", caption_column="title", language_column="lang"):
        assert captions(corpus) == [{"en": "a"}, {"de": "b"}, {"en": "c"}]
    whole, stream = both(data.remove_columns("lang"), image_column="photo", caption_column="title", language="fr")
    assert captions(whole) == captions(stream) == [{"fr": "a"}, {"fr": "b"}, {"fr": "c"}]
    with pytest.raises(CorpusError, match=r"image_column: there is no column 'photos'; did you mean 'photo'\?"):
        load_captions(data, image_column="photos")
    with pytest.raises(CorpusError, match="already names the language"):
        load_captions(data, image_column="photo", caption_column={"en": "title"}, language_column="lang")


def test_columns_are_named_by_languages(photos):
    rows = {"image": column(photos), "en": ["a", "b", "c"], "text_zh-hant": ["甲", None, ""], "id": ["1", "2", "3"]}
    for corpus in both(Dataset.from_dict(rows)):
        assert captions(corpus) == [{"en": "a", "zh-Hant": "甲"}, {"en": "b"}, {"en": "c"}]
        assert {"id"} <= set(corpus.column_names)  # a name of rows, and not Indonesian
    corpus = load_captions(Dataset.from_dict(rows), caption_column={"id": "id", "en": "en"})
    assert captions(corpus)[0] == {"id": "1", "en": "a"}
    with pytest.raises(CorpusError, match="the columns 'en' and 'text_EN' are both 'en'"):
        load_captions(Dataset.from_dict({"image": column(photos), "en": ["a"] * 3, "text_EN": ["b"] * 3}))
    with pytest.raises(LanguageTagError):
        load_captions(Dataset.from_dict(rows), caption_column={"xx-nothing": "en"})


def test_webdataset_as_datasets_reads_it(photos):
    data = Dataset.from_dict({"jpg": column(photos), "txt": ["a", "b", "c"], "__key__": ["x/1", "x/2", "x/3"]})
    data = data.cast_column("jpg", datasets.Image())
    for corpus in both(data, language="en"):
        assert captions(corpus) == [{"en": "a"}, {"en": "b"}, {"en": "c"}]
        assert [row["image_id"] for row in corpus] == ["x/1", "x/2", "x/3"]
    records = [{"captions": {"en": "a", "de": "b"}}, {"captions": {"en": "c", "de": None}}, {"captions": {"en": "d"}}]
    data = data.add_column("json", [json.dumps(record) for record in records])
    assert captions(load_captions(data)) == [{"en": "a", "de": "b"}, {"en": "c"}, {"en": "d"}]


def test_parallel_columns_of_sentence_transformers():
    data = Dataset.from_dict({"english": ["a", "b"], "non_english": ["x", "y"]})
    corpus = load_translations(data, caption_column={"de": "non_english", "en": "english"})
    assert captions(corpus) == [{"en": "a", "de": "x"}, {"en": "b", "de": "y"}]
    with pytest.raises(CorpusError, match=r"'english', 'non_english' hold no second one: .*caption_column"):
        load_translations(data)


def test_a_hub_data_set_goes_straight_into_a_trainer(photos, make_mural, tmp_path):
    from babelens import ContrastiveTrainingArguments, MuralTrainer

    data = Dataset.from_dict({"image": column(photos), "caption": ["a", "b", "c"]})
    data = data.cast_column("image", datasets.Image())
    model, processor = make_mural()
    settings = {"output_dir": str(tmp_path / "run"), "use_cpu": True, "report_to": "none"}
    given = {"processing_class": processor, "train_dataset": data}
    trainer = prepared(MuralTrainer(model, ContrastiveTrainingArguments(**settings, languages=["pl"]), **given))
    assert [row["language"] for row in trainer.tasks["image_text"]] == ["pl"] * 3
    with pytest.raises(CorpusError, match=r"languages=\['en'\]"):
        prepared(MuralTrainer(model, ContrastiveTrainingArguments(**settings), **given))


def test_json_of_translations(tmp_path):
    for named in (lambda pair: {"translation": pair}, lambda pair: {"id": 7, **pair, "url": "https://a.b"}):
        records = [named({"en": en, "de": de}) for en, de in PAIRS]
        (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
        (tmp_path / "data.json").write_text(json.dumps({"version": 1, "data": records}))
        for name in ("x.jsonl", "data.json"):
            for streaming in (False, True):
                assert texts(load_translations(tmp_path / name, streaming=streaming)) == PAIRS


def test_json_of_other_forms(tmp_path):
    variable = [{"translation": {"language": ["en", "de"], "translation": pair}} for pair in PAIRS]
    (tmp_path / "x.json").write_text(json.dumps(variable))
    assert texts(load_translations(tmp_path / "x.json")) == PAIRS
    by_column = {tag: list(column) for tag, column in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True)}
    by_index = {tag: dict(enumerate(column)) for tag, column in by_column.items()}  # by default of pandas
    for document in (by_column, by_index):
        (tmp_path / "x.json").write_text(json.dumps(document))
        with pytest.raises(CorpusError, match="orient='records'"):
            load_translations(tmp_path / "x.json")


@pytest.mark.parametrize("missing", ["nan", "NULL", "#N/A", float("nan")])
def test_cells_that_hold_nothing(missing, tmp_path):
    name = "x.jsonl" if isinstance(missing, float) else "x.csv"
    rows = pd.DataFrame([(missing, PAIRS[0][1]), *PAIRS], columns=["en", "de"])
    if name == "x.csv":
        rows.to_csv(tmp_path / name, index=False)
    else:
        (tmp_path / name).write_text("\n".join(json.dumps(row) for row in rows.to_dict("records")))
    assert texts(load_translations(tmp_path / name, on_incomplete="skip")) == PAIRS


@pytest.mark.parametrize("name", ["TED2020-en-de-train.tsv.gz", "en-de.tsv.xz"])
def test_a_table_without_a_header(name, tmp_path):
    assert pair_in_name(name) == ("en", "de") and pair_in_name("my-shop.tsv") is None
    content = "".join(f"{en}\t{de}\t1.2\n" for en, de in PAIRS).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else lzma.compress(content))
    assert texts(read_translations(str(tmp_path / name))) == PAIRS == texts(load_translations(tmp_path / name))
    assert is_bitext(str(tmp_path / name)) and texts(load_bitext(tmp_path / name, min_score=1)) == PAIRS
    (tmp_path / "x-en-de.tsv").write_text("en\tde\n" + "".join(f"{en}\t{de}\n" for en, de in PAIRS), "utf-8")
    (tmp_path / "._x-en-de.tsv").write_bytes(b"\0\5\x16\7")  # of macOS
    assert not is_bitext(str(tmp_path / "x-en-de.tsv")) and not is_bitext(str(tmp_path / "*-en-de.tsv"))
    assert texts(read_translations(str(tmp_path / "x-en-de.tsv"))) == PAIRS
    (tmp_path / "y-en-de.tsv").write_text("de_DE\tEN-US\n" + "".join(f"{de}\t{en}\n" for en, de in PAIRS), "utf-8")
    assert texts(load_bitext(tmp_path / "y-en-de.tsv")) == PAIRS


def test_parts_of_speech_are_no_translations(tmp_path):
    rows = [("a dog", "der Hund"), ("a cat", "die Katze"), ("to run", "laufen"), ("a car", "das Auto")]
    lines = [f"{en}\t{'verb' if en == 'to run' else 'noun'}\t{de}\n" for en, de in rows]
    (tmp_path / "en-de.tsv").write_text("".join(lines), "utf-8")
    assert texts(read_translations(str(tmp_path / "en-de.tsv"))) == rows
    (tmp_path / "pairs.tsv").write_text("word\ttranslation\nHund\tdog\n", "utf-8")
    with pytest.raises(CorpusError, match="name columns by language tags"):
        load_translations(tmp_path / "pairs.tsv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("quoting", ["none", "minimal", "all"])
def test_tab_separated_in_all_ways(encoding, quoting, tmp_path):
    marked = {"none": str, "all": lambda cell: '"' + cell.replace('"', '""') + '"'}
    marked["minimal"] = lambda cell: marked["all"](cell) if '"' in cell else cell
    text = "".join("\t".join(map(marked[quoting], row)) + "\r\n" for row in [["en", "de"], *PAIRS])
    (tmp_path / "x.tsv").write_bytes(text.encode(encoding))
    for streaming in (False, True):
        assert texts(load_translations(tmp_path / "x.tsv", streaming=streaming)) == PAIRS


@pytest.mark.parametrize(("encoding", "delimiter"), [("cp1251", ";"), ("utf-16", "\t"), ("utf-16", ";")])
def test_a_table_of_captions_in_any_encoding(photos, encoding, delimiter):
    uk = ["червоний стілець, новий", "зелений стіл; дерево", "блакитна ваза"]
    pl = ["czerwone krzeslo", "zielony stol", 'niebieski "wazon"']
    quoted = [f'"{text.replace(chr(34), chr(34) * 2)}"' for text in (*uk, *pl)]
    lines = [delimiter.join(["image", "text_uk", "text_pl", "price"])]
    lines += [delimiter.join([f"{row}.png", quoted[row], quoted[row + 3], "1,5"]) for row in range(3)]
    file = photos / "products.csv"
    file.write_text("\r\n".join(lines) + "\r\n", encoding=encoding, newline="")
    for streaming in (False, True):
        corpus = load_captions(file, streaming=streaming)
        assert captions(corpus) == [{"uk": uk[row], "pl": pl[row]} for row in range(3)]
        assert [row["image_id"] for row in corpus] == ["0.png", "1.png", "2.png"]
    assert captions(load_captions(file, caption_column={"en": "text_pl"}))[0] == {"en": pl[0]}


def test_accented_letters_of_code_pages_are_read_only_if_all_code_pages_agree(photos):
    for encoding, text in (("cp1252", "schöne Grüße aus der Straße"), ("cp1251", "червоний стілець у кутку")):
        (photos / "x.csv").write_bytes(f"image;caption\n0.png;{text}\n".encode(encoding))
        assert texts(load_captions(photos / "x.csv", language="de")) == [(text,)]
    french, turkish = "un garçon roule à vélo près du château où il naît", "kırmızı bir köpek yeşil çayırda koşuyor"
    for encoding, text in (("cp1252", french), ("cp1254", turkish)):
        (photos / "x.csv").write_bytes(f"image;caption\n0.png;{text}\n".encode(encoding))
        with pytest.raises(CorpusError, match=r"line 2: not UTF-8 .*: save the file as UTF-8"):
            load_captions(photos / "x.csv", language="fr")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.tsv", 'image\ten\n0.png\t"Best" chair\n', ['"Best" chair']),
        ("x.tsv", 'image\ten\n0.png\t"a chair\n1.png\ta table"\n2.png\ta vase\n', ['"a chair', 'a table"', "a vase"]),
        ("x.tsv", 'image\ten\n0.png\t"a chair,\nnew"\n', ["a chair,\nnew"]),  # two lines, as spreadsheets write them
        ("x.csv", "\ufeffsep=;\r\nimage;text_de\r\n0.png;roter Stuhl, neu\r\n", ["roter Stuhl, neu"]),
        ("x.csv", "image;text_de;;\n0.png;roter Stuhl;;\n;;;\n1.png;Tisch;;\n", ["roter Stuhl", "Tisch"]),
    ],
)
def test_quotation_marks_and_what_spreadsheets_add(name, content, expected, photos):
    (photos / name).write_bytes(content.encode())
    assert texts(load_captions(photos / name)) == [(text,) for text in expected]


def test_lists_in_cells(photos):
    rows = [{"image": "0.png", "text_en": ["a chair", "a 'new' chair"]}, {"image": "1.png", "text_en": "[a table]"}]
    pd.DataFrame(rows).to_csv(photos / "x.csv", index=False)
    assert texts(load_captions(photos / "x.csv")) == [("a chair", "a 'new' chair"), ("[a table]",)]


def test_files_with_different_columns_are_refused(tmp_path):
    for tag in ("de", "uk"):
        pd.DataFrame([{"en": "a cat", tag: "eine Katze"}]).to_parquet(tmp_path / f"{tag}.parquet")
    with pytest.raises(CorpusError, match=r"different columns, and must be read separately: .*'uk'"):
        load_translations(tmp_path / "*.parquet")


@pytest.mark.parametrize(("on_disk", "given"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_names_that_the_disk_composes_otherwise(on_disk, given, tmp_path):
    folder = tmp_path / unicodedata.normalize(on_disk, "Bücher")
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / unicodedata.normalize(on_disk, "Käse.png"))
    name = unicodedata.normalize(given, "Bücher/Käse.png")
    (tmp_path / "x.csv").write_text(f"image,text_de\n{name},ein Käse\n", encoding="utf-8")
    corpus = load_captions(tmp_path / "x.csv")
    assert texts(corpus) == [("ein Käse",)] and corpus[0]["image"].size == (8, 8)


def test_addresses_of_images_that_are_local(photos):
    address = "https://cdn.example.com/a/{}.png?size=large"
    rows = [{"image_url": address.format(n), "caption_de": text} for n, text in enumerate(("rot", "grün"))]
    pd.DataFrame(rows).to_csv(photos / "x.csv", index=False)
    assert texts(load_captions(photos / "x.csv")) == [("rot",), ("grün",)]
    for outside in (f"https://a.b/%2F{photos}/0.png", "..\\0.png"):
        pd.DataFrame([{"image_url": outside, "caption_de": "rot"}]).to_csv(photos / "y.csv", index=False)
        with pytest.raises(CorpusError, match="leaves the folder"):
            load_captions(photos / "y.csv")
    (photos / "1.png").unlink()
    with pytest.raises(CorpusError, match=r"line 3: 'https://cdn\.example\.com/a/1\.png.*download"):
        load_captions(photos / "x.csv")
    (photos / "0.png").unlink()
    corpus = load_captions(photos / "x.csv")
    assert texts(corpus) == [("rot",), ("grün",)] and corpus["image_url"][1] == address.format(1)
    for needs_images in (image_text_pairs, images_of):
        with pytest.raises(CorpusError, match="download"):
            needs_images(corpus)


def test_images_are_not_taken_from_the_folder_of_another_table(photos):
    for name in ("test", "train"):
        (photos / name).mkdir()
        for number in range(3):
            Image.new("RGB", (8, 8)).save(photos / name / f"{number}.png")
    (photos / "train" / "0.png").unlink()
    (photos / "train" / "x.csv").write_text("image,caption\n0.png,eins\n1.png,zwei\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"train/0\.png: no such file"):
        load_captions(photos / "train" / "x.csv", language="de")


def test_cocos_captions(photos):
    for folder in ("annotations", "val2014"):
        (photos / folder).mkdir()
    for number in range(2):
        (photos / f"{number}.png").rename(photos / "val2014" / f"{number}.png")
    document = {
        "images": [{"id": 10 + n, "file_name": f"{n}.png", "license": 1} for n in range(2)],
        "annotations": [{"image_id": 10 + n % 2, "id": n, "caption": f"caption {n}"} for n in range(4)],
    }
    (photos / "annotations" / "captions_val2014.json").write_text(json.dumps(document))
    corpus = load_captions(photos / "annotations" / "captions_val2014.json", language="en")
    assert texts(corpus) == [("caption 0", "caption 2"), ("caption 1", "caption 3")]
    assert list(corpus["image_id"]) == ["10", "11"]


# All line ends of `str.splitlines` except line feeds and carriage returns.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def test_a_line_ends_at_a_line_feed_alone(tmp_path):
    lines = [f"one{separator}text" for separator in SEPARATORS] + [" spaces stay ", "last"]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(("\ufeff" + "\r\n".join(lines)).encode()))
    assert read_texts(tmp_path / "a.txt.gz") == lines
    assert list(read_lines(tmp_path / "a.txt.gz")) == list(enumerate(lines, 1))


def test_damaged_archives_and_endless_lines_are_refused(tmp_path, monkeypatch):
    whole = gzip.compress(b"some text\n" * 1000)
    for content in (b"no gzip", whole[:-10], whole[:20] + b"\0\0\0\0" + whole[24:]):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(CorpusError, match=r"a\.gz after line \d+: "):
            list(read_lines(tmp_path / "a.gz"))
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"fine\n" + b"x" * 998 + b"\n" + b"x" * 1000))
    lines = read_lines(tmp_path / "a.gz")
    assert [len(text) for _, text in (next(lines), next(lines))] == [4, 998]
    with pytest.raises(CorpusError, match=r"a\.gz line 3: more than the 1,000 bytes"):
        next(lines)


def test_json_that_is_nested_too_deeply_is_refused():
    for depth in (33, 100_000):
        with pytest.raises(CorpusError, match="nested more than 32 deep"):
            parse_json("[" * depth + "1" + "]" * depth)
    assert parse_json("[" * 32 + "1" + "]" * 32)
