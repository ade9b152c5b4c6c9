import copy
import json
import os
import signal

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelens.inference.embed import EmbeddingJob, embed_on_ray, embed_source, parse_columns, read_info, shard_files
from babelens.inference.embedder import Embedder
from babelens.inference.image_index import image_identity
from babelens.utils.errors import CorpusError, InputError
from tests.support.image_sources import contents, drawn, write_images, write_parquet, write_tars
from tests.support.killed_saving import forked
from tests.support.tiny_native import saved, tiny_clip


@pytest.fixture(scope="module")
def embedder():
    return Embedder(*tiny_clip(), batch_size=4)


def job_of(source, output, columns=(), **settings):
    return EmbeddingJob(str(source), output, columns=parse_columns(columns), **settings)


def run(embedder, source, output, columns=(), **settings):
    counts = embed_source(embedder, job_of(source, output, columns, **settings), model="tiny")
    table = table_of(output)
    return counts, table["id"].to_pylist(), np.array(table["embedding"].to_pylist(), np.float16)


def expected(embedder, numbers):
    return embedder.encode_image([drawn(number) for number in numbers])


def table_of(folder):
    return pa.concat_tables(map(pq.read_table, shard_files(folder)))


def test_every_source_gives_the_same_embeddings(embedder, tmp_path):
    numbers = range(8)
    vectors = expected(embedder, numbers)
    lines = [{"file_name": f"{'inner/' if n % 2 else ''}{n:04}.png", "image_id": f"{n:04}"} for n in numbers]
    folder = write_images(tmp_path / "images", numbers)
    (folder / "images.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    write_parquet(tmp_path / "parquet" / "a.parquet", range(4))
    write_parquet(tmp_path / "parquet" / "b.parquet", range(4, 8))
    write_parquet(tmp_path / "plain.parquet", numbers, plain=True)
    fsspec.filesystem("memory").pipe("/embed/plain.parquet", (tmp_path / "plain.parquet").read_bytes())
    named = [f"{n:04}" for n in numbers]
    sources = {
        "tars": (write_tars(tmp_path / "tars", 2, 4), named),
        "pattern": (tmp_path / "tars" / "{000..001}.tar", named),
        "parquet": (tmp_path / "parquet", named),
        "plain": (tmp_path / "plain.parquet", [f"plain:{n}" for n in numbers]),
        "address": ("memory://embed/plain.parquet", [f"plain:{n}" for n in numbers]),
        "lines": (folder / "images.jsonl", named),
    }
    for name, (source, names) in sources.items():
        counts, ids, found = run(embedder, source, tmp_path / "out" / name, shard_size=4)
        assert ids == names and (counts.read, counts.embedded, counts.skipped) == (8, 8, {}), name
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, vectors, atol=1e-3)
    _, ids, found = run(embedder, folder, tmp_path / "out" / "folder", shard_size=3)
    assert ids == [f"{n:04}.png" for n in (0, 2, 4, 6)] + [f"inner/{n:04}.png" for n in (1, 3, 5, 7)]
    np.testing.assert_allclose(found, vectors[[0, 2, 4, 6, 1, 3, 5, 7]], atol=1e-3)
    assert [pq.read_metadata(file).num_rows for file in shard_files(tmp_path / "out" / "folder")] == [3, 3, 2]
    info = read_info(tmp_path / "out" / "folder")
    assert (info.model, info.dimension) == ("tiny", 16)
    assert info.fingerprint == image_identity(embedder.model, embedder.processor)


def test_metadata_are_kept_with_their_types(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 1, 5)
    counts, _, _ = run(embedder, tars, tmp_path / "out", ["url", "width:int", "captions", "license"])
    table = table_of(tmp_path / "out")
    assert table["url"].to_pylist()[4] == "https://example.org/4" and table["width"].type == pa.int64()
    assert json.loads(table["captions"][3].as_py()) == {"en": "image 3"}
    assert counts.missing == {"license": 5} and table["license"].null_count == 5
    write_parquet(tmp_path / "a.parquet", range(3))
    run(embedder, tmp_path / "a.parquet", tmp_path / "own", ["width"])
    assert table_of(tmp_path / "own")["width"].type == pa.int16()
    with pytest.raises(CorpusError, match="height"):
        run(embedder, tmp_path / "a.parquet", tmp_path / "none", ["height"])
    with pytest.raises(CorpusError, match="url"):  # no image has a number there
        run(embedder, tars, tmp_path / "wrong", ["url:int"])
    for column in ("id", "a:date"):
        with pytest.raises(InputError, match=column):
            parse_columns([column])


def test_bad_images_are_skipped_counted_and_named(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 6, broken=(1, 7, 8))
    counts, ids, _ = run(embedder, tars, tmp_path / "out")
    assert len(ids) == 9 and not {"0001", "0007", "0008"} & set(ids)
    assert (counts.read, counts.embedded, counts.skipped, counts.missing) == (12, 9, {"unreadable image": 3}, {})
    skipped = [json.loads(line) for line in (tmp_path / "out" / "skipped-000001.jsonl").read_text().splitlines()]
    assert [each["id"] for each in skipped] == ["0007", "0008"] and "001.tar 0007: " in skipped[0]["reason"]
    assert run(embedder, tars, tmp_path / "out")[0] == counts
    pq.write_table(pa.table({"image": [{"bytes": drawn(0)}, {"bytes": None}]}), tmp_path / "a.parquet")
    counts, ids, _ = run(embedder, tmp_path / "a.parquet", tmp_path / "bytes")
    assert ids == ["a:0"] and counts.skipped == {"no image": 1}
    with pytest.raises(CorpusError, match=r"none of 4 .*000\.tar 0000"):
        run(embedder, write_tars(tmp_path / "few", 1, 4, broken=(0, 1, 2, 3)), tmp_path / "none")


def test_files_of_a_folder_that_are_skipped_are_named_once(embedder, tmp_path, caplog):
    folder = write_images(tmp_path / "images", range(3))
    (folder / ".thumbnails").mkdir()
    (folder / ".thumbnails" / "a.png").write_bytes(drawn(0))
    (folder / "a.cr2").touch()
    counts, ids, _ = run(embedder, folder, tmp_path / "out", shard_size=2)
    assert counts.read == len(ids) == 3
    assert caplog.text.count("a.cr2") == 1 and "thumbnails" not in caplog.text


def test_a_shard_that_cannot_be_read_does_not_stop_the_others(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 3, 4)
    whole = (tars / "001.tar").read_bytes()
    (tars / "001.tar").write_bytes(whole[:3000])
    with pytest.raises(CorpusError, match=r"1 of 3 shards could not be read.*001\.tar"):
        run(embedder, tars, tmp_path / "out")
    assert [file.name for file in shard_files(tmp_path / "out")] == ["shard-000000.parquet", "shard-000002.parquet"]
    (tars / "001.tar").write_bytes(whole)
    counts, ids, found = run(embedder, tars, tmp_path / "out")
    assert counts.embedded == counts.read == 12 and ids == [f"{n:04}" for n in range(12)]
    np.testing.assert_allclose(found, expected(embedder, range(12)), atol=1e-3)


def test_sources_that_cannot_be_used(embedder, tmp_path):
    folder = write_images(tmp_path / "images", range(3))
    with pytest.raises(CorpusError, match="no such file"):
        run(embedder, tmp_path / "nothing", tmp_path / "out")
    with pytest.raises(CorpusError, match="nonsense"):
        run(embedder, "nonsense://a.tar", tmp_path / "out")
    for lines, word in (('{"file_name": "0000.png"}\n' * 2, "twice"), ('{"file_name": "../0000.png"}', "leaves")):
        (folder / "a.jsonl").write_text(lines)
        with pytest.raises(CorpusError, match=word):
            run(embedder, folder / "a.jsonl", tmp_path / "out")
    pq.write_table(pa.table({"image": ["a.png"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"a\.parquet row 0"):
        run(embedder, tmp_path / "a.parquet", tmp_path / "column")


def test_texts(embedder, tmp_path):
    texts, languages = ["ein rotes auto", "a house", "une maison", "x"], ["de", "en", "fr", "en"]
    rows = [{"text": text, "language": tag.upper()} for text, tag in zip(texts, languages, strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    (tmp_path / "t.txt").write_text("\n".join(texts))
    vectors = embedder.encode_text(texts, language="en")
    for name in ("t.jsonl", "t.parquet", "t.txt"):
        settings = {"what": "texts", "language": "en" if name == "t.txt" else None, "shard_size": 3}
        counts, ids, found = run(embedder, tmp_path / name, tmp_path / "out" / name, **settings)
        first = 0 if name == "t.parquet" else 1
        assert counts.embedded == 4 and ids == [f"t:{number}" for number in range(first, 4 + first)]
        np.testing.assert_allclose(found, vectors, atol=1e-3)
        table = table_of(tmp_path / "out" / name)
        assert table["text"].to_pylist() == texts
        assert table["language"].to_pylist() == (["en"] * 4 if name == "t.txt" else languages)
    (tmp_path / "t.txt").write_text("a\n\nb\n")
    with pytest.raises(CorpusError, match="line 2"):
        run(embedder, tmp_path / "t.txt", tmp_path / "none", what="texts", language="en")
    (tmp_path / "t.jsonl").write_text('{"text": "ein Auto", "language": "de"}\n{"text": "赤", "language": "jp"}\n')
    with pytest.raises(CorpusError, match="line 2"):
        run(embedder, tmp_path / "t.jsonl", tmp_path / "wrong", what="texts")


def test_another_model_source_or_setting_is_refused(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 4)
    run(embedder, tars, tmp_path / "out", ["width:int"])
    before = contents(tmp_path / "out")
    model = copy.deepcopy(embedder.model)
    model.visual_projection.weight.data.mul_(-1)
    other = Embedder(model, embedder.processor)
    refusals = [
        (other, tars, {"columns": ["width:int"]}, "another model"),
        (embedder, tars, {"columns": ["width"]}, "columns"),
        (embedder, tars, {"columns": ["width:int"], "precision": "bfloat16"}, "precision"),
        (embedder, tars / "001.tar", {"columns": ["width:int"]}, "source"),
    ]
    for encoder, source, settings, word in refusals:
        with pytest.raises(InputError, match=word):
            run(encoder, source, tmp_path / "out", **settings)
    assert contents(tmp_path / "out") == before
    write_tars(tmp_path / "tars", 3, 4)
    counts, ids, _ = run(embedder, tars, tmp_path / "out", ["width:int"])  # new shards at the end are embedded
    assert (counts.embedded, len(shard_files(tmp_path / "out")), len(ids)) == (12, 3, 12)
    (tars / "002.tar").unlink()
    with pytest.raises(InputError, match="no longer"):
        run(embedder, tars, tmp_path / "out", ["width:int"])


def test_an_image_that_was_replaced_is_embedded_again(embedder, tmp_path, caplog):
    source = write_images(tmp_path / "images", range(0, 8, 2))
    run(embedder, source, tmp_path / "out", shard_size=2)
    before = contents(tmp_path / "out")
    (source / "0004.png").write_bytes((source / "0000.png").read_bytes())
    _, ids, found = run(embedder, source, tmp_path / "out", shard_size=2)
    assert ids == ["0000.png", "0002.png", "0004.png", "0006.png"]
    np.testing.assert_allclose(found, expected(embedder, [0, 2, 0, 6]), atol=1e-3)
    after = contents(tmp_path / "out")
    assert {name for name in before if before[name] != after[name]} == {"shard-000001.parquet"}
    assert "embedding it again" in caplog.text


def test_lines_that_were_changed_are_embedded_again(embedder, tmp_path):
    file, settings = tmp_path / "t.txt", {"what": "texts", "language": "de", "shard_size": 2}
    file.write_text("eins\nzwei\ndrei\nvier")
    _, _, before = run(embedder, file, tmp_path / "texts", **settings)
    file.write_text("eins\nzwei\ndrei\nrund\nneu")
    _, _, after = run(embedder, file, tmp_path / "texts", **settings)
    assert (before[:3] == after[:3]).all() and (before[3] != after[3]).any() and len(after) == 5


def test_killed_and_resumed(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 4, 6, broken=(3,))
    run(embedder, tars, tmp_path / "whole", ["url"])
    for batches in (1, 4):  # in the first shard, and in a later one
        child = forked()
        if child == 0:
            encode, left = embedder.encode_prepared, iter(range(batches))

            def encode_and_die(*arguments, encode=encode, left=left):
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return encode(*arguments)

            embedder.encode_prepared = encode_and_die
            embed_source(embedder, job_of(tars, tmp_path / "out", ["url"]), model="tiny")
            os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert all(len(table) for table in map(pq.read_table, shard_files(tmp_path / "out")))
    assert 1 <= len(shard_files(tmp_path / "out")) < 4
    run(embedder, tars, tmp_path / "out", ["url"])
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it starts two clusters, which takes over five minutes on a busy machine
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_ray_writes_what_one_process_writes(embedder, tmp_path):
    pytest.importorskip("ray")
    folder = saved((embedder.model, embedder.processor), tmp_path / "clip")
    tars = write_tars(tmp_path / "tars", 5, 3, broken=(3, 9))
    alone = embed_source(Embedder.from_pretrained(folder, batch_size=4), job_of(tars, tmp_path / "alone"), model="m")
    counts = embed_on_ray(str(folder), job_of(tars, tmp_path / "out"), batch_size=4)
    assert counts == alone
    for name, content in contents(tmp_path / "alone").items():
        assert name == "embeddings.json" or (tmp_path / "out" / name).read_bytes() == content
    (tars / "002.tar").write_bytes(b"none")
    with pytest.raises(CorpusError, match=r"1 of 5 shards.*002\.tar"):
        embed_on_ray(str(folder), job_of(tars, tmp_path / "out"), batch_size=4)
