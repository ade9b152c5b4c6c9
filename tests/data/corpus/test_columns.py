import pytest
from datasets import Dataset
from PIL import Image

from babelens.data import load_captions, load_translations
from babelens.data.corpus.columns import language_of_column, resembles_another
from babelens.data.emoji.build import Annotation
from babelens.data.emoji.names import EmojiNames, names_table
from babelens.utils.errors import CorpusError

ENGLISH = ["a red chair in the corner", "two dogs on the beach", "the cup of a child with milk"]
GERMAN = ["ein roter Stuhl in der Ecke", "zwei Hunde auf dem Strand", "die Tasse von einem Kind mit Milch"]
INDONESIAN = ["sebuah kursi merah di sudut", "dua anjing di pantai", "cangkir seorang anak dengan susu"]
PAIRS = [[("en", english), ("de", german)] for english, german in zip(ENGLISH, GERMAN, strict=True)]

OTHER_THINGS = [
    ("sku", ["A1", "A2", "A3"]),
    ("cat", ["Stühle", "Tische", "Tische"]),
    ("cat", GERMAN),
    ("alt", ["красный стул у окна", "две собаки на пляже", "чашка с молоком и хлеб"]),
    ("id", ["chair-red", "dogs", "cup"]),
    ("id", ENGLISH),
    ("to", ["Berlin", "Kyiv", "Lviv"]),
    ("de", ["yes", "no", "yes"]),
    ("de", ["1,20", "3,50", ""]),
    ("fr", ENGLISH),
    ("en", ["червоний стілець", "два пси", "чашка"]),
    ("it", ["a/1.jpg", "b/2.png", "c.webp"]),
    ("text_id", ["1", "2", "3"]),
    ("caption_alt", ENGLISH),
    ("lus", ["rot", "blau", "grün"]),
    ("text_de", ENGLISH),
    ("text_uk", GERMAN),
    ("title", GERMAN),
    ("de", [None, "", " "]),
]
TEXTS = [
    ("de", ["rot", "blau", "grün"], "de"),
    ("uk", ["червоний", "синій"], "uk"),
    ("ja", ["赤い椅子", "スーパーのカップ"], "ja"),
    ("hi", ["लाल कुर्सी", "दो कुत्ते"], "hi"),
    ("zh_hant", ["紅色的椅子"], "zh-Hant"),
    ("szl", ["czerwōny stołek we rogu", "dwa psy na plaży", "szolka bajtla ze mlykym"], "szl"),
    ("cat_Latn", ["una cadira vermella", "dos gossos"], "ca"),
    ("id", INDONESIAN, "id"),
    ("text_id", ["merah"], "id"),
    ("caption_alt", ["кызыл отургуш"], "alt"),
    ("captions.pl", ["kot"], "pl"),
    ("en_US", ENGLISH, "en-US"),
]


def pairs(corpus):
    return [[(each["language"], each["text"]) for each in row["captions"]] for row in corpus]


def test_the_cells_decide_whether_a_column_holds_texts_of_its_name():
    for name, cells in OTHER_THINGS:
        assert language_of_column(name, cells) is None, (name, cells)
    for name, cells, tag in TEXTS:
        assert language_of_column(name, cells) == tag, (name, cells)
    # A requested language is believed.
    assert language_of_column("id", ["merah", "biru"], asked=["id"]) == "id"
    assert language_of_column("id", ["1", "2"], asked=["id"]) is None
    # Other than by sentences in another language.
    for name in ("de", "src"):
        assert language_of_column(name, ENGLISH, asked=["de"]) is None
        assert language_of_column(name, ENGLISH, lenient=True) is None


def test_n_grams_recognize_another_language():
    texts = {"en": ENGLISH, "de": GERMAN, "id": INDONESIAN, "ca": ["una cadira vermella", "dos gossos", "la tassa"]}
    names = {tag: {f"1f40{n}": Annotation(text, []) for n, text in enumerate(each)} for tag, each in texts.items()}
    found = EmojiNames(names_table(names)).profiles
    assert resembles_another("id", tuple(GERMAN), found) == "de"
    assert resembles_another("id", tuple(INDONESIAN), found) is None
    assert resembles_another("ca", ("roter Stuhl", "zwei Hunde", "eine Tasse"), found) == "de"


ROWS = {"sku": ["A1", "A2", "A3"], "cat": ["Stühle", "Tische", "Tische"], "id": ["1", "2", "3"], "text_de": GERMAN}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_shops_table_is_read_alike_from_every_source(kind, tmp_path, caplog):
    shop = tmp_path
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(shop / f"{number}.png")
    caplog.set_level("INFO", logger="babelens")
    rows = [{"image": f"{n}.png"} | {name: cells[n] for name, cells in ROWS.items()} for n in range(3)]
    file = shop / f"shop.{kind}"
    if kind == "csv":
        file.write_text("\n".join(";".join(row) for row in [[*rows[0]], *(row.values() for row in rows)]), "utf-8")
    elif kind == "jsonl":
        Dataset.from_list(rows).to_json(file, force_ascii=False)
    else:
        Dataset.from_list([row | {"image": str(shop / row["image"])} for row in rows]).to_parquet(file)
    corpus = list(load_captions(file))
    assert pairs(corpus) == [[("de", text)] for text in GERMAN]
    assert [row["sku"] for row in corpus] == ROWS["sku"] and [row["cat"] for row in corpus] == ROWS["cat"]
    told = [message for message in caplog.messages if "'text_de' as de" in message]
    assert len(told) == 1 and all(name in told[0] for name in ("'sku'", "'cat'", "'id'"))
    (shop / "shop.csv").write_text("image,cat,no\n0.png,Stühle,1\n1.png,Tische,2\n")
    with pytest.raises(CorpusError, match=r"'cat'.*caption_column"):
        load_captions(shop / "shop.csv")


def test_translations_have_other_columns_too(tmp_path):
    rows = [f"A{n}\t{en}\t{de}\tA{n}" for n, ((_, en), (_, de)) in enumerate(PAIRS)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["id\ten\tde\tsku", *rows]), "utf-8")
    for source in (Dataset.from_dict({"id": [0, 1, 2], "en": ENGLISH, "de": GERMAN}), tmp_path / "pairs.tsv"):
        assert pairs(load_translations(source)) == PAIRS
    with pytest.raises(CorpusError):
        load_translations(source, languages=["en", "id"], on_incomplete="skip")
    (tmp_path / "words.tsv").write_text("en\tid\nred\tmerah\nblue\tbiru\n")  # nothing else can be meant
    assert load_translations(tmp_path / "words.tsv")[0]["captions"][1]["language"] == "id"


def test_a_column_of_categories_is_not_in_a_language(tmp_path, caplog):
    rows = [f"{en}\t{de}\ten\tNike" for en, de in zip(ENGLISH, GERMAN, strict=True)]
    (tmp_path / "x.tsv").write_text("\n".join(["en\tde\tlg\tbr", *rows]), "utf-8")
    assert pairs(load_translations(tmp_path / "x.tsv")) == PAIRS
    assert "not from 'lg', 'br', by their cells" in caplog.text
    (tmp_path / "x.tsv").write_text("en\tbr\nred\truz\nred\truz\nred\truz", "utf-8")  # nothing else can be meant
    assert len(load_translations(tmp_path / "x.tsv", languages=["en", "br"])) == 3


@pytest.mark.parametrize("header", ["de\ten", "src\ttgt", "mi\ten"])
@pytest.mark.parametrize("asked", [None, ["en", "de"]])
def test_swapped_or_other_columns_are_an_error(header, asked, tmp_path):
    rows = map("\t".join, zip(ENGLISH, GERMAN, strict=True))
    (tmp_path / "x.tsv").write_text("\n".join([header, *rows]), "utf-8")
    with pytest.raises(CorpusError, match="correct the header if they are swapped"):
        load_translations(tmp_path / "x.tsv", languages=asked)
    (tmp_path / "x.jsonl").write_text('{"set": ["a red chair", "a chair that is red"]}\n')
    with pytest.raises(CorpusError, match="hold no second one"):
        load_translations(tmp_path / "x.jsonl")


def test_regions_count_as_the_language_that_is_asked_for(tmp_path):
    (tmp_path / "pairs.tsv").write_text("EN-US\tuk_UA\tpt-BR\na cat\tкіт\tum gato\na dog\tпес\tum cão\n", "utf-8")
    asked = pairs(load_translations(tmp_path / "pairs.tsv", languages=["en", "uk"]))
    assert asked == [[("en", "a cat"), ("uk", "кіт")], [("en", "a dog"), ("uk", "пес")]]
    every = pairs(load_translations(tmp_path / "pairs.tsv"))
    assert every[0] == [("en-US", "a cat"), ("uk-UA", "кіт"), ("pt-BR", "um gato")]
