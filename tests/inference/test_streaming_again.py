"""Embeddings as shards, in a folder that has some: what is embedded again, and what is refused."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from babelens.inference.embedder import Embedder
from babelens.inference.embedding_shards import read_info, write_info
from babelens.utils.errors import ChangedRunError
from tests.support.embedded_sources import embed as run, expected
from tests.support.image_sources import contents, write_images, write_parquet, write_tars
from tests.support.tiny_native import tiny_clip


@pytest.fixture(scope="module")
def embedder():
    return Embedder(*tiny_clip(), batch_size=4)


def test_another_model_source_or_setting_is_refused(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 4)
    run(embedder, tars, tmp_path / "out", ["width:int"])
    before = contents(tmp_path / "out")
    model = copy.deepcopy(embedder.model)
    model.visual_projection.weight.data.mul_(-1)
    other = Embedder(model, embedder.processor)
    refusals = [
        (other, tars, {"columns": ["width:int"]}, "embeddings of another model, tiny"),
        (embedder, tars, {"columns": ["width"]}, "other settings .columns"),
        (embedder, tars, {"columns": ["width:int"], "dtype": "float32"}, "dtype float16 instead of float32"),
        (embedder, tars / "001.tar", {"columns": ["width:int"]}, "was made of 000.tar, where .*001.tar"),
        (embedder, tars / "000.tar", {"columns": ["width:int"]}, "shard-000001.parquet belongs to no shard"),
    ]
    for encoder, source, settings, message in refusals:
        with pytest.raises(ChangedRunError, match=message):
            run(encoder, source, tmp_path / "out", **settings)
    assert contents(tmp_path / "out") == before
    write_tars(tmp_path / "tars", 3, 4)
    counts, ids, _ = run(embedder, tars, tmp_path / "out", ["width:int"])  # new shards at the end are embedded
    assert (counts.embedded, counts.shards, len(ids)) == (12, 3, 12)


@pytest.mark.parametrize("kind", ["folder", "lines"])
def test_an_image_that_was_replaced_is_embedded_again(embedder, tmp_path, kind, caplog):
    """With the same name and in the same number of bytes; and no other shard than its own."""
    source = write_images(tmp_path / "images", range(0, 8, 2))
    if kind == "lines":
        names = [{"file_name": f"{number:04}.png"} for number in range(0, 8, 2)]
        (source / "images.jsonl").write_text("\n".join(map(json.dumps, names)))
    given = source / "images.jsonl" if kind == "lines" else source
    run(embedder, given, tmp_path / "out", shard_size=2)
    before = contents(tmp_path / "out")
    (source / "0004.png").write_bytes((source / "0000.png").read_bytes())
    counts, ids, found = run(embedder, given, tmp_path / "out", shard_size=2)
    assert (counts.embedded, ids) == (4, ["0000.png", "0002.png", "0004.png", "0006.png"])
    np.testing.assert_allclose(found, expected(embedder, [0, 2, 0, 6]), atol=1e-3)
    after = contents(tmp_path / "out")
    assert {name for name in before if before[name] != after[name]} == {"shard-000001.parquet"}
    assert "embedded again" in caplog.text


@pytest.mark.parametrize("kind", ["tar", "parquet", "memory"])
def test_a_file_of_images_that_was_replaced_is_embedded_again(embedder, tmp_path, kind):
    import fsspec

    source: object = tmp_path / "new.parquet" if kind == "parquet" else f"memory://replaced/{tmp_path.name}.parquet"
    for numbers in (range(3), range(3, 6)):
        if kind == "tar":
            source = write_tars(tmp_path / f"tars {numbers.start}", 2, 3) / f"{numbers.start // 3:03}.tar"
            source = source.replace(tmp_path / "a.tar")
        else:
            write_parquet(tmp_path / "new.parquet", numbers)
            fsspec.filesystem("memory").pipe(str(source), (tmp_path / "new.parquet").read_bytes())
        _, _, found = run(embedder, source, tmp_path / "out")
        np.testing.assert_allclose(found, expected(embedder, numbers), atol=1e-3)


def test_a_line_that_was_changed_is_embedded_again(embedder, tmp_path):
    file, settings = tmp_path / "t.txt", {"what": "texts", "language": "de", "shard_size": 2}
    file.write_text("eins\nzwei\ndrei\nvier")
    _, _, before = run(embedder, file, tmp_path / "out", ["text", "language"], **settings)
    file.write_text("eins\nzwei\ndrei\nrund")  # of the same length
    _, _, after = run(embedder, file, tmp_path / "out", ["text", "language"], **settings)
    assert (before[:3] == after[:3]).all() and (before[3] != after[3]).any()


def test_a_folder_of_an_earlier_version_is_refused(embedder, tmp_path):
    """It does not state with which configuration it was begun."""
    tars = write_tars(tmp_path / "tars", 1, 4)
    run(embedder, tars, tmp_path / "out")
    info = read_info(tmp_path / "out")
    write_info(tmp_path / "out", replace(info, fingerprint=info.fingerprint.split("-")[0]))
    with pytest.raises(ChangedRunError, match="earlier version"):
        run(embedder, tars, tmp_path / "out")


def test_lines_of_another_size_are_noticed(embedder, tmp_path):
    file, settings = tmp_path / "t.txt", {"what": "texts", "language": "de", "shard_size": 2}
    file.write_bytes(b"eins\nzwei\ndrei\nvier")
    run(embedder, file, tmp_path / "out", ["text", "language"], **settings)
    file.write_bytes(b"eins\nzwei\ndrei\nviermal")
    with pytest.raises(ChangedRunError, match=r"made of t\.txt byte 10, 2 lines of 8 bytes.* 2 lines of 11 bytes"):
        run(embedder, file, tmp_path / "out", ["text", "language"], **settings)
    file.write_bytes(b"eins\nzwei\ndrei\nvier\nneu")  # lines at the end are embedded
    counts, _, _ = run(embedder, file, tmp_path / "out", ["text", "language"], **settings)
    assert counts.embedded == 5
