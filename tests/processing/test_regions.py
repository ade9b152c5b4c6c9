import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

from babelens.processing.regions import open_regions
from babelens.utils.errors import InputError
from tests.support.region_files import write_h5, write_serial

IDS = ["1000092795.jpg", "COCO_val2014_000000042.jpg", "id-201_0.jpg"]
KINDS = ["h5", "lmdb"]


def published(count: int = 36, size: int = 2048, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0, 300, (count, 4)).astype(np.float32)
    return {"features": rng.standard_normal((count, size)).astype(np.float32), "boxes": boxes}


def write(kind: str, folder: Path, images: dict[str, dict]) -> Path:
    folder.mkdir(exist_ok=True)
    if kind == "h5":
        write_h5(folder / "flickr30k_boxes36.h5", images)
        return folder / "flickr30k_boxes36.h5"
    # VOLTA's record of an image of Conceptual Captions has thirteen parts; the id is the twelfth.
    records = [[items["features"], *[None] * 10, image_id, "a caption"] for image_id, items in images.items()]
    return write_serial(folder / "training_feat_all.lmdb", records)


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_features_that_were_written(kind, tmp_path):
    images = {image_id: published(36 - row, seed=row) for row, image_id in enumerate(IDS)}
    regions = open_regions(write(kind, tmp_path / "made", images))
    assert sorted(regions) == sorted(IDS) and len(regions) == 3
    for image_id, items in images.items():
        assert image_id in regions and regions[image_id].dtype == np.float32
        np.testing.assert_array_equal(regions[image_id], items["features"])
    assert "__keys__" not in regions and 7 not in regions and regions.get("missing") is None


def _check(regions, expected: dict[str, float]) -> None:
    assert {image_id: float(regions[image_id].sum()) for image_id in expected} == expected


@pytest.mark.parametrize("kind", ["h5", "lmdb"])
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


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("1000092795", "1000092795.jpg"),  # flickr30k_boxes36.h5, and Multi30K's and xFlickr&CO's names
        ("1000092795.jpg", "1000092795"),  # xflickrco-test_boxes36.h5, and XVNLI's names
        ("39-n-5", "id/39-n-5"),  # marvl-id_boxes36.h5
    ],
)
def test_an_image_is_found_with_and_without_its_ending(stored, asked, tmp_path):
    regions = open_regions(write("h5", tmp_path, {stored: published(2, 8)}), region_size=8)
    assert asked in regions and f"{asked}x" not in regions
    np.testing.assert_array_equal(regions[asked], published(2, 8)["features"])


def test_images_of_one_name_in_several_languages_are_told_apart(tmp_path):
    for seed, language in enumerate(("id", "zh")):
        write_h5(tmp_path / f"marvl-{language}_boxes36.h5", {"39-n-5": published(2, 8, seed)})
    write_h5(tmp_path / "nlvr2_boxes36.h5", {"dev-850-0-img0": published(2, 8, 2)})
    names = [str(tmp_path / name) for name in ("nlvr2_boxes36.h5", "marvl-{language}_boxes36.h5")]
    regions = open_regions(names, region_size=8)
    assert list(regions) == ["dev-850-0-img0", "id/39-n-5", "zh/39-n-5"]
    for seed, image_id in enumerate(("id/39-n-5", "zh/39-n-5", "dev-850-0-img0")):
        np.testing.assert_array_equal(regions[image_id], published(2, 8, seed)["features"])
    for image_id in ("sw/39-n-5", "39-n-5", "zh/39-n-6"):
        assert image_id not in regions
        with pytest.raises(InputError, match="there is no such image"):
            regions[image_id]
    apart = open_regions([path for _, path in regions.files[1:]], region_size=8)
    with pytest.raises(InputError, match=r"have images of that name.*one path with \{language\} in it"):
        apart["zh/39-n-5"]
    with pytest.raises(InputError, match="no such file for any language"):
        open_regions([str(tmp_path / "other-{language}.h5")])


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files_are_refused(kind, tmp_path):
    path = write(kind, tmp_path, {"a": published(), "b": published(seed=1)})
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size * 2 // 3)
    with pytest.raises(InputError, match=str(path)):  # when it is opened, or when it is read
        open_regions(path)["b"]


class Program:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return (Path.touch, (self.file,))


def test_a_pickle_never_runs_anything(tmp_path):
    record = [Program(tmp_path / "ran"), *["x"] * 12]
    regions = open_regions(write_serial(tmp_path / "a.lmdb", [record], pickle.dumps))
    with pytest.raises(InputError, match="record 00000000: cannot be read"):
        list(regions)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Program(tmp_path / "ran")))  # which it would have
    assert (tmp_path / "ran").exists()


def test_paths_that_have_no_regions_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        open_regions(tmp_path / "missing.h5")
    (tmp_path / "a.txt").touch()
    for path in (tmp_path / "a.txt", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            open_regions(path)
