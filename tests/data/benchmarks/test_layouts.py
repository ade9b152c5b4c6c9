"""Each benchmark is read from a few rows of exactly its published layout, and refuses what is not that layout."""

import gzip
import json
from pathlib import Path

import pytest
from datasets import Image

from babelens.data.benchmarks.catalog import PROTOCOLS, benchmark_names, find_benchmark
from babelens.data.benchmarks.reading import READERS, read_benchmark
from babelens.utils.errors import BadImageError, BadTextError, BenchmarkError, CorpusError, LanguageTagError
from tests.support.published_benchmarks import FLICKR, TEST, VALIDATION, WRITERS, coco_name, write_text

# The languages that the small copies have, where these are not all of the benchmark.
COPIED = {"coco-35l": ("uk", "de")}
COCO = {
    coco_name(each): [("en", f"Thing {n} seen {word}.") for word in ("again", "once")] for n, each in enumerate(TEST)
}


def read(name: str, root: Path, languages: tuple[str, ...] | None = None):
    benchmark = find_benchmark(name)
    return read_benchmark(benchmark, root, languages or COPIED.get(name) or benchmark.languages)


def texts(corpus) -> dict[str, list[tuple[str, str]]]:
    rows = corpus.remove_columns("image")
    return {row["image_id"]: [(each["language"], each["text"]) for each in row["captions"]] for row in rows}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("babelens.data.readers.wit.DEFAULT_CACHE", tmp_path / "cache")


@pytest.fixture
def root(request, tmp_path) -> Path:
    WRITERS[request.param](tmp_path / "root")
    return tmp_path / "root"


def on(name: str):
    return pytest.mark.parametrize("root", [name], indirect=True)


def test_every_benchmark_has_a_reader_a_protocol_and_a_copy_here():
    assert set(benchmark_names()) == set(READERS) == set(WRITERS)
    for name in benchmark_names():
        benchmark = find_benchmark(name)
        assert benchmark.protocol in PROTOCOLS
        assert benchmark.languages == benchmark.chosen(benchmark.languages)
        for text in (benchmark.title, benchmark.license, benchmark.paper, benchmark.url, *benchmark.facts):
            assert text.strip() == text != ""
        for figures in benchmark.figures:
            assert all(len(values) == len(figures.columns) for values in figures.rows.values()), (name, figures.source)
            assert {figures.place(column)[0] for column in figures.columns} <= set(benchmark.languages)


EXPECTED = {
    "coco-1k": COCO,
    "coco-5k": COCO,
    "stair-1k": {coco_name(each): [("ja", f"絵{each}"), ("ja", f"写真{each}")] for each in TEST},
    "stair-5k": {coco_name(each): [("ja", f"絵{each}"), ("ja", f"写真{each}")] for each in TEST},
    "coco-ko": {coco_name(each): [("ko", f"물건 {each}")] for each in TEST},
    "coco-it": {coco_name(each): [("it", f"cosa {each}")] for each in TEST},
    "coco-35l": {
        coco_name(each): [("uk", f"річ {each} {n}") for n in (1, 2)] + [("de", f"Ding {each} {n}") for n in (1, 2)]
        for each in VALIDATION
    },
    "yj": {coco_name(each, "train2014"): [("ja", f"絵{each}"), ("ja", f"図{each}")] for each in TEST},
    "coco-cn": {
        coco_name(TEST[0]): [("zh", "一只狗")],
        coco_name(TEST[1], "train2014"): [("zh", "两只猫"), ("zh", "猫在睡觉")],
    },
    "flickr30k": {
        name: [("en", f"Person {n} {action}.") for action in ("runs", "sits", "eats", "naps", "sings")]
        for n, name in enumerate(FLICKR)
    },
    "multi30k": {
        name: [(tag, f"{tag} {word} {n}") for tag in ("en", "de") for n in range(1, 6)]
        + [("fr", f"fr {word}"), ("cs", f"cs {word}")]
        for name, word in zip(FLICKR, ("one", "two"), strict=True)
    },
    "multi30k-task1": {
        name: [(tag, f"{tag} {word}") for tag in ("en", "de", "fr", "cs")]
        for name, word in zip(FLICKR, ("one", "two"), strict=True)
    },
    "iglue-wit": {
        "wit-test_3": [("ar", "ar hall"), ("ar", "بون قديمة")]
        + [(tag, f"{tag} hall") for tag in ("bg", "da", "el", "en", "et", "id", "ja", "ko", "tr", "vi")],
        "wit-test_67": [("ar", "بحيرة")],
    },
}


@pytest.mark.parametrize(("root", "expected"), EXPECTED.items(), indirect=["root"], ids=EXPECTED)
def test_captions_belong_to_their_images(root, expected, request):
    name = request.node.callspec.id
    corpus = read(name, root)
    assert texts(corpus) == expected
    assert corpus.column_names == ["image", "image_id", "captions"]
    assert all(image.size == (16, 16) for image in corpus["image"])


@on("xtd")
def test_xtd_has_eleven_languages_in_three_folders(root):
    corpus = texts(read("xtd", root))
    names = ["jp" if tag == "ja" else tag for tag in find_benchmark("xtd").languages]
    first, second = (
        [(tag, f"{name} {word}") for tag, name in zip(find_benchmark("xtd").languages, names, strict=True)]
        for word in ("one", "two")
    )
    assert corpus == {coco_name(TEST[0], "train2014"): first, coco_name(TEST[1]): second}
    assert texts(read("xtd", root, ("ja", "de")))[coco_name(TEST[0], "train2014")] == [
        ("ja", "jp one"),
        ("de", "de one"),
    ]
    (root / "MIC/test_1kcaptions_en.txt").rename(root / "XTD10/test_1kcaptions_en.txt")  # as in newer versions
    assert texts(read("xtd", root)) == corpus


@on("xflickrco")
def test_xflickrco_has_images_of_two_data_sets(root):
    corpus = texts(read("xflickrco", root, ("de", "zh")))
    assert corpus == {name: [("de", f"de {name}"), ("zh", f"zh {name}")] for name in (FLICKR[0], coco_name(TEST[0]))}


@on("xm3600")
def test_xm3600_has_captions_in_36_languages(root):
    corpus = texts(read("xm3600", root))
    assert list(corpus) == ["00029d3b0c2d5b0a", "000411001ff7dd4f"]
    assert len({language for language, _ in corpus["00029d3b0c2d5b0a"]}) == 36
    of_quechua = [("quz", f"quz{again} 000411001ff7dd4f") for again in ("", " again")]
    assert texts(read("xm3600", root, ("quz",)))["000411001ff7dd4f"] == of_quechua


@on("wit")
def test_wit_has_reference_captions_by_the_address_of_the_image(root):
    corpus = texts(read("wit", root, ("en", "de", "fr", "tg")))
    assert sorted(map(sorted, corpus.values())) == [
        [("de", "Der Half Dome"), ("en", "Half Dome")],
        [("en", "Tonlé Sap")],
        [("fr", "fr town"), ("tg", "tg town")],
    ]


@on("tatoeba")
def test_tatoeba_has_a_translation_of_each_sentence(root):
    rows = read("tatoeba", root)["captions"]
    assert len(rows) == 3 * 111 and not any("kzj" in str(row) for row in rows)
    german = [[each["text"] for each in row] for row in read("tatoeba", root, ("de",))["captions"]]
    assert german == [["de one", "One."], ["de two", "Two."], ["de one", "The first."]]
    sizes = {name: len(languages) for name, languages in find_benchmark("tatoeba").groups.items()}
    assert sizes == {"m-USE's 14": 14, "XTREME's 36": 36, "LASER's 82": 82}


@on("cxc")
def test_ratings_of_cxc_become_positives(root):
    data = read("cxc", root)
    assert len(data.corpus) == 4 and data.image_of_text == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.positives("sts") == [[1, 2], [0], [0, 3], [2], [5], [4], [7], [6]]  # 2.99 is too little
    assert data.positives("sis") == [[2], [], [0], []]
    assert data.positives("sits") == [[0, 1], [0], [1], [1], [2], [2], [3], [3]]
    assert data.ratings["sits"].scores.tolist() == [5.0, 2.6, 2.4, 1.0, 0.3]
    assert data.ratings["sts"].pairs.tolist() == [[0, 1], [0, 2], [4, 7], [3, 6], [6, 5]]


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("root", WRITERS, indirect=True)
def test_a_missing_file_or_folder_is_named(root, request):
    name = request.node.callspec.id
    others = {
        "multi30k": ("task1/raw/test_2016_flickr.en", "task1/raw/test_2016_flickr.de"),
        "multi30k-task1": ("task2",),
        "tatoeba": ("kzj",),
    }
    needed = [path for path in root.rglob("*") if path.is_file() and path.suffix not in (".jpg", ".png")]
    folders = {root / path.relative_to(root).parts[0] for path in root.rglob("*.jpg")}
    assert needed and (folders or name == "tatoeba")
    if name == "tatoeba":  # the files of some of its many languages
        needed = [root / f"tatoeba.{code}-eng.{code}" for code in ("afr", "zsm")] + [root / "tatoeba.deu-eng.eng"]
    for path in (*needed, *folders):
        if any(part in str(path) for part in others.get(name, ())):  # which this benchmark does not read
            continue
        path.rename(root.parent / "away")
        part = path.name.removesuffix(".gz").replace("00000", "*").replace("00005", "*")
        with pytest.raises(CorpusError) as raised:
            read(name, root)
        shown = str(raised.value)
        assert part in shown or "images" in shown, shown
        if isinstance(raised.value, BenchmarkError):
            assert f"`babelens evaluate benchmark --benchmark {name}` shows what it needs" in shown
        (root.parent / "away").rename(path)
    read(name, root)


@pytest.mark.parametrize("root", [name for name in WRITERS if "wit" not in name and name != "tatoeba"], indirect=True)
def test_a_missing_image_is_named(root, request):
    name = request.node.callspec.id
    data = read(name, root)
    corpus = data.corpus if name == "cxc" else data
    image = Path(corpus.cast_column("image", Image(decode=False))[0]["image"]["path"])
    image.unlink()
    with pytest.raises(BadImageError, match=image.name):
        read(name, root)


def test_unknown_names_folders_and_languages_are_refused(tmp_path):
    with pytest.raises(BenchmarkError, match=r"there is no benchmark 'xdt'; there are coco-1k, .*xtd"):
        find_benchmark("xdt")
    with pytest.raises(BenchmarkError, match="there is no such folder; it should hold the files of xtd"):
        read_benchmark(find_benchmark("xtd"), tmp_path / "nowhere", ("de",))
    with pytest.raises(BenchmarkError, match="the benchmark xtd has no captions in sw; it has de, en"):
        find_benchmark("xtd").chosen(["de", "sw"])
    with pytest.raises(LanguageTagError):
        find_benchmark("xtd").chosen("jp")
    assert find_benchmark("xtd").chosen("DE") == ("de",)
    assert find_benchmark("wit").chosen(["en", "sw"]) == ("en", "sw")  # one of WIT's other languages


@on("coco-5k")
def test_a_karpathy_file_of_another_form_is_refused(root):
    file = root / "dataset_coco.json"
    content = json.loads(file.read_text())
    for change, message in (
        ({"images": {}}, "expected an object with a list of objects 'images'"),
        ({"images": [content["images"][0] | {"split": None}]}, r"image 0: 'split' should name something"),
        ({"images": [content["images"][-1]]}, "no image has the split 'test'"),
        ({"images": [content["images"][0] | {"filename": "1.jpg"}]}, "'1.jpg' is not the name of an image of COCO"),
        ({"images": [content["images"][0] | {"sentences": []}]}, "image 0: 'sentences' should be a list of objects"),
    ):
        file.write_text(json.dumps(content | change))
        with pytest.raises(BenchmarkError if "split' should" not in message else CorpusError, match=message):
            read("coco-5k", root)
    content["images"][1]["sentences"][0]["raw"] = " "
    file.write_text(json.dumps(content))
    with pytest.raises(BadTextError, match=r"image 1: 'raw' should be a text, and is ' '"):
        read("coco-5k", root)
    file.write_text("{")
    with pytest.raises(CorpusError, match=r"dataset_coco\.json: no JSON that can be used"):
        read("coco-5k", root)


@on("stair-5k")
def test_captions_must_cover_the_test_images(root):
    file = root / "stair_captions_v1.2_val.json"
    content = json.loads(file.read_text())
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] != TEST[2]]
    file.write_text(json.dumps(content))
    with pytest.raises(BenchmarkError, match=f"has no caption in ja of 1 of the 4 images: {TEST[2]}"):
        read("stair-5k", root)
    file.write_text(json.dumps({"annotations": [{"image_id": 1}]}))
    with pytest.raises(BadTextError, match=r"annotation 0: 'caption' should be a text"):
        read("stair-5k", root)


@on("coco-ko")
def test_empty_korean_captions_are_left_out_with_a_warning(root, caplog):
    read("coco-ko", root)
    assert "left out 4 empty captions, of the images 391895; 60623" in caplog.text
    (root / "MSCOCO_train_val_Korean.json").write_text(json.dumps([{"id": 1, "captions": ["a"]}]))
    with pytest.raises(BenchmarkError, match="entry 0: 'caption_ko' should be a list of texts"):
        read("coco-ko", root)


@on("coco-35l")
def test_translations_are_of_images_by_their_id(root):
    file = root / "coco_mt_dev.jsonl"
    record = json.loads(file.read_text().splitlines()[0])
    write_text(file, json.dumps(record | {"image_id": "386164"}))
    with pytest.raises(BenchmarkError, match="line 1: 'image_id' should be the id of an image and the index"):
        read("coco-35l", root)
    write_text(file, json.dumps(record))
    with pytest.raises(BenchmarkError, match="has no caption in uk of 1 of the 2 images: 223648"):
        read("coco-35l", root)


@on("coco-cn")
def test_lines_of_coco_cn_have_a_name_an_index_and_a_caption(root):
    folder = root / "coco-cn-version1805v1.1"
    file = folder / "imageid.human-written-caption.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    for line, kind, message in (
        ("COCO_val2014_000000391895 一只狗", BenchmarkError, "line 5: expected NAME#INDEX, a tab and a caption"),
        ("COCO_val2014_000000391895#1\t ", BadTextError, "line 5: the caption is empty"),
    ):
        write_text(file, *lines, line)
        with pytest.raises(kind, match=message):
            read("coco-cn", root)
    write_text(file, *lines[1:])
    with pytest.raises(BenchmarkError, match="has no caption of 1 of the 2 images: COCO_val2014_000000391895"):
        read("coco-cn", root)


@on("xtd")
def test_the_lines_of_xtd_correspond(root):
    write_text(root / "XTD10/test_1kcaptions_ko.txt", "one")
    with pytest.raises(BenchmarkError, match=r"ko\.txt has 1 captions, and .*names\.txt the names of 2 images"):
        read("xtd", root)
    write_text(root / "XTD10/test_1kcaptions_ko.txt", "one", "")
    with pytest.raises(BadTextError, match=r"ko\.txt line 2: the line is empty"):
        read("xtd", root)


@on("multi30k")
def test_the_lines_of_multi30k_correspond(root):
    (root / "data/task2/raw/test_2016.3.de.gz").write_bytes(gzip.compress(b"one\n"))
    with pytest.raises(CorpusError, match="test_2016 has 1 sentences in de and 2 images"):
        read("multi30k", root)


@on("xflickrco")
def test_the_languages_of_xflickrco_have_the_same_images(root):
    write_text(root / "annotations/ja/test.jsonl", json.dumps({"sentences": ["x"], "img_path": FLICKR[0]}))
    with pytest.raises(BenchmarkError, match=r"ja/test\.jsonl has captions of other images than annotations/de"):
        read("xflickrco", root)


@on("xm3600")
def test_a_language_without_captions_is_refused(root):
    file = root / "captions.jsonl"
    record = json.loads(file.read_text().splitlines()[0])
    write_text(file, json.dumps({key: value for key, value in record.items() if key != "sw"}))
    with pytest.raises(BenchmarkError, match="line 1: there is no object 'sw' with captions"):
        read("xm3600", root)
    write_text(file, json.dumps(record | {"sw": {"caption": [" "]}}))
    with pytest.raises(BadTextError, match="line 1, 'sw': a text is empty"):
        read("xm3600", root)


@on("iglue-wit")
def test_a_file_of_iglue_has_captions_in_its_language(root):
    file = root / "annotations/test_da.jsonl"
    record = json.loads(file.read_text())
    write_text(file, json.dumps(record | {"language": "de"}))
    with pytest.raises(BenchmarkError, match="line 1: the language is 'de' in a file of da"):
        read("iglue-wit", root)
    write_text(file, json.dumps({key: value for key, value in record.items() if key != "wit_ix"}))
    with pytest.raises(CorpusError, match="line 1: 'wit_ix' should name something"):
        read("iglue-wit", root)


@on("iglue-wit")
def test_images_of_iglue_that_cannot_be_read_are_counted(root, caplog):
    (root / "images/wikipedia/commons/f/f6/Tonlesap.jpg").write_bytes(b"<svg/>")
    assert list(texts(read("iglue-wit", root))) == ["wit-test_3"]
    assert "left out 1 images: IGLUE's WIT, image wit-test_67: " in caplog.text


@on("wit")
def test_what_is_missing_of_wit_is_counted(root, caplog):
    (root / "images/wikipedia/commons/f/f6/Tonlesap.jpg").unlink()
    assert len(read("wit", root)) == 2
    assert "left out 1 images" in caplog.text
    (root / "wit_v1.test.all-00000-of-00005.tsv.gz").write_bytes(gzip.compress(b"language\turl\nen\tx\n"))
    with pytest.raises(CorpusError, match="expected the columns language, page_url, image_url"):
        read("wit", root)


@on("cxc")
def test_ratings_of_another_form_are_refused(root):
    file = root / "data/sits_test.csv"
    header, *lines = file.read_text().splitlines()
    for content, message in (
        (["image,caption,agg_score,sampling_method", *lines], "expected the header caption,image,agg_score,sampling"),
        ([header, lines[0] + ",x"], "line 2: 5 cells, where the header has 4"),
        ([header, lines[0].replace("sentid:0", "sentid:99")], "line 2: 'COCO_val2014:sentid:99' is no caption of the"),
        ([header, lines[0].replace(coco_name(TEST[0]), "x.jpg")], r"line 2: 'x\.jpg' is no image of the test images"),
        ([header, lines[0].replace("5.0", "much")], "line 2: the rating 'much' is not a number"),
        ([header], "has no ratings"),
        ([], "expected the header caption,image"),
    ):
        write_text(file, *content)
        with pytest.raises(BenchmarkError, match=message):
            read("cxc", root)
