"""Columns under other names: named by the caller, by languages, by WebDataset and by sentence-transformers; tables."""

import json

import datasets
import pytest
from datasets import Dataset
from PIL import Image

from babelens.data import load_captions, load_translations
from babelens.utils.errors import CorpusError, LanguageTagError
from tests.support.tiny_training import prepared


@pytest.fixture
def photos(tmp_path):
    for number, color in enumerate(("red", "green", "blue")):
        Image.new("RGB", (8, 8), color).save(tmp_path / f"{number}.png")
    return tmp_path


def column(photos, count=3):
    return [str(photos / f"{number % 3}.png") for number in range(count)]


def captions(corpus):
    return [{caption["language"]: caption["text"] for caption in row["captions"]} for row in corpus]


def both(dataset, **options):
    """The corpus of a dataset, and of the same as a stream."""
    return load_captions(dataset, **options), load_captions(dataset.to_iterable_dataset(), **options)


# ---- Names ----


def test_columns_are_named_by_the_caller(photos):
    rows = {"photo": column(photos), "title": ["a", "b", "c"], "lang": ["en", "de", "en"], "text": ["x"] * 3}
    data = Dataset.from_dict(rows)
    named = {"image_column": "photo", "caption_column": "title", "language_column": "lang"}
    for corpus in both(data, **named):
        assert captions(corpus) == [{"en": "a"}, {"de": "b"}, {"en": "c"}]
    whole, stream = both(data.remove_columns("lang"), image_column="photo", caption_column="title", language="fr")
    assert captions(whole) == captions(stream) == [{"fr": "a"}, {"fr": "b"}, {"fr": "c"}]
    with pytest.raises(CorpusError, match=r"image_column: there is no column 'photos'; did you mean 'photo'\?"):
        load_captions(data, image_column="photos")
    with pytest.raises(CorpusError, match="already names the language"):
        load_captions(data, image_column="photo", caption_column={"en": "title"}, language_column="lang")


def test_columns_are_named_by_languages(photos):
    rows = {"image": column(photos), "en": ["a", "b", "c"], "text_zh-hant": ["甲", None, ""], "id": ["1", "2", "3"]}
    expected = [{"en": "a", "zh-Hant": "甲"}, {"en": "b"}, {"en": "c"}]
    for corpus in both(Dataset.from_dict(rows)):
        assert captions(corpus) == expected
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


# ---- Translations ----


@pytest.mark.parametrize("columns", [("english", "non_english")])
def test_parallel_columns_of_sentence_transformers(columns):
    data = Dataset.from_dict(dict(zip(columns, (["a", "b"], ["x", "y"]), strict=True)))
    expected = [{"en": "a", "de": "x"}, {"en": "b", "de": "y"}]
    assert captions(load_translations(data, name="en-de")) == expected
    assert captions(load_translations(data, languages=["en", "de"])) == expected
    assert captions(load_translations(data, caption_column={"de": columns[1], "en": columns[0]})) == expected
    with pytest.raises(CorpusError, match="name them in this order"):
        load_translations(data)


# ---- Tables ----


@pytest.mark.parametrize("encoding", ["cp1251", "utf-16"])
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_table_of_captions_in_any_encoding(photos, encoding, delimiter):
    uk = ["червоний стілець, новий", "зелений стіл; дерево", "блакитна ваза"]
    pl = ["czerwone krzeslo", "zielony stol", 'niebieski "wazon"']
    quoted = [f'"{text.replace(chr(34), chr(34) * 2)}"' for text in (*uk, *pl)]
    lines = [delimiter.join(["image", "text_uk", "text_pl", "price"])]
    lines += [
        delimiter.join([f"{row}.png", quoted[row], quoted[row + 3], "1,5" if delimiter != "," else "2"])
        for row in range(3)
    ]
    file = photos / "products.csv"
    file.write_text("\r\n".join(lines) + "\r\n", encoding=encoding, newline="")
    for streaming in (False, True):
        corpus = load_captions(file, streaming=streaming)
        assert captions(corpus) == [{"uk": uk[row], "pl": pl[row]} for row in range(3)]
        assert [row["image_id"] for row in corpus] == ["0.png", "1.png", "2.png"]
    named = load_captions(file, caption_column={"en": "text_pl"}, image_column="image")
    assert captions(named)[0] == {"en": pl[0]}


def test_a_lone_quotation_mark_swallows_no_rows(photos):
    file = photos / "shop.tsv"
    file.write_text('image\ten\n0.png\t"Best" chair\n')
    assert captions(load_captions(file)) == [{"en": '"Best" chair'}]
    file.write_text('image\ten\n0.png\t"a chair\n1.png\ta table"\n2.png\ta vase\n')
    assert captions(load_captions(file)) == [{"en": text} for text in ('"a chair', 'a table"', "a vase")]
    file.write_text('image\ten\n0.png\t"a chair,\nnew"\n')  # a cell of two lines, as spreadsheets write it
    assert captions(load_captions(file)) == [{"en": "a chair,\nnew"}]


# ---- Who reads them ----


def test_a_hub_data_set_goes_straight_into_a_trainer(photos, make_mural, tmp_path):
    from babelens import ContrastiveTrainingArguments, MuralTrainer

    data = Dataset.from_dict({"image": column(photos), "caption": ["a", "b", "c"]}).cast_column(
        "image", datasets.Image()
    )
    model, processor = make_mural()
    settings = {"output_dir": str(tmp_path / "run"), "use_cpu": True, "report_to": "none"}
    args = ContrastiveTrainingArguments(**settings, languages=["pl"])
    trainer = prepared(MuralTrainer(model, args, processing_class=processor, train_dataset=data, eval_dataset=data))
    assert [row["language"] for row in trainer.tasks["image_text"]] == ["pl"] * 3
    assert "eval_mean_recall_pl" in trainer.evaluate()
    with pytest.raises(CorpusError, match=r"languages=\['en'\]"):
        prepared(
            MuralTrainer(
                model, ContrastiveTrainingArguments(**settings), processing_class=processor, train_dataset=data
            )
        )
