"""WIT's own files, in small: rows of one image come together, images are found, bad rows are named."""

import base64
import csv
import gzip
import io
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from datasets import Dataset, Features, Value

from babelens.data import SkippedImage, load_wit, weak_pairs
from babelens.data.corpus.corpus import CAPTIONS
from babelens.data.readers import wit as reader
from babelens.data.readers.wit import wit_split
from babelens.data.readers.wit_index import COLUMNS
from babelens.utils.errors import BadImageError, BadTextError, CorpusError, LanguageTagError
from tests.support.full_disk import full_disk

DOME = "https://upload.wikimedia.org/wikipedia/commons/9/93/Half_Dome%2C_Yosemite.jpg"
LAKE = "https://upload.wikimedia.org/wikipedia/commons/f/f6/Tonlesap.jpg"
ATTRIBUTION = {"caption_attribution_description": "Foto"}


def row(language: str, url: str = DOME, reference: str = "", page: str = "", **others: str) -> dict[str, str]:
    texts = {"caption_reference_description": reference, "context_page_description": page}
    facts = {"mime_type": "image/jpeg", "is_main_image": "true", "attribution_passes_lang_id": "true"}
    return dict.fromkeys(COLUMNS, "") | facts | {"language": language, "image_url": url} | texts | others


def write(file: Path, *rows: dict[str, str] | str, header: tuple[str, ...] = COLUMNS) -> Path:
    """A file as WIT's are; a row that is a text is written as it stands."""
    buffer = io.StringIO(newline="")
    lines = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    lines.writerow(header)
    for cells in rows:
        buffer.write(cells) if isinstance(cells, str) else lines.writerow(cells.values())
    content = buffer.getvalue().encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def jpeg(width: int) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (width, 9)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def wit(tmp_path: Path) -> Path:
    """Two of WIT's files: a mountain in English, German and Hebrew, a lake in English and Indonesian."""
    (tmp_path / "wit").mkdir()
    write(
        tmp_path / "wit" / "wit_v1.train.all-00000-of-00002.tsv.gz",
        row("en", reference='Half Dome, "the" rock', page="Half Dome is a\nrock in Yosemite."),
        row("iw", reference="האף דום"),
        row("en", LAKE, page="Tonlé Sap is a lake."),
        row("sw", LAKE.replace("sap", "other"), reference="ziwa"),
    )
    write(
        tmp_path / "wit" / "wit_v1.train.all-00001-of-00002.tsv.gz",
        row("de", DOME.replace("https", "http"), reference="Der Half Dome"),
        row("de", reference="Der Half Dome", **ATTRIBUTION | {"attribution_passes_lang_id": "false"}),
        row("id", LAKE, reference="citra satelit", caption_alt_text_description="peta", **ATTRIBUTION),
    )
    return tmp_path / "wit"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of images at the paths of their addresses, which may be percent-encoded."""
    for width, name in enumerate(("9/93/Half_Dome,_Yosemite.jpg", "f/f6/Tonlesap.jpg"), 1):
        path = tmp_path / "images" / "wikipedia" / "commons" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(jpeg(width))
    return tmp_path / "images"


def texts(stream: Any) -> dict[str, list[tuple[str, str]]]:
    return {row["image_id"]: [(c["language"], c["text"]) for c in row["captions"]] for row in stream}


MOUNTAIN = [
    ("en", 'Half Dome, "the" rock'),
    ("en", "Half Dome is a rock in Yosemite."),
    ("he", "האף דום"),
    ("de", "Der Half Dome"),
]


class TestTexts:
    def test_rows_of_one_image_come_together_and_each_text_once(self, wit: Path, images: Path, tmp_path: Path) -> None:
        stream = load_wit(wit, images, cache_dir=tmp_path / "cache")
        assert texts(stream) == {
            DOME: MOUNTAIN,
            LAKE: [("en", "Tonlé Sap is a lake."), ("id", "citra satelit")],
        }
        assert {row["image_id"]: row["image"].width for row in stream} == {DOME: 1, LAKE: 2}
        assert stream.column_names == ["image", "image_id", "captions"]

    def test_weak_pairs_of_the_stream(self, wit: Path, images: Path, tmp_path: Path) -> None:
        stream = load_wit(wit, images, ["de", "en", "he"], cache_dir=tmp_path / "cache")
        pairs = [(example["text_a"], example["text_b"]) for example in weak_pairs(stream, ["de", "en"])]
        assert pairs == [("Der Half Dome", MOUNTAIN[0][1]), ("Der Half Dome", MOUNTAIN[1][1])]

    def test_without_streaming_the_same_rows_lie_on_the_disk(self, wit: Path, images: Path, tmp_path: Path) -> None:
        options = {"cache_dir": tmp_path / "cache", "streaming": False}
        for _ in range(2):  # written, and read again
            corpus = load_wit(wit, images, **options)
            assert isinstance(corpus, Dataset) and len(corpus) == 2
            assert texts(corpus) == {DOME: MOUNTAIN, LAKE: [("en", "Tonlé Sap is a lake."), ("id", "citra satelit")]}
            assert {row["image_id"]: row["image"].width for row in corpus} == {DOME: 1, LAKE: 2}
        pairs = [(example["text_a"], example["text_b"]) for example in weak_pairs(corpus, ["de", "en"])]
        assert pairs == [("Der Half Dome", MOUNTAIN[0][1]), ("Der Half Dome", MOUNTAIN[1][1])]
        (images / "wikipedia/commons/f/f6/Tonlesap.jpg").unlink()
        with pytest.raises(BadImageError, match="Tonlesap"):
            load_wit(wit, images, **options)
        skipped: list[SkippedImage] = []
        assert list(texts(load_wit(wit, images, **options, on_bad_image="skip", skipped=skipped))) == [DOME]
        assert len(skipped) == 1

    def test_images_of_tar_files_are_copied_without_streaming(self, wit: Path, images: Path, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "images.tar", "w") as tar:
            tar.add(images / "wikipedia", "wikipedia")
        corpus = load_wit(wit, tmp_path / "images.tar", cache_dir=tmp_path / "cache", streaming=False)
        assert {row["image_id"]: row["image"].width for row in corpus} == {DOME: 1, LAKE: 2}

    def test_languages_texts_and_their_number_are_chosen(self, wit: Path, images: Path, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        assert texts(load_wit(wit, images, ["en", "id"], cache_dir=cache)) == {
            LAKE: [("en", "Tonlé Sap is a lake."), ("id", "citra satelit")]
        }
        captions = texts(load_wit(wit, images, texts=("reference",), cache_dir=cache))
        assert captions == {DOME: [MOUNTAIN[0], *MOUNTAIN[2:]]}
        others = texts(load_wit(wit, images, texts=("alt", "attribution"), min_languages=1, cache_dir=cache))
        assert others == {LAKE: [("id", "peta"), ("id", "Foto")]}  # which did not pass as German
        with pytest.raises(ValueError, match="WIT has no texts called title; there are reference, page"):
            load_wit(wit, images, texts=("title",), cache_dir=cache)

    def test_parts_are_shards_that_together_have_everything_once(
        self, wit: Path, images: Path, tmp_path: Path
    ) -> None:
        stream = load_wit(wit, images, cache_dir=tmp_path / "cache")
        assert stream.num_shards == 64
        shares = [texts(stream.shard(2, index)) for index in range(2)]
        assert sorted(name for share in shares for name in share) == sorted(texts(stream))

    def test_files_are_sorted_once(self, wit: Path, images: Path, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        first = texts(load_wit(wit, images, cache_dir=cache))
        made = {file: file.stat().st_mtime_ns for file in cache.rglob("*.parquet")}
        assert texts(load_wit(wit, images, cache_dir=cache)) == first
        assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.parquet")} == made
        write(wit / "wit_v1.train.all-00001-of-00002.tsv.gz", row("fr", reference="Le Half Dome"))
        assert texts(load_wit(wit, images, cache_dir=cache)) == {DOME: [*MOUNTAIN[:3], ("fr", "Le Half Dome")]}


class TestImages:
    def test_in_tar_files(self, wit: Path, images: Path, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "images-0.tar", "w") as tar:
            tar.add(images / "wikipedia", "./wikipedia")
        stream = load_wit(wit, tmp_path / "images-*.tar", cache_dir=tmp_path / "cache")
        assert {row["image_id"]: row["image"].width for row in stream} == {DOME: 1, LAKE: 2}

    def test_in_pixel_data(self, wit: Path, tmp_path: Path) -> None:
        lines = [(DOME, jpeg(3)), (LAKE, jpeg(4)), (DOME.replace("Dome", "Rome"), jpeg(5))]
        content = "".join(f"{url}\t{base64.b64encode(image).decode()}\t{url}\n" for url, image in lines)
        file = tmp_path / "train_image_pixels_part-00000.csv.gz"
        file.write_bytes(gzip.compress(content.encode()))
        stream = load_wit(wit, file, cache_dir=tmp_path / "cache")
        assert {row["image_id"]: row["image"].width for row in stream} == {DOME: 3, LAKE: 4}
        assert texts(stream)[DOME] == MOUNTAIN

    def test_that_are_not_there_are_refused_or_left_out_and_named(
        self, wit: Path, images: Path, tmp_path: Path
    ) -> None:
        (images / "wikipedia/commons/f/f6/Tonlesap.jpg").unlink()
        with pytest.raises(BadImageError, match=rf"image_id '{LAKE}': .*Tonlesap\.jpg: no such file"):
            list(load_wit(wit, images, cache_dir=tmp_path / "cache"))
        skipped: list[SkippedImage] = []
        stream = load_wit(wit, images, on_bad_image="skip", skipped=skipped, cache_dir=tmp_path / "cache")
        assert list(texts(stream)) == [DOME]
        assert [image.image_id for image in skipped] == [LAKE]

    @pytest.mark.parametrize("name", ["..%2Fsecret.jpg", "../secret.jpg", "x/%2E%2E/../../secret.jpg"])
    def test_outside_of_their_folder_are_not_found(self, tmp_path: Path, images: Path, name: str) -> None:
        (images.parent / "secret.jpg").write_bytes(jpeg(9))
        address = f"https://upload.wikimedia.org/{name}"
        write(tmp_path / "wit.tsv", row("en", address, "a secret"), row("de", address, "geheim"))
        with pytest.raises(BadImageError, match=r"\.jpg'?: (no image|.*no such file)"):
            list(load_wit(tmp_path / "wit.tsv", images, cache_dir=tmp_path / "cache"))

    def test_sources_that_are_none_are_refused(self, wit: Path, images: Path, tmp_path: Path) -> None:
        for source in (tmp_path / "absent", tmp_path / "absent.tar", tmp_path / "absent-*.tar", tmp_path / "a.csv"):
            with pytest.raises(CorpusError, match=r"[Nn]o such"):
                load_wit(wit, source, cache_dir=tmp_path / "cache")
        with pytest.raises(CorpusError, match=r"none that ends in \.tsv or \.tsv\.gz"):
            load_wit(images, images, cache_dir=tmp_path / "cache")
        (tmp_path / "images.csv").write_text(f"{DOME}\tno base64!\tpage\n")
        with pytest.raises(BadImageError, match=r"images\.csv line 1: the image is not in base64"):
            load_wit(wit, tmp_path / "images.csv", cache_dir=tmp_path / "cache")


BAD_ROWS = [
    ("en\tpage\n", CorpusError, "line 3: 2 cells, where the header has 17 columns"),
    ('en\t"page" \n', CorpusError, "line 3: not a row of cells between tabs"),
    (row("klingon", reference="Qo'noS"), LanguageTagError, "line 3: 'klingon'"),
    (row("en", "Half_Dome.jpg", "a rock"), CorpusError, "line 3: 'Half_Dome.jpg' is no address of an image"),
    (row("en", reference="long " * 3000), BadTextError, "line 3: a text of 14999 characters"),
]


class TestBadRows:
    @pytest.mark.parametrize(("bad", "error", "message"), BAD_ROWS)
    def test_are_refused_with_file_and_line_and_leave_nothing_behind(
        self, tmp_path: Path, images: Path, bad: Any, error: type[Exception], message: str
    ) -> None:
        file = write(tmp_path / "wit.tsv", row("en", reference="a rock"), bad, row("de", reference="ein Fels"))
        with pytest.raises(error, match=rf"wit\.tsv {message}"):
            load_wit(file, images, cache_dir=tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []

    def test_are_left_out_and_named_at_every_call(
        self, tmp_path: Path, images: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad = [cells for cells, _, _ in BAD_ROWS]
        file = write(tmp_path / "wit.tsv", row("en", reference="a rock"), *bad, row("de", reference="ein Fels"))
        for _ in range(2):
            caplog.clear()
            stream = load_wit(file, images, on_bad_row="skip", cache_dir=tmp_path / "cache")
            assert texts(stream) == {DOME: [("en", "a rock"), ("de", "ein Fels")]}
            assert "in 5 rows" in caplog.text and "wit.tsv line 6: 'Half_Dome.jpg' is no address" in caplog.text

    def test_a_file_of_other_columns_or_cut_off_is_refused_whole(self, tmp_path: Path, images: Path) -> None:
        file = write(tmp_path / "wit.tsv", header=("language", "image_url"))
        with pytest.raises(
            CorpusError, match=r"wit\.tsv: expected the columns language, page_url, .*, and found lang"
        ):
            load_wit(file, images, on_bad_row="skip", cache_dir=tmp_path / "cache")
        file = write(tmp_path / "whole.tsv.gz", row("en", reference="a rock"))
        (tmp_path / "cut.tsv.gz").write_bytes(file.read_bytes()[:-12])
        with pytest.raises(CorpusError, match=r"cut\.tsv\.gz: Compressed file ended"):
            load_wit(tmp_path / "cut.tsv.gz", images, on_bad_row="skip", cache_dir=tmp_path / "cache")
        (tmp_path / "latin.tsv").write_bytes(write(tmp_path / "wit.tsv", row("en")).read_bytes() + b"\xe9\n")
        with pytest.raises(CorpusError, match=r"latin\.tsv: 'utf-8' codec"):
            load_wit(tmp_path / "latin.tsv", images, on_bad_row="skip", cache_dir=tmp_path / "cache")


def test_a_full_disk_names_the_index_and_leaves_nothing(wit: Path, images: Path, tmp_path: Path) -> None:
    said = rf"{tmp_path}/cache/texts-\w+ could not be written, and nothing was left there: .*File too large"
    with pytest.raises(OSError, match=said), full_disk(600):
        load_wit(wit, images, cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


class TestSplits:
    @pytest.fixture
    def corpus(self) -> Dataset:
        """Sixty images: all in English, every second in German, three in Tajik."""
        tags = [["en"] + ["de"] * (n % 2) + ["tg"] * (n in (3, 4, 5)) for n in range(60)]
        rows = [
            {"image_id": f"https://a/{n}.jpg", "captions": [{"language": t, "text": f"{t} {n}"} for t in own]}
            for n, own in enumerate(tags)
        ]
        return Dataset.from_list(rows, features=Features(image_id=Value("string"), captions=CAPTIONS))

    def test_every_language_has_its_images_and_none_is_in_two(
        self, corpus: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader, "_SIZES", (50, 9, 4))
        found = {name: wit_split(corpus, name) for name in ("train", "validation", "test")}
        ids = [image for split in found.values() for image in split["image_id"]]
        assert len(ids) == len(set(ids))
        for name in ("validation", "test"):
            counts = Counter(caption["language"] for row in found[name]["captions"] for caption in row)
            assert counts == {"en": 9, "de": 4, "tg": 1}
        assert Counter(c["language"] for row in found["train"]["captions"] for c in row)["tg"] == 1
        turned = wit_split(corpus.select(range(59, -1, -1)), "test")
        assert {*turned["image_id"]} == {*found["test"]["image_id"]}

    def test_a_split_is_read_by_name(self, wit: Path, images: Path, tmp_path: Path) -> None:
        options = {"cache_dir": tmp_path / "cache", "streaming": False}
        found = load_wit(wit, images, split="validation", **options)
        assert sorted(found["image_id"]) == sorted([DOME, LAKE])  # each has a language that has no other image
        with pytest.raises(CorpusError, match="no image"):
            load_wit(wit, images, split="train", **options)
        with pytest.raises(CorpusError, match="streaming=False"):
            load_wit(wit, images, split="train", cache_dir=tmp_path / "cache")
