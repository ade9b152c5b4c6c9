import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from starlette.testclient import TestClient

from babelens.data import load_captions, load_translations
from babelens.data.corpus.corpus import CaptionRules, normalize_row
from babelens.data.corpus.images import check_image
from babelens.data.readers.bitext import read_translations
from babelens.inference import Embedder
from babelens.processing.images import MAX_ASPECT, open_image
from babelens.serving.app import create_app
from babelens.serving.service import ImageService
from babelens.utils.errors import BabelensError, CorpusError, ImageError, LanguageTagError
from babelens.utils.languages import language_and_script, normalize_language
from tests.fuzz.strategies import ANY_TEXT, JSON, TAG, image_files

# Most are captions, some of them with strange values; a few are anything.
_TAGS = st.sampled_from(["en", "de", "fr", "zh-Hant", "EN-us", "sr-Latn", "iw"])
_TEXTS = st.one_of(st.sampled_from(["a cat", "eine Katze", "一只猫", "  un chat ", "🐈"]), ANY_TEXT)
CAPTIONS = st.one_of(
    st.dictionaries(_TAGS, st.sampled_from(["a cat", "eine Katze", "一只猫"]), min_size=2),
    st.dictionaries(_TAGS, st.one_of(_TEXTS, st.lists(_TEXTS, max_size=3)), max_size=3),
    st.dictionaries(st.one_of(_TAGS, ANY_TEXT), JSON, max_size=3),
    JSON,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file"


@given(value=CAPTIONS, language=st.sampled_from([None, "en"]), languages=st.sampled_from([None, ("en", "de")]))
def test_captions_are_spelled_out_or_refused(value, language, languages):
    try:
        captions = normalize_row(value, CaptionRules(language=language, languages=languages), "row 0")
    except (CorpusError, LanguageTagError) as error:
        assert str(error)
        return
    for caption in captions:
        assert caption["text"].strip() and caption["language"]
        caption["text"].encode()


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            JSON.map(lambda value: json.dumps(value).encode()),
            CAPTIONS.map(lambda value: json.dumps(value).encode()),
        ),
        max_size=4,
    ),
    st.sampled_from([".jsonl", ".json", ".csv", ".tsv", ".txt", ".zip", ".tsv.gz"]),
)
def test_translations_are_read_or_refused(file, lines, suffix):
    path = file.with_suffix(suffix)
    path.write_bytes(b"\n".join(lines))
    for load in (load_translations, read_translations):
        try:
            corpus = load(str(path))
        except BabelensError as error:
            assert str(error)
            continue
        assert all(len(row["captions"]) >= 2 for row in corpus)


@given(st.lists(CAPTIONS, max_size=3), st.sampled_from([None, "en"]))
def test_a_folder_of_images_is_read_or_refused(tmp_path_factory, rows, language):
    folder = tmp_path_factory.getbasetemp() / "images"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"file_name": f"{number}.png", "captions": row}) for number, row in enumerate(rows)]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    try:
        load_captions(folder, language=language, check_images=False)
    except BabelensError as error:
        assert str(error)


@given(TAG)
def test_a_tag_names_a_language_or_is_refused(tag):
    try:
        normal = normalize_language(tag)
    except LanguageTagError:
        return
    assert normalize_language(normal) == normal
    assert language_and_script(normal)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # of files that can be read all the same
@given(image_files())
def test_an_image_is_opened_as_rgb_or_refused(data):
    try:
        image = open_image(data)
    except ImageError as error:
        assert str(error)
        return
    assert image.mode == "RGB" and max(image.size) <= MAX_ASPECT * min(image.size)
    check_image(data)  # in less time, and as lenient


# Pillow warns of files that it can still read.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
TEXT = ANY_TEXT.map(lambda text: text.encode("utf-8", "replace").decode())


@pytest.fixture(scope="module")
def client(make_mla, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    colors = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    for number, color in enumerate(colors):
        Image.fromarray(color).resize((40, 30)).save(folder / f"{number}.png")
    service = ImageService(Embedder(*make_mla()), folder, model="tiny")
    with TestClient(create_app(service), base_url="http://localhost") as client:
        yield client


def check(answer):
    assert answer.status_code in (200, 400), answer.text
    assert answer.json()["results" if answer.status_code == 200 else "error"]


@given(
    query=st.dictionaries(st.sampled_from(["q", "language", "top"]), TEXT),
    language=st.sampled_from([{}, {"language": "de"}]),
)
def test_any_search_finds_or_is_refused(client, query, language):
    check(client.get("/api/search", params=query | language))


@given(data=image_files(), name=TEXT, kind=st.sampled_from(["image/png", "text/html", ""]))
def test_any_upload_finds_or_is_refused(client, data, name, kind):
    check(client.post("/api/search-by-image", files={"file": (name, data, kind)}))
