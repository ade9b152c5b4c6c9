"""Readers of published region features: every format gives the same, from any process; what is broken is refused."""

import base64
import multiprocessing
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from babelens.configuration.errors import RegionError
from babelens.processing.regions import SeveralRegions, open_regions

IDS = ["1000092795.jpg", "COCO_val2014_000000042.jpg", "id-201_0.jpg"]
KINDS = ["h5", "lmdb", "lmdb_base64", "npy", "npz"]


def published(count: int = 36, size: int = 2048, seed: int = 0) -> dict[str, np.ndarray | int]:
    """What IGLUE's extraction keeps of an image."""
    rng = np.random.default_rng(seed)
    return {
        "features": rng.standard_normal((count, size)).astype(np.float32),
        "boxes": rng.uniform(0, 300, (count, 4)).astype(np.float32),
        "obj_id": rng.integers(0, 1600, count),
        "obj_conf": rng.uniform(size=count).astype(np.float32),
        "attr_id": rng.integers(0, 400, count),
        "attr_conf": rng.uniform(size=count).astype(np.float32),
        "img_w": 500,
        "img_h": 375,
    }


def write_h5(path: Path, images: dict[str, dict]) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for image_id, items in images.items():
            group = file.create_group(image_id)
            for name, value in items.items():
                group[name] = value


def write_lmdb(path: Path, images: dict[str, dict], protocol: int = 3, encode=lambda array: array) -> None:
    """As IGLUE's `h5_to_lmdb.py`; with `encode`, arrays as in `npy_to_lmdb.py`."""
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 26) as database, database.begin(write=True) as transaction:
        for image_id, items in images.items():
            item = items | {"img_id": image_id, "img_h": np.int64(items["img_h"])}
            item |= {name: encode(items[name]) for name in ("features", "boxes")}
            transaction.put(image_id.encode(), pickle.dumps(item, protocol))
        transaction.put(b"keys", pickle.dumps([image_id.encode() for image_id in images], protocol))


def write(kind: str, folder: Path, images: dict[str, dict], name: str = "features") -> Path:
    folder.mkdir(exist_ok=True)
    if kind == "h5":
        write_h5(folder / "flickr30k_boxes36.h5", images)
        return folder / "flickr30k_boxes36.h5"
    if kind.startswith("lmdb"):
        encode = base64.b64encode if kind == "lmdb_base64" else lambda array: array
        write_lmdb(folder / "flickr30k_boxes36.lmdb", images, encode=encode)
        return folder / "flickr30k_boxes36.lmdb"
    for image_id, items in images.items():
        if kind == "npy":
            np.save(folder / f"{image_id}.npy", items["features"])
            np.save(folder / f"{image_id}_info.npy", {"bbox": items["boxes"]}, allow_pickle=True)
        else:
            np.savez_compressed(folder / f"{image_id}.npz", **{name: items["features"]}, bbox=items["boxes"])
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_features_that_were_written(kind, tmp_path):
    images = {image_id: published(36 - row, seed=row) for row, image_id in enumerate(IDS)}
    regions = open_regions(write(kind, tmp_path / "made", images))
    assert sorted(regions) == sorted(IDS) and len(regions) == 3
    for image_id, items in images.items():
        assert image_id in regions and regions[image_id].dtype == np.float32
        np.testing.assert_array_equal(regions[image_id], items["features"])
    assert "keys" not in regions and 7 not in regions and regions.get("missing") is None


def test_arrays_by_the_extractors_own_name_and_in_folders(tmp_path):
    items = published(2, 8)
    write("npz", tmp_path, {"1": items}, name="x")
    write("npy", tmp_path / "val", {"2": items})
    regions = open_regions(tmp_path, region_size=8)
    assert list(regions) == ["1", "val/2"]
    for image_id in regions:
        np.testing.assert_array_equal(regions[image_id], items["features"])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read(protocol, tmp_path):
    write_lmdb(tmp_path / "a.lmdb", {"a": published(2, 8)}, protocol)
    np.testing.assert_array_equal(open_regions(tmp_path / "a.lmdb", region_size=8)["a"], published(2, 8)["features"])


def test_pickles_of_older_numpy_are_read(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    data = pickle.dumps(published(2, 8), 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert b"numpy.core.multiarray" in data
    with lmdb.open(str(tmp_path / "a.lmdb")) as database, database.begin(write=True) as transaction:
        transaction.put(b"a", data)
    np.testing.assert_array_equal(open_regions(tmp_path / "a.lmdb", region_size=8)["a"], published(2, 8)["features"])


def _check(regions, expected: dict[str, float]) -> None:
    assert {image_id: float(regions[image_id].sum()) for image_id in expected} == expected


@pytest.mark.parametrize("kind", ["h5", "lmdb", "npy"])
def test_readers_work_in_other_processes(kind, tmp_path):
    images = {image_id: published(3, 8, row) for row, image_id in enumerate(IDS)}
    path = write(kind, tmp_path, images)
    regions, another = open_regions(path, region_size=8), open_regions(path, region_size=8)
    expected = {image_id: float(another[image_id].sum()) for image_id in IDS}
    for _ in range(2):  # what a process does with its reader is nothing to the next one
        process = multiprocessing.get_context("fork").Process(target=_check, args=(regions, expected), daemon=True)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        _check(regions, expected)
    _check(pickle.loads(pickle.dumps(regions)), expected)  # as to a process that is started afresh


# ---- Refusals ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        (published(0), RegionError, "image 'bad': no regions"),
        (published(37), RegionError, "image 'bad': 37 regions; the model reads at most 36"),
        (published(3, 1024), RegionError, "image 'bad': .*1024|3072"),
    ],
)
def test_regions_that_the_model_cannot_read_are_refused_by_name(kind, items, error, message, tmp_path):
    regions = open_regions(write(kind, tmp_path, {"good": published(), "bad": items}))
    assert regions["good"].shape == (36, 2048)
    with pytest.raises(error, match=message):
        regions["bad"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_not_there_is_refused_by_name(kind, tmp_path):
    regions = open_regions(write(kind, tmp_path, {"a": published(1)}))
    with pytest.raises(RegionError, match=r"image 'b\.jpg': there is no such image$"):
        regions["b.jpg"]


def test_several_files_are_as_one(tmp_path):
    for name, value in (("first/a", 1), ("second/a", 2), ("second/b", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", np.full((1, 4), value, np.float32))
    regions = SeveralRegions(*(open_regions(tmp_path / name, region_size=4) for name in ("first", "second")))
    assert {image_id: features[0, 0] for image_id, features in regions.items()} == {"a": 1, "b": 3}
    assert len(regions) == 2 and "c" not in regions
    with pytest.raises(RegionError, match=r"first, .*second, image 'c': there is no such image"):
        regions["c"]


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files_are_refused(kind, tmp_path):
    path = write(kind, tmp_path, {"a": published(), "b": published(seed=1)})
    for file in [path] if path.is_file() else path.glob("*[bz]" if kind != "npy" else "[ab].npy"):
        with file.open("r+b") as stream:
            stream.truncate(file.stat().st_size * 2 // 3)
    with pytest.raises(RegionError, match=str(path)):  # when it is opened, or when it is read
        open_regions(path)["b"]


def test_an_entry_that_is_none_is_refused(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "a.lmdb")) as database, database.begin(write=True) as transaction:
        for key, data in (("cut", pickle.dumps(published(2, 8))[:-40]), ("other", pickle.dumps({"x": 1}))):
            transaction.put(key.encode(), data)
    regions = open_regions(tmp_path / "a.lmdb", region_size=8)
    for image_id in ("cut", "other"):
        with pytest.raises(RegionError, match=f"image '{image_id}'"):
            regions[image_id]
    with pytest.raises(RegionError, match="no list of its images"):
        len(regions)
    np.savez(tmp_path / "a.npz", boxes=np.zeros(3))
    with pytest.raises(RegionError, match=r"has \['boxes'\], none of \['features', 'x'\]"):
        open_regions(tmp_path)["a"]


class Program:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return (Path.touch, (self.file,))


def test_a_pickle_never_runs_anything(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "a.lmdb")) as database, database.begin(write=True) as transaction:
        for key in (b"a", b"keys"):
            transaction.put(key, pickle.dumps({"features": Program(tmp_path / "ran")}))
    regions = open_regions(tmp_path / "a.lmdb")
    with pytest.raises(RegionError, match=r"a pickle that would run pathlib\.Path\.touch|run pathlib"):
        regions["a"]
    with pytest.raises(RegionError, match="a pickle that would run"):
        list(regions)
    np.save(tmp_path / "b.npy", np.array([Program(tmp_path / "ran")], dtype=object), allow_pickle=True)
    with pytest.raises(RegionError, match="'b'"):
        open_regions(tmp_path)["b"]
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Program(tmp_path / "ran")))  # which it would have
    assert (tmp_path / "ran").exists()


def test_paths_where_nothing_is_and_names_that_lead_out_are_refused(tmp_path):
    with pytest.raises(RegionError, match="no such file or folder"):
        open_regions(tmp_path / "missing.h5")
    (tmp_path / "a.txt").touch()
    with pytest.raises(RegionError, match="no folder"):
        open_regions(tmp_path / "a.txt")
    write("npy", tmp_path / "outside", {"a": published(1, 8)})
    write("npy", tmp_path / "inside", {"a": published(1, 8)})
    regions = open_regions(tmp_path / "inside", region_size=8)
    assert "a" in regions and "../outside/a" not in regions


@pytest.mark.parametrize(("name", "library"), [("a.h5", "h5py"), ("a.lmdb", "lmdb")])
def test_without_the_library_the_extra_is_named(name, library, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / name).mkdir()
    with pytest.raises(ImportError, match=rf"{library}: pip install babelens\[regions\]"):
        open_regions(tmp_path / name)
