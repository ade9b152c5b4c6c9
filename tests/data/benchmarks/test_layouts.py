import json
from pathlib import Path

import pytest
from datasets import Image

from babelens.data.benchmarks import PROTOCOLS, benchmark_names, find_benchmark
from babelens.data.readers.coco import READERS
from babelens.utils.errors import CorpusError
from tests.support.published_layouts import BENCHMARKS, FLICKR, TEST, caption, coco_name
from tests.support.published_rc3 import write_text

XTD = find_benchmark("xtd").languages


def captions(number, *tags, kinds=(0, 1)):
    return [(tag, caption(tag, number, kind)) for tag in tags for kind in kinds]


COCO, STAIR, KOREAN = (
    {coco_name(each): captions(each, tag, kinds=kinds) for each in TEST}
    for tag, kinds in (("en", (0, 1)), ("ja", (0, 1)), ("ko", (0,)))
)
EXPECTED = {
    "coco-1k": COCO,
    "coco-5k": COCO,
    "stair-1k": STAIR,
    "stair-5k": STAIR,
    "coco-ko": KOREAN,
    "coco-cn": {
        coco_name(TEST[0]): [("zh", "一只狗")],
        coco_name(TEST[1], "train2014"): [("zh", "两只猫"), ("zh", "猫在睡觉")],
    },
    "flickr30k": {FLICKR[3]: captions(3, "en", kinds=range(5))},
    "multi30k": {
        name: captions(n, "en", "de", kinds=range(1, 6)) + captions(n, "fr", "cs", kinds=(0,))
        for n, name in enumerate(FLICKR)
    },
    "multi30k-task1": {name: captions(n, "en", "de", "fr", "cs", kinds=(0,)) for n, name in enumerate(FLICKR)},
    "xtd": {
        name: [(tag, f"{'jp' if tag == 'ja' else tag} {word}") for tag in XTD]
        for name, word in ((coco_name(TEST[0], "train2014"), "one"), (coco_name(TEST[1]), "two"))
    },
}


def read(name, root, languages=None):
    return READERS[name](root, languages or find_benchmark(name).languages)


def texts(corpus):
    rows = corpus.remove_columns("image")
    return {row["image_id"]: [(each["language"], each["text"]) for each in row["captions"]] for row in rows}


@pytest.fixture
def write(tmp_path):
    def write(name):
        BENCHMARKS[name](tmp_path / name)
        return tmp_path / name

    return write


def test_every_benchmark_has_a_reader_a_protocol_and_a_copy_here():
    assert set(benchmark_names()) == set(READERS) == set(BENCHMARKS) == {*EXPECTED, "cxc"}
    for name in benchmark_names():
        benchmark = find_benchmark(name)
        assert benchmark.protocol in PROTOCOLS
        assert benchmark.languages == benchmark.chosen(benchmark.languages)
        for text in (benchmark.title, benchmark.license, benchmark.paper, benchmark.url, *benchmark.facts):
            assert text.strip() == text != ""
        for figures in benchmark.figures:
            assert all(len(values) == len(figures.columns) for values in figures.rows.values()), (name, figures.source)
            assert {figures.place(column)[0] for column in figures.columns} <= set(benchmark.languages)


@pytest.mark.parametrize("name", EXPECTED)
def test_captions_belong_to_their_images_and_a_missing_image_is_named(name, write):
    root = write(name)
    corpus = read(name, root)
    assert texts(corpus) == EXPECTED[name]
    assert all(image.size == (16, 16) for image in corpus["image"])
    image = Path(corpus.cast_column("image", Image(decode=False))[0]["image"]["path"])
    image.unlink()
    with pytest.raises(CorpusError, match=image.name):
        read(name, root)


def test_ratings_of_cxc_become_positives(write):
    data = read("cxc", write("cxc"))
    assert len(data.corpus) == 4 and data.image_of_text == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.positives("sts") == [[1, 2], [0], [0, 3], [2], [5], [4], [7], [6]]  # 2.99 is too little
    assert data.positives("sis") == [[2], [], [0], []]
    assert data.positives("sits") == [[0, 1], [0], [1], [1], [2], [2], [3], [3]]
    assert data.ratings["sits"].scores.tolist() == [5.0, 2.6, 2.4, 1.0, 0.3]
    assert data.ratings["sts"].pairs.tolist() == [[0, 1], [0, 2], [4, 7], [3, 6], [6, 5]]


def test_captions_must_cover_the_test_images(write, caplog):
    root = write("stair-5k")
    file = root / "stair_captions_v1.2_val.json"
    content = json.loads(file.read_text())
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] != TEST[2]]
    file.write_text(json.dumps(content))
    with pytest.raises(CorpusError, match=f"no caption of {TEST[2]}"):
        read("stair-5k", root)
    read("coco-ko", write("coco-ko"))
    assert "left out 8 empty captions (image 391895, image 60623" in caplog.text
    root = write("xtd")
    write_text(root / "XTD10/test_1kcaptions_ko.txt", "one")
    with pytest.raises(CorpusError, match=r"ko\.txt has 1 sentences for 2 images"):
        read("xtd", root)
    root = write("coco-cn")
    file = root / "coco-cn-version1805v1.1/imageid.human-written-caption.txt"
    for line in (f"{coco_name(TEST[0])} 一只狗", f"{coco_name(TEST[0])}#1\t "):
        write_text(file, line)
        with pytest.raises(CorpusError, match="line 1"):
            read("coco-cn", root)
