import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Features, Image, List, Value

from babelens.data import load_captions, load_translations
from babelens.data.batching.views import image_text_pairs, images_of, translation_pairs
from babelens.data.corpus.corpus import CAPTIONS
from babelens.utils.errors import CorpusError, LanguageTagError, SourceUnavailableError
from tests.support.image_sources import drawn

CAPTION_LISTS, STRING = List(Value("string")), Value("string")
RECORDS: list[dict[str, Any]] = [
    {"file_name": "red.png", "captions": {"EN": ["red", "scarlet"], "de": "rot"}, "split": "train", "artist": "Ada"},
    {"file_name": "green.jpg", "captions": {"en": "green", "zh_hant": "綠色"}, "split": "train", "image_id": 7},
    {"file_name": "blue.webp", "captions": [{"language": "en", "text": "blue"}], "split": "test"},
]
ROW: dict[str, Any] = {"file_name": "red.png", "captions": {"en": "a"}}


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
    PIL.Image.new("RGB", (16, 16)).save(tmp_path / "secret.png")
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
        ("record", "message"),
        [
            ('{"file_name": "red.png", "captions": {"en": "a", "en": "b"}}', "'en' is given twice"),
            ('{"file_name": "red.png", "captions": {"en": "a"}, "x": ' + "9" * 5000 + "}", "unusable JSON"),
            ("[1]", "a JSON object is expected"),
            ({"file_name": "red.png"}, "0 texts, but a row needs at least 1"),
            (ROW | {"captions": {"en": " "}}, "a text is empty"),
            (ROW | {"captions": {"xx": "red"}}, "'xx' names no registered"),
            (ROW | {"file_name": "none.png"}, "none.png: no such file"),
            (ROW | {"file_name": "../secret.png"}, "leaves the folder"),
            (ROW | {"file_name": "\ud800.png"}, "half of a surrogate pair"),
            (ROW | {"file_name": "0\0.png"}, "null (byte|character)"),
        ],
    )
    def test_a_bad_line_is_refused_by_its_number(self, photos, record, message):
        write_metadata(photos, [RECORDS[0], "", record])
        with pytest.raises((CorpusError, LanguageTagError), match=rf"metadata\.jsonl line 3\b.*{message}"):
            load_captions(photos)


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(),
    2,
    [None, pa.py_buffer(bytes(pa.array([0, 2, 4], pa.int32()).buffers()[1])[:12]), pa.py_buffer(b"ok\xff\xfe")],
)


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

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"image": [1, 2]}, "row 0: the column 'image' is of type"),
            ({"image_id": [1.0, float("nan")]}, "row 1: image_id is nan"),
            ({"image_id": NOT_UTF8}, ".*(UTF-8|utf-8)"),
            ({"caption": [b"a", b"b"]}, "row 0: b'a' is not a text"),
        ],
    )
    def test_bad_parquet_is_refused_with_its_row(self, tmp_path, columns, message):
        both = {"image": [drawn(0), drawn(1)], "caption": ["a", "b"]}
        pq.write_table(pa.table(both | columns), tmp_path / "x.parquet")
        with pytest.raises(CorpusError, match=rf"x\.parquet:? {message}"):
            load_captions(tmp_path / "x.parquet", language="en")

    def test_a_saved_corpus_is_read_back(self, dataset, tmp_path):
        corpus = load_captions(dataset, language="de")
        corpus.save_to_disk(tmp_path / "saved")
        again = load_captions(tmp_path / "saved")
        assert again.features == corpus.features
        assert list(again["captions"]) == list(corpus["captions"])
        assert again.cache_files  # the captions were not copied into memory

    @pytest.mark.parametrize("damage", ["offset", "empty"])
    def test_damaged_arrow_files_are_refused(self, tmp_path, damage):
        table = Dataset.from_dict({"caption": ["a cat", "a dog"], "features": [[1.0], [2.0]]})
        load_captions(table, language="en").save_to_disk(tmp_path / "saved")
        (file,) = (tmp_path / "saved").glob("*.arrow")
        data, offsets = bytearray(file.read_bytes()), np.array([0, 5, 10], np.int32).tobytes()
        assert data.count(offsets) == 1
        place = data.index(offsets) + 8
        data[place : place + 4] = np.int32(2**31 - 1).tobytes()
        file.write_bytes(data if damage == "offset" else b"")
        with pytest.raises(CorpusError, match="saved: "):
            load_captions(tmp_path / "saved")

    @pytest.mark.parametrize("bad", [None, [1.0, float("inf")]])
    def test_features_that_are_none_are_refused_where_they_are_used(self, bad):
        table = Dataset.from_dict({"caption": ["a", "b"], "features": [[1.0, 2.0], bad]})
        features: Any = images_of(load_captions(table, language="en"))
        assert features[[0]].tolist() == [[1.0, 2.0]]
        with pytest.raises(CorpusError, match="row 1: the features of an image must be a list of finite numbers"):
            features[[0, 1]]

    def test_what_cannot_be_read_is_refused_by_name(self, tmp_path):
        (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
        (tmp_path / "list.txt").write_text("a cat")
        (tmp_path / "nothing").mkdir()
        for name in ("broken.parquet", "list.txt", "nothing", "missing.parquet", "missing/*.parquet"):
            with pytest.raises(CorpusError, match=rf"{name.replace('*', '.')}: "):
                load_captions(tmp_path / name)
        for name in ("./nowhere", "nowhere"):  # the Hub is not asked for a name without an owner
            with pytest.raises(CorpusError, match=rf"{name}: no such file or folder"):
                load_captions(name)

    def test_a_hub_that_does_not_answer_is_named(self, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        for load in (load_captions, load_translations):
            with pytest.raises(SourceUnavailableError, match="'someone/photos' is not a local path, and could not be"):
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
        ("table", "message"),
        [
            ("en\tde\na\tb\nc\n", "line 3: 1 of 2 cells"),
            ("en\tde\n\tb\n", r"line 2: 1 texts \(nothing in en\), but a row needs at least 2"),
            ("en\tgerman\na\tb\n", ".*'german'"),
            ("image_id\ten\tde\n\ta\tb\n", "line 2: image_id is"),
            ("en\tuk\na cat;кіт\n", "line 2: 1 of 2 cells.*tabs"),
            ("en\tuk\na cat\tкіт\n".encode("cp1251"), ".*not UTF-8 .*save the file as UTF-8"),
        ],
    )
    def test_a_bad_table_is_refused_by_line_and_column(self, tmp_path, table, message):
        (tmp_path / "pairs.tsv").write_bytes(table if isinstance(table, bytes) else table.encode())
        with pytest.raises(CorpusError, match=rf"pairs\.tsv:? ({message})"):
            list(load_translations(tmp_path / "pairs.tsv"))

    def test_a_worker_names_the_lines_of_its_share(self, tmp_path):
        (tmp_path / "pairs.tsv").write_text("en\tde\na\tb\nc\td\ne\tf\ng\t\n")
        with pytest.raises(CorpusError, match=r"pairs\.tsv line 5: 1 texts"):
            list(load_translations(tmp_path / "pairs.tsv", streaming=True).shard(2, 1))


class TestFolders:
    def rows(self, corpus):
        return [row | {"image": row["image"].tobytes()} for row in corpus]

    def test_a_saved_corpus_holds_its_images(self, photos, tmp_path):
        corpus = load_captions(photos)
        expected = self.rows(corpus)
        corpus.save_to_disk(tmp_path / "saved")
        shutil.rmtree(photos)
        assert self.rows(load_captions(tmp_path / "saved", split="train")) == expected[:2]

    def test_another_data_set_of_the_same_name(self, tmp_path):
        """Neither one in another folder nor an earlier one in the same folder is taken for it."""
        configs = "configs: [{config_name: default, data_files: [{split: train, path: 'data/*.parquet'}]}]"
        for colour, folder in [("red", "one"), ("green", "two"), ("blue", "two")]:
            saved = tmp_path / folder / "saved"
            (saved / "data").mkdir(parents=True, exist_ok=True)
            (saved / "README.md").write_text(f"---\n{configs}\n---\n")
            Dataset.from_dict({"features": [[1.0]], "text_en": [colour]}).to_parquet(saved / "data" / "0.parquet")
            for _ in ("read", "from the cache"):
                assert load_captions(saved)["captions"][0][0]["text"] == colour
