"""What people bring becomes a corpus; what is wrong with it is said with the file and the line."""

import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from datasets import Dataset, Features, Image, List, Value

from babelens.data import load_captions, load_translations
from babelens.data.batching.views import image_text_pairs, translation_pairs
from babelens.data.corpus.corpus import CAPTIONS
from babelens.utils.errors import CorpusError, LanguageTagError, SourceUnavailableError

CAPTION_LISTS, STRING = List(Value("string")), Value("string")
RECORDS: list[dict[str, Any]] = [
    {"file_name": "red.png", "captions": {"EN": ["red", "scarlet"], "de": "rot"}, "split": "train", "artist": "Ada"},
    {"file_name": "green.jpg", "captions": {"en": "green", "zh_hant": "綠色"}, "split": "train", "image_id": 7},
    {"file_name": "blue.webp", "captions": [{"language": "en", "text": "blue"}], "split": "test"},
]


def caption(language, text):
    return {"language": language, "text": text}


def write_metadata(folder, records):
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for record in RECORDS:
        PIL.Image.new("RGB", (16, 16), Path(record["file_name"]).stem).save(folder / record["file_name"])
    return write_metadata(folder, RECORDS)


class TestImageFolder:
    def test_images_and_captions_are_found(self, photos):
        corpus = load_captions(photos)
        assert corpus.column_names == ["image", "image_id", "captions", "split", "artist"]
        assert list(corpus["captions"]) == [
            [caption("en", "red"), caption("en", "scarlet"), caption("de", "rot")],
            [caption("en", "green"), caption("zh-Hant", "綠色")],
            [caption("en", "blue")],
        ]
        assert list(corpus["image_id"]) == ["red.png", "7", "blue.webp"]
        assert list(corpus["artist"]) == ["Ada", None, None]
        assert image_text_pairs(corpus)[0]["image"].getpixel((0, 0)) == (255, 0, 0)

    @pytest.mark.parametrize(
        ("record", "error", "message"),
        [
            ('{"file_name": "red.png", "captions": {"en": "a", "en": "b"}}', CorpusError, "'en' is given twice"),
            ("[1]", CorpusError, "a JSON object is expected"),
            ({"file_name": "red.png"}, CorpusError, "0 texts, but a row needs at least 1"),
            ({"file_name": "red.png", "captions": {"en": " "}}, CorpusError, "a text is empty"),
            ({"file_name": "red.png", "captions": {"xx": "red"}}, LanguageTagError, "'xx' names no registered"),
            ({"file_name": "none.png", "captions": {"en": "red"}}, CorpusError, "none.png: no such file"),
        ],
    )
    def test_a_bad_line_is_refused_by_its_number(self, photos, record, error, message):
        write_metadata(photos, [RECORDS[0], "", record])
        with pytest.raises(error, match=rf"metadata\.jsonl line 3: .*{message}"):
            load_captions(photos)


class TestDatasets:
    @pytest.fixture
    def dataset(self):
        images = [PIL.Image.new("RGB", (4, 4), colour) for colour in ("red", "green", "blue")]
        columns = {"image": images, "caption": [["rot"], ["grün"], ["blau", "azurn"]], "split": ["a", "b", "b"]}
        return Dataset.from_dict(columns, Features(image=Image(), caption=CAPTION_LISTS, split=STRING))

    def test_parquet_files_are_read_with_their_rows_named(self, dataset, tmp_path):
        for number in range(3):
            dataset.select([number]).to_parquet(tmp_path / f"part-{number}.parquet")
        one = load_captions(tmp_path / "part-0.parquet", language="de")
        assert one["captions"][0] == [caption("de", "rot")]
        for streaming in (False, True):
            several = load_captions(f"{tmp_path}/*.parquet", language="de", split="b", streaming=streaming)
            assert [row["captions"][0]["text"] for row in several] == ["grün", "blau"]
        with pytest.raises(CorpusError, match=r"part-0\.parquet row 0: 'rot' has no language"):
            load_captions(tmp_path / "part-0.parquet")

    def test_a_saved_corpus_is_read_back(self, dataset, tmp_path):
        corpus = load_captions(dataset, language="de")
        corpus.save_to_disk(tmp_path / "saved")
        again = load_captions(tmp_path / "saved")
        assert again.features == corpus.features
        assert list(again["captions"]) == list(corpus["captions"])
        assert again.cache_files  # the captions were not copied into memory

    def test_what_cannot_be_read_is_refused_by_name(self, tmp_path):
        (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
        (tmp_path / "list.txt").write_text("a cat")
        (tmp_path / "nothing").mkdir()
        for name in ("broken.parquet", "list.txt", "nothing", "missing.parquet", "missing/*.parquet"):
            with pytest.raises(CorpusError, match=rf"{name.replace('*', '.')}: "):
                load_captions(tmp_path / name)
        with pytest.raises(CorpusError, match=r"\./nowhere: no such file or folder"):
            load_captions("./nowhere")

    def test_a_hub_that_does_not_answer_is_named(self, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        message = "'someone/photos' is not a local path, and could not be loaded from the Hub"
        for load in (load_captions, load_translations):
            with pytest.raises(SourceUnavailableError, match=message):
                load("someone/photos")


class TestTranslations:
    TSV = "en\tDE\tpt_br\na cat\teine Katze\tum gato\na dog\tein Hund\t\n"

    def test_a_table_with_a_header_of_language_tags(self, tmp_path):
        file = tmp_path / "pairs.tsv"
        file.write_text("\ufeff" + self.TSV, encoding="utf-8")
        corpus = load_translations(file)
        assert corpus.features == Features(captions=CAPTIONS)
        assert list(corpus["captions"]) == [
            [caption("en", "a cat"), caption("de", "eine Katze"), caption("pt-BR", "um gato")],
            [caption("en", "a dog"), caption("de", "ein Hund")],
        ]
        assert len(translation_pairs(corpus)) == 4

    def test_only_the_languages_asked_for_and_rows_with_two_of_them(self, tmp_path):
        (tmp_path / "pairs.tsv").write_text(self.TSV)
        corpus = load_translations(tmp_path / "pairs.tsv", languages=["EN", "pt-BR"])
        assert list(corpus["captions"]) == [[caption("en", "a cat"), caption("pt-BR", "um gato")]]
        (tmp_path / "apart.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "c", "ja": "d"}\n')
        with pytest.raises(CorpusError, match=r"no row to keep is in de, ja; there are en \(2\), de \(1\), ja \(1\)"):
            load_translations(tmp_path / "apart.jsonl", languages=["de", "ja"])
        with pytest.raises(CorpusError, match="two languages or more"):
            load_translations(tmp_path / "pairs.tsv", languages="de")

    @pytest.mark.parametrize(
        ("table", "error", "message"),
        [
            ("en\tde\na\tb\nc\n", CorpusError, "line 3: 1 of 2 cells"),
            ("en\tde\n\tb\n", CorpusError, r"line 2: 1 texts \(nothing in en\), but a row needs at least 2"),
            ("en\tgerman\na\tb\n", CorpusError, ".*'german'"),
            ("en\tEN\na\tb\n", CorpusError, ".*'en' and 'EN' are both 'en'"),
            ("image_id\ten\tde\n\ta\tb\n", CorpusError, "line 2: image_id is"),
        ],
    )
    def test_a_bad_table_is_refused_by_line_and_column(self, tmp_path, table, error, message):
        (tmp_path / "pairs.tsv").write_text(table)
        with pytest.raises(error, match=rf"pairs\.tsv:? ({message})"):
            list(load_translations(tmp_path / "pairs.tsv"))
