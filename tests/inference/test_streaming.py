"""Embeddings as shards: what is read, kept, counted, skipped and refused."""

import json
import re
import threading
import tracemalloc
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from babelens.inference.embedder import Embedder
from babelens.inference.embedding_shards import read_info, shard_files
from babelens.inference.lookahead import results_ahead
from babelens.inference.streaming.job import parse_columns
from babelens.processing.processing_smalr import SmalrProcessor
from babelens.utils.errors import (
    BadImageError,
    BadTextError,
    ChangedRunError,
    CorpusError,
    InputError,
    LanguageTagError,
    ModelKindError,
    SaveError,
)
from babelens.utils.identity import index_identity
from babelens.utils.locks import locked
from tests.support.embedded_sources import embed as run, expected
from tests.support.image_sources import contents, drawn, write_images, write_parquet, write_tars
from tests.support.tiny_native import tiny_clip
from tests.support.tiny_text_encoders import saved_encoder


@pytest.fixture(scope="module")
def embedder():
    return Embedder(*tiny_clip(), batch_size=4)


def test_every_source_gives_the_same_embeddings(embedder, tmp_path):
    numbers = range(8)
    vectors = expected(embedder, numbers)
    lines = [{"file_name": f"{'inner/' if n % 2 else ''}{n:04}.png", "image_id": f"{n:04}"} for n in numbers]
    folder = write_images(tmp_path / "images", numbers)
    (folder / "images.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    write_parquet(tmp_path / "parquet" / "a.parquet", range(4))
    write_parquet(tmp_path / "parquet" / "b.parquet", range(4, 8))
    write_parquet(tmp_path / "plain.parquet", numbers, plain=True)
    sources = {
        "tars": (write_tars(tmp_path / "tars", 2, 4), [f"{n:04}" for n in numbers]),
        "pattern": (tmp_path / "tars" / "{000..001}.tar", [f"{n:04}" for n in numbers]),
        "parquet": (tmp_path / "parquet", [f"{n:04}" for n in numbers]),
        "plain": (tmp_path / "plain.parquet", [f"plain:{n}" for n in numbers]),
        "lines": (folder / "images.jsonl", [f"{n:04}" for n in numbers]),
    }
    for name, (source, names) in sources.items():
        counts, ids, found = run(embedder, source, tmp_path / "out" / name, shard_size=4)
        assert ids == names and (counts.read, counts.embedded, counts.skipped) == (8, 8, {}), name
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, vectors, atol=1e-3)
    _, ids, found = run(embedder, folder, tmp_path / "out" / "folder", shard_size=3, dtype="float32")
    assert ids == [f"{n:04}.png" for n in (0, 2, 4, 6)] + [f"inner/{n:04}.png" for n in (1, 3, 5, 7)]
    np.testing.assert_allclose(found, vectors[[0, 2, 4, 6, 1, 3, 5, 7]], atol=1e-6)
    assert [pq.read_metadata(file).num_rows for file in shard_files(tmp_path / "out" / "folder")] == [3, 3, 2]
    info = read_info(tmp_path / "out" / "folder")
    assert (info.model, info.dimension, info.dtype) == ("tiny", 16, "float32")
    assert info.fingerprint == index_identity(embedder.model, embedder.processor)


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_addresses_that_fsspec_opens(embedder, tmp_path, kind):
    import fsspec

    file = write_tars(tmp_path / "tars", 1, 3) / "000.tar" if kind == "tar" else tmp_path / "a.parquet"
    if kind == "parquet":
        write_parquet(file, range(3))
    fsspec.filesystem("memory").pipe(f"/shards/a.{kind}", file.read_bytes())
    _, ids, found = run(embedder, f"memory://shards/a.{kind}", tmp_path / "out")
    assert ids == ["0000", "0001", "0002"]
    np.testing.assert_allclose(found, expected(embedder, range(3)), atol=1e-3)


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_addresses_that_nothing_opens(embedder, tmp_path, kind):
    with pytest.raises(CorpusError, match=rf"nonsense://a\.{kind}: Protocol not known: nonsense"):
        run(embedder, f"nonsense://a.{kind}", tmp_path / "out")
    (tmp_path / f"folder.{kind}").mkdir()
    with pytest.raises(CorpusError) as caught:
        run(embedder, tmp_path / f"folder.{kind}" / f"none.{kind}", tmp_path / "none")
    assert str(caught.value).count(f"none.{kind}: ") == 1


def test_metadata_is_kept_with_its_types_and_what_is_missing_is_counted(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 1, 5)
    counts, _, _ = run(embedder, tars, tmp_path / "out", ["url", "width:int", "captions", "license"])
    table = pq.read_table(shard_files(tmp_path / "out")[0])
    assert table["url"].to_pylist()[4] == "https://example.org/4" and table["width"].type == pa.int64()
    assert json.loads(table["captions"][3].as_py()) == {"en": "image 3"}
    assert counts.missing == {"license": 5} and table["license"].null_count == 5
    write_parquet(tmp_path / "a.parquet", range(3))
    run(embedder, tmp_path / "a.parquet", tmp_path / "own", ["width"])
    assert pq.read_table(shard_files(tmp_path / "own")[0])["width"].type == pa.int16()
    with pytest.raises(CorpusError, match=r"a\.parquet: no column height; there are .*width"):
        run(embedder, tmp_path / "a.parquet", tmp_path / "none", ["height"])
    with pytest.raises(CorpusError, match=r"000\.tar 0000: url is 'https://example.org/0', and not .* int64"):
        run(embedder, tars, tmp_path / "wrong", ["url:int"])
    for columns, message in ((["id"], "'id' is no column"), (["a:date"], "there are text, int"), (["a", "a"], "once")):
        with pytest.raises(InputError, match=message):
            parse_columns(columns)


def test_metadata_of_another_type_is_named(embedder, tmp_path):
    """Also where it is pyarrow, and not babelens, that cannot convert it."""
    image = drawn(0)
    first, second = tmp_path / "in" / "a.parquet", tmp_path / "in" / "b.parquet"
    first.parent.mkdir()
    cases = [
        ("x", pa.array([datetime(2026, 1, 1)]), "text", "string"),
        ("x", pa.array([b"bytes"]), "text", "string"),
        ("x", pa.array([1], pa.int16()), None, "int16"),  # the type of the first file
        ("x", pa.array([None], pa.null()), None, "null"),
    ]
    for number, (name, values, kind, shown) in enumerate(cases):
        pq.write_table(pa.table({"image": [image], name: values}), first)
        pq.write_table(pa.table({"image": [image], name: [70_000]}), second)
        columns = [name if kind is None else f"{name}:{kind}"]
        counts, _, _ = run(embedder, first.parent, tmp_path / str(number), columns)
        reasons = [json.loads(each.read_text())["reason"] for each in (tmp_path / str(number)).glob("skipped-*")]
        assert counts.skipped == {"unusable metadata": 1}
        assert re.search(rf"\.parquet row 0: x is .*, and not of the column's type {shown}", reasons[0])
    (tmp_path / "a.jsonl").write_text('{"file_name": "a.png", "x": 1' + "0" * 400 + "}\n")
    with pytest.raises(CorpusError, match=r"line 1: x is 10+… .int., and not of the column's type double"):
        run(embedder, tmp_path / "a.jsonl", tmp_path / "long", ["x:float"])


def test_a_column_that_holds_no_images_is_refused(embedder, tmp_path):
    for number, values in enumerate((["a.png"], [1], [[1, 2]], [{"data": drawn(0)}])):
        pq.write_table(pa.table({"image": values}), tmp_path / "a.parquet")
        with pytest.raises(CorpusError, match=r"a\.parquet row 0: .* is no image: in a column `image` are the bytes"):
            run(embedder, tmp_path / "a.parquet", tmp_path / str(number))
    pq.write_table(pa.table({"image": [{"bytes": drawn(0)}, {"bytes": None}]}), tmp_path / "a.parquet")
    counts, ids, _ = run(embedder, tmp_path / "a.parquet", tmp_path / "bytes")
    assert ids == ["a:0"] and counts.skipped == {"no image": 1}


def test_threads_change_nothing(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 3, 9, broken=(2, 11))
    for workers in (0, 1, 3):
        run(embedder, tars, tmp_path / str(workers), ["url"], workers=workers)
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "3")


def test_large_images_are_prepared_in_parts(embedder, tmp_path, monkeypatch):
    tars = write_tars(tmp_path / "tars", 1, 7)
    _, _, whole = run(embedder, tars, tmp_path / "whole", dtype="float32")
    monkeypatch.setattr("babelens.inference.streaming.worker._PIXELS", 500)
    _, _, parts = run(embedder, tars, tmp_path / "parts", dtype="float32")
    np.testing.assert_array_equal(whole, parts)


def test_bad_images_are_skipped_counted_and_named(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 6, broken=(1, 7, 8))
    counts, ids, _ = run(embedder, tars, tmp_path / "out")
    assert (counts.read, counts.embedded, counts.skipped) == (12, 9, {"unreadable image": 3})
    assert len(ids) == 9 and not {"0001", "0007", "0008"} & set(ids)
    assert json.loads((tmp_path / "out" / "counts.json").read_text()) == {
        "read": 12,
        "embedded": 9,
        "skipped": {"unreadable image": 3},
        "missing": {},
        "shards": 2,
    }
    skipped = [json.loads(line) for line in (tmp_path / "out" / "skipped-000001.jsonl").read_text().splitlines()]
    assert [(each["id"], each["kind"]) for each in skipped] == [
        ("0007", "unreadable image"),
        ("0008", "unreadable image"),
    ]
    assert "001.tar 0007: " in skipped[0]["reason"]
    again, _, _ = run(embedder, tars, tmp_path / "out")
    assert again == counts


def test_a_source_without_an_image_that_can_be_read_is_refused(embedder, tmp_path):
    few = write_tars(tmp_path / "few", 3, 4, broken=tuple(range(12)))
    with pytest.raises(BadImageError, match=r"none of 12 .*000\.tar 0000"):
        run(embedder, few, tmp_path / "none")
    folder = write_images(tmp_path / "images", range(1))
    (folder / "0000.png").rename(folder / "0000.svg")
    with pytest.raises(CorpusError, match=r"SVG.*0000\.svg"):
        run(embedder, folder, tmp_path / "out")


def test_files_of_a_folder_that_are_skipped_are_named_once(embedder, tmp_path, caplog):
    folder = write_images(tmp_path / "images", range(3))
    (folder / ".thumbnails").mkdir()
    (folder / ".thumbnails" / "a.png").write_bytes(drawn(0))
    (folder / "a.cr2").touch()
    counts, ids, _ = run(embedder, folder, tmp_path / "out", shard_size=2)
    assert counts.read == len(ids) == 3
    assert caplog.text.count("a.cr2") == 1 and "1 of 4 files" in caplog.text and "thumbnails" not in caplog.text


def test_a_lower_precision(embedder, tmp_path):
    """Its embeddings are those of the same model under autocast, and do not mix with others in one folder."""
    tars = write_tars(tmp_path / "tars", 2, 4)
    _, _, exact = run(embedder, tars, tmp_path / "exact", dtype="float32")
    _, _, rounded = run(embedder, tars, tmp_path / "rounded", dtype="float32", precision="bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(rounded, np.concatenate([expected(embedder, range(k, k + 4)) for k in (0, 4)]))
    assert (rounded != exact).any()
    assert not torch.is_autocast_enabled("cpu") and embedder.model.dtype == torch.float32
    told = [read_info(tmp_path / name) for name in ("exact", "rounded")]
    assert told[0].fingerprint == told[1].fingerprint
    assert [info.settings["precision"] for info in told] == ["float32", "bfloat16"]
    for name, precision in (("exact", "bfloat16"), ("rounded", "float32")):
        with pytest.raises(ChangedRunError, match=f"precision .* instead of {precision}"):
            run(embedder, tars, tmp_path / name, dtype="float32", precision=precision)


def test_a_shard_that_cannot_be_read_does_not_stop_the_others(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 3, 4)
    whole = (tars / "001.tar").read_bytes()
    (tars / "001.tar").write_bytes(whole[:3000])
    for workers in (0, 2):
        with pytest.raises(CorpusError, match=r"1 of 3 shards could not be read, the others are complete.*001\.tar"):
            run(embedder, tars, tmp_path / "out", workers=workers)
        assert [file.name for file in shard_files(tmp_path / "out")] == [
            "shard-000000.parquet",
            "shard-000002.parquet",
        ]
    (tars / "001.tar").write_bytes(whole)
    counts, _, _ = run(embedder, tars, tmp_path / "out")
    assert counts.embedded == counts.read == 12
    run(embedder, tars, tmp_path / "unbroken")
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")


def test_a_damaged_shard_and_wrong_sums_are_noticed(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 1, 4)
    run(embedder, tars, tmp_path / "out")
    [shard] = shard_files(tmp_path / "out")
    written = shard.read_bytes()
    shard.write_bytes(written[:-10])
    with pytest.raises(CorpusError, match="is damaged"):
        run(embedder, tars, tmp_path / "out")
    assert written.count(b'"read": 4') == 1
    shard.write_bytes(written.replace(b'"read": 4', b'"read": 5'))
    with pytest.raises(CorpusError, match="4 embedded and 0 skipped are not the 5"):
        run(embedder, tars, tmp_path / "out")
    shard.unlink()
    counts, _, _ = run(embedder, tars, tmp_path / "out")
    assert counts.embedded == 4 and shard.read_bytes() == written


def test_one_process_at_a_time(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 1, 2)
    with locked(tmp_path / "out"), pytest.raises(SaveError, match="is in use by process"):
        run(embedder, tars, tmp_path / "out")
    run(embedder, tars, tmp_path / "out")


def test_unusable_records(embedder, tmp_path):
    folder = write_images(tmp_path / "images", range(3))
    with pytest.raises(CorpusError, match=r"images are read from tar shards, .*no such file"):
        run(embedder, tmp_path / "nothing", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="no images in this source"):
        run(embedder, tmp_path / "empty", tmp_path / "out")
    (folder / "a.jsonl").write_text('{"file_name": "0000.png"}\n{"file_name": "0000.png"}\n')
    with pytest.raises(CorpusError, match=r"a\.jsonl line 2: the id '0000.png' is given twice"):
        run(embedder, folder / "a.jsonl", tmp_path / "out")
    (folder / "a.jsonl").write_text('{"file_name": "../0000.png"}\n')
    with pytest.raises(CorpusError, match="leaves the folder"):
        run(embedder, folder / "a.jsonl", tmp_path / "out")
    table = pa.table({"image": [{"bytes": None, "path": None}, {"bytes": drawn(1), "path": None}], "image_id": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    counts, ids, _ = run(embedder, tmp_path / "a.parquet", tmp_path / "table")
    assert counts.skipped == {"no image": 1} and ids == ["2"]


def test_texts(embedder, tmp_path):
    texts = ["ein rotes auto", "a house", "une maison", "x"]
    languages = ["de", "en", "fr", "en"]
    rows = [{"text": text, "language": language} for text, language in zip(texts, languages, strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    (tmp_path / "t.txt").write_text("\n".join(texts))
    vectors = embedder.encode_text(texts, language="en")
    columns = ["text", "language"]
    for name in ("t.jsonl", "t.parquet", "t.txt"):
        settings = {"what": "texts", "language": "en" if name == "t.txt" else None, "shard_size": 3}
        output = tmp_path / "out" / name
        counts, ids, found = run(embedder, tmp_path / name, output, columns, **settings)
        first = 0 if name == "t.parquet" else 1
        assert counts.embedded == 4 and ids == [f"t:{number}" for number in range(first, 4 + first)]
        np.testing.assert_allclose(found, vectors, atol=1e-3)
        table = pa.concat_tables(map(pq.read_table, shard_files(output)))
        assert table["text"].to_pylist() == texts
        assert table["language"].to_pylist() == (["en"] * 4 if name == "t.txt" else languages)
    counts, _, found = run(embedder, tmp_path / "t.txt", tmp_path / "any", columns, what="texts")
    np.testing.assert_allclose(found, vectors, atol=1e-3)  # of a model for which it does not matter
    (tmp_path / "t.txt").write_text("a\n\nb\n")
    with pytest.raises(BadTextError, match=r"t\.txt line 2: there is no text"):
        run(embedder, tmp_path / "t.txt", tmp_path / "none", columns, what="texts", language="en")


def test_languages_of_texts(embedder, make_smalr, tmp_path):
    """They are named in one spelling; a parquet file may leave them to the job; no other one is needed."""
    columns = ["text", "language"]
    pq.write_table(pa.table({"text": ["ein Auto", "une maison"]}), tmp_path / "t.parquet")
    with pytest.raises(BadTextError, match=r"t\.parquet row 0: there is no language"):
        run(Embedder(*make_smalr()), tmp_path / "t.parquet", tmp_path / "none", columns, what="texts", language=None)
    run(
        embedder, tmp_path / "t.parquet", tmp_path / "all", what="texts", language="DE"
    )  # columns that texts always have
    assert pq.read_table(shard_files(tmp_path / "all")[0]).column_names == ["id", "embedding", *columns]
    assert pq.read_table(shard_files(tmp_path / "all")[0])["language"].to_pylist() == ["de", "de"]
    (tmp_path / "t.jsonl").write_text(
        '{"text": "ein Auto", "language": "DE"}\n{"text": "赤", "language": "zh_hant"}\n'
    )
    run(embedder, tmp_path / "t.jsonl", tmp_path / "spelled", columns, what="texts")
    assert pq.read_table(shard_files(tmp_path / "spelled")[0])["language"].to_pylist() == ["de", "zh-Hant"]
    (tmp_path / "t.jsonl").write_text('{"text": "ein Auto", "language": "de"}\n{"text": "赤", "language": "jp"}\n')
    with pytest.raises(LanguageTagError, match=r"t\.jsonl line 2: 'jp' names no registered language"):
        run(embedder, tmp_path / "t.jsonl", tmp_path / "wrong", columns, what="texts")


def test_a_model_without_english(make_smalr, tmp_path):
    """The width of its embeddings is found with a language that it has learned."""
    _, of_all = make_smalr()
    words = {language: reader.words for language, reader in of_all.vocabularies.items() if language != "en"}
    sizes = {"languages": [*words], "vocabulary_sizes": [len(each) for each in words.values()]}
    model, _ = make_smalr(**sizes)
    embedder = Embedder(model, SmalrProcessor(of_all.image_processor, words))
    (tmp_path / "t.jsonl").write_text('{"text": "ein Auto", "language": "de"}\n')
    counts, _, found = run(embedder, tmp_path / "t.jsonl", tmp_path / "out", ["text", "language"], what="texts")
    assert counts.embedded == 1
    np.testing.assert_allclose(found, embedder.encode_text("ein Auto", language="de"), atol=1e-3)


def test_encoders_of_texts_alone_are_refused(tmp_path):
    saved_encoder("bert", tmp_path / "e5")
    encoder = Embedder.from_pretrained(tmp_path / "e5", text_pooling="mean")
    with pytest.raises(ModelKindError, match="sees no images"):
        run(encoder, write_tars(tmp_path / "tars", 1, 1), tmp_path / "out")


def test_little_is_begun_ahead():
    begun, gate = [], threading.Semaphore(0)

    def job(number):
        begun.append(number)
        gate.acquire()
        return number

    def endless():
        number = 0
        while True:
            yield lambda number=number: job(number)
            number += 1

    results = results_ahead(endless(), workers=2)
    gate.release()
    assert next(results) == 0
    for _ in range(200):
        gate.release()
    assert [next(results) for _ in range(50)] == list(range(1, 51))
    assert max(begun) <= 51 + 8
    results.close()


def test_memory_does_not_grow_with_the_source(embedder, tmp_path):
    peaks = []
    for shards in (6, 24):  # enough to fill what works ahead
        tars = write_tars(tmp_path / f"tars{shards}", shards, 16)
        run(embedder, tars, tmp_path / f"warm{shards}", workers=1)
        tracemalloc.start()
        run(embedder, tars, tmp_path / f"out{shards}", workers=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]
