"""The page without a server: it reads texts as the processor does, embeds them as the model does, and needs no one."""

import base64
import json
import shutil
import subprocess
import sys
import unicodedata
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from browser import browser
from PIL import Image
from transformers_js import program
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.configuration.errors import ArgumentError, ModelKindError, UnknownLanguageError
from babelens.inference.embedder import Embedder
from babelens.inference.sample_texts import TEXTS
from babelens.modeling.modeling_dual_encoder import normalize
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.modeling.text_features import hashed_ngrams
from babelens.processing.glossary import Glossary, words_of
from babelens.processing.processing_ridge import RidgeProcessor, characters_of
from babelens.serving.offline_page import (
    _in_bytes,
    _packed,
    _ridge,
    export_offline,
    packed_glossary,
    word_frequencies,
    word_vectors,
)
from babelens.trainers.ridge import learn

SENTENCES = [f"a {color} {thing}" for color in ("red", "green", "blue", "white") for thing in ("car", "dog", "tree")]
MIRRORED = [sentence[::-1] for sentence in SENTENCES]
NATIVE = ["a", "car", "dog", "dogs", "on-off", "red"]
SPACE = {"rows": 8192, "shortest": 1, "longest": 5}
# Where lower case and compatible forms depend on what is beside a letter, are longer than it, or are spaces to some.
SPECIAL = [
    "ΑΣ ΣΑ ΑΣ̈. Σ",
    "İstanbul I ı",
    "ﬃ ½ ㎒ ﷺ",
    "a\x1cb\x85c\ufeffd\u180ee\u3000f\u200bg",
    "ẞ ŉ ǰ ΐ",
    "\u1e9b\u0323 각 각",
    "a" * 600,
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Runs an expression of JavaScript in which `given` is a value, and `ngrams` and `glossary` the functions of
    the page."""
    folder = tmp_path_factory.mktemp("node")
    own = files("babelens.serving")
    for name in ("ngrams", "glossary"):
        code = (own / f"offline/{name}.js").read_text(encoding="utf-8")
        (folder / f"{name}.mjs").write_text(code, encoding="utf-8")

    def run(expression, given):
        code = (
            'import * as ngrams from "./ngrams.mjs"; import fs from "node:fs";'
            'import * as glossary from "./glossary.mjs";'
            'const given = JSON.parse(fs.readFileSync("given.json")); '
            f"console.log(JSON.stringify({expression}));"
        )
        (folder / "given.json").write_text(json.dumps(given))
        (folder / "run.mjs").write_text(code)
        done = subprocess.run([program("node"), "run.mjs"], cwd=folder, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def random_texts(count):
    """Texts of characters of all scripts that this version of Unicode has."""
    random = np.random.default_rng(0)
    known = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    near = [[code for code in known if code < limit] for limit in (0x250, 0x600, 0x3000)]
    pools = [*near, known]
    return ["".join(map(chr, random.choice(pools[n % 4], 1 + n % 40))) for n in range(count)]


def test_texts_are_read_to_the_last_character(scripts):
    texts = [*TEXTS, *SPECIAL, *random_texts(3000)]
    found = scripts(
        "given.texts.map((each) => [...ngrams.rowsOf(each, given.space)])", {"texts": texts, "space": SPACE}
    )
    for text, counts in zip(texts, found, strict=True):
        places, kept = hashed_ngrams(characters_of([text]), *SPACE.values())
        rows, expected = places[kept].unique(return_counts=True)
        assert dict(map(tuple, counts)) == dict(zip(rows.tolist(), expected.tolist(), strict=True)), ascii(text)


def test_two_bits_keep_what_texts_sum(scripts):
    torch.manual_seed(0)
    rows = torch.randn(512, 30) * torch.rand(512, 1) * torch.rand(30)
    rows[3] = 0
    space = {"rows": 512, "shortest": 2, "longest": 5, "directions": 30, "mean": [0.0] * 31, "radius": 1.0}
    given = {"texts": list(TEXTS[:9]), "space": space, "map": base64.b64encode(_packed(rows)).decode()}
    found = scripts(
        "given.texts.map((t) => [...ngrams.embed(t, ngrams.unpack(given.map, given.space), given.space)])", given
    )
    for text, embedding in zip(TEXTS, found, strict=False):
        places, kept = hashed_ngrams(characters_of([text]), 512, 2, 5)
        counts = torch.zeros(512).scatter_add(0, places[0], kept[0].float())
        exact = torch.nn.functional.normalize(counts.log1p() @ rows, dim=0)
        assert float(torch.tensor(embedding[:30]) @ exact) > 0.85 and embedding[30] == 0


def test_texts_are_translated_to_the_last_word(scripts):
    texts = [*TEXTS, *SPECIAL, "L'homme au-dessus, 2 chiens-", "一只狗在跑 ในสวน fast", *random_texts(2000)]
    random = np.random.default_rng(1)
    words = sorted({word for text in texts for word in words_of(text) if len(word) < 20})
    pieces = [word[start : start + 1 + n % 4] for n, word in enumerate(words) for start in range(0, len(word), 3)]
    natives = ["a", "dog", "red car", "", "dogs", "on-off"]
    known = [each for each in dict.fromkeys([*words[::2], *pieces]) if each]
    glossary = Glossary({each: str(random.choice(natives)) for each in known})
    # Words that are spelled as others are but for a letter, and native words.
    asked = [*texts, *(word[:-1] + "x" for word in words[1::2]), "dogs red unknown"]
    given = {"texts": asked, "lines": packed_glossary(glossary, NATIVE), "words": NATIVE}
    found = scripts(
        "((read) => given.texts.map((each) => glossary.gloss(each, read)))"
        "(glossary.readGlossary(given.lines, given.words))",
        given,
    )
    assert found == [glossary.gloss(each) for each in asked] and sum(map(bool, found)) > 1000


class BagOfWords:
    """An embedder to which a text is its words, in any order."""

    processor = SimpleNamespace(native_language="en")

    def encode_text(self, texts, language):
        assert language == "en"
        rows = [
            [np.random.default_rng(len(word) + 99 * ord(word[0])).normal(size=8) for word in t.split()] for t in texts
        ]
        return normalize(torch.tensor(np.stack([np.sum(row, 0) for row in rows]), dtype=torch.float32)).numpy()


def test_words_foretell_what_the_tower_reads(scripts):
    embedder, maps = BagOfWords(), SimpleNamespace(direction_of=normalize)
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    alike = np.full(len(words), 1 / len(words))
    vectors = word_vectors(embedder, maps, words, alike, ["the red car", "the dog"], 8)
    values, scales = _in_bytes(vectors.numpy())
    given = {"texts": SENTENCES, "space": {"directions": 8}, "words": words, "wordScales": scales.tolist()}
    given["wordVectors"] = base64.b64encode(values.tobytes()).decode()
    code = "((all) => given.texts.map((t) => [...ngrams.glossed(t, all)]))(ngrams.unpackWords(given, given.space))"
    found = torch.tensor(scripts(code, given))
    exact = torch.stack([vectors[[words.index(word) for word in each.split()]].sum(0) for each in SENTENCES])
    assert torch.cosine_similarity(found, exact).min() > 0.999
    tower = torch.from_numpy(embedder.encode_text(SENTENCES, language="en"))
    assert torch.cosine_similarity(found, tower).min() > 0.9


def test_frequent_words_are_known_from_the_importance_of_their_ngrams(make_ridge):
    tiny, read = make_ridge()
    model = RidgeModel.from_models(tiny.native_model, ngram_rows=8192, rank=8)
    native = read.native
    processor = RidgeProcessor(native.image_processor, native.tokenizer, max_text_length=64, max_native_length=64)
    sentences = [f"a {'red' if n % 3 else 'rare'} thing{n}" for n in range(60)]
    learn(model, processor, {"uk": ([each[::-1] for each in sentences], sentences)}, glossaries=False)
    words = ["a", "rare", "red", "unseen"]
    found = word_frequencies(model, processor, {"uk": Glossary({word[::-1]: word for word in words})}, words)
    np.testing.assert_allclose(found.sum(), 1)
    np.testing.assert_allclose(found / found[0], np.array([61, 21, 41, 1]) / 61, rtol=1e-5)  # one is added to each


def test_conjugate_gradients_solve_the_regression():
    torch.manual_seed(0)
    features = torch.rand(30, 9) * (torch.rand(30, 9) > 0.5)
    solved = torch.linalg.solve(features.T @ features + torch.eye(9), features.T @ torch.ones(30, 2))
    torch.testing.assert_close(_ridge(features.to_sparse(), torch.ones(30, 2)), solved, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    (folder / "below").mkdir()
    for number in range(30):
        image = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((400, 200))
        image.save(folder / "below" / f"صورة {number}.jpg")
    return folder


@pytest.fixture
def taught(make_ridge, tmp_path):
    """A tiny model that has learned two languages."""
    tiny, processor = make_ridge()
    model = RidgeModel.from_models(tiny.native_model, ngram_rows=256, rank=8)
    read = processor.native
    processor = RidgeProcessor(read.image_processor, read.tokenizer, max_text_length=64, max_native_length=64)
    learn(model, processor, {"uk": (MIRRORED, SENTENCES), "sw": ([each.upper() for each in SENTENCES], SENTENCES)})
    processor.glossaries["uk"] = Glossary({word[::-1]: word for each in SENTENCES for word in each.split()})
    model.config.gloss_weights = [0.0, 1.0, 0.0]
    for part in (model, processor):
        part.save_pretrained(tmp_path / "taught")
    return tmp_path / "taught"


@pytest.mark.live
def test_a_page_searches_without_a_server(taught, photos, tmp_path):
    made = export_offline(taught, tmp_path / "page", photos, native_texts=SENTENCES, title="Our photos")
    assert made.languages == ("en", "uk", "sw") and made.images == 30 and made.width == 9
    embedder = Embedder.from_pretrained(taught)
    paths = sorted(photos.rglob("*.jpg"))
    names = [file.relative_to(photos).as_posix() for file in paths]
    exact = embedder.encode_text(MIRRORED, language="uk") @ embedder.encode_image(paths).T
    with browser(tmp_path / "profile") as page:
        page.open((tmp_path / "page" / "index.html").as_uri())
        page.wait_for("document.body.dataset.ready && document.activeElement.id === 'query'")
        assert page.run("document.title") == "Our photos" and page.run("results.children.length") == 24
        for text, scores in zip(MIRRORED, exact, strict=True):
            found = dict(map(tuple, page.run(f"search({text!r}, 'uk')")))
            assert np.corrcoef([found[n] for n in range(30)], scores)[0, 1] > 0.9
        page.type(MIRRORED[0])
        page.run("choose('uk'), ask()")
        page.wait_for("document.getElementById('status').textContent.includes('best first')")
        page.run("query.value = 'ї'.repeat(600), ask()")  # as the command line warns of texts that are cut
        page.wait_for("document.getElementById('status').textContent.startsWith('Only the beginning of the text')")
        page.run(f"query.value = {MIRRORED[0]!r}, ask()")
        page.wait_for("!document.getElementById('status').textContent.startsWith('Only')")
        best = page.run(f"search({MIRRORED[0]!r}, 'uk')")[0][0]
        assert page.run("document.querySelector('#results .file').textContent") == names[best]
        page.run("document.querySelector('#results button').click()")
        page.wait_for("!document.getElementById('example').hidden && results.children.length === 24")
        page.run("element('more').click()")
        assert page.run("results.children.length") == 29
        assert page.problems == []


def test_copies_of_a_file_are_one_image(taught, photos, tmp_path):
    """With their number, as in every search."""
    folder = shutil.copytree(photos, tmp_path / "photos")
    first = min(folder.rglob("*.jpg"))
    shutil.copy(first, folder / "zz copy.jpg")
    assert export_offline(taught, tmp_path / "page", folder, languages=["uk"]).images == 30
    search = (tmp_path / "page" / "search.js").read_text(encoding="utf-8")
    shown = json.loads(search.removeprefix("const SEARCH = ").rstrip(";\n"))["images"]
    assert {each["file"]: each["copies"] for each in shown if each["copies"]} == {
        first.relative_to(folder).as_posix(): 1
    }


@pytest.mark.live
def test_a_damaged_language_is_said(taught, photos, tmp_path):
    """Whether its file ends too early or holds something else; the page goes on."""
    export_offline(taught, tmp_path / "page", photos)
    languages = tmp_path / "page" / "languages"
    whole = (languages / "uk.js").read_text(encoding="utf-8")
    (languages / "uk.js").write_text(whole[: len(whole) // 2], encoding="utf-8")
    (languages / "sw.js").write_text('learned("sw", "AAAA");\n', encoding="utf-8")
    with browser(tmp_path / "profile") as page:
        page.open((tmp_path / "page" / "index.html").as_uri())
        page.wait_for("document.body.dataset.ready")
        for tag, said in (("uk", "languages/uk.js"), ("sw", "")):
            page.run(f"status.textContent = '', query.value = 'a', choose('{tag}'), ask()")
            page.wait_for(f"status.textContent && status.textContent.includes('{said}')")
            assert "best first" not in page.run("status.textContent")


def test_the_command_says_what_it_wrote(taught, photos, tmp_path):
    def run(*words):
        done = CliRunner().invoke(app, ["export", str(taught), "--output", str(tmp_path / "page"), *map(str, words)])
        return done.exit_code, " ".join(done.output.split())

    code, output = run("--layout", "browser", "--images", photos, "--languages", "uk", "--truncate-dim", 4)
    assert code == 0 and "30 images in uk" in output and "open it in a browser" in output
    search = (tmp_path / "page" / "search.js").read_text(encoding="utf-8")
    settings = json.loads(search.removeprefix("const SEARCH = ").rstrip(";\n"))
    assert settings["languages"] == ["uk"] and len(settings["space"]["mean"]) == 4
    assert str(tmp_path) not in search and len(base64.b64decode(settings["vectors"])) == 30 * 4
    for words in (["--layout", "browser"], ["--images", photos], ["--layout", "browser", "--precision", "int8"]):
        assert run(*words)[0] == 2


def test_what_a_page_cannot_be(taught, photos, tmp_path, make_ridge, make_mural):
    for name, parts in {"encoder": make_ridge(encoder=True), "mural": make_mural()}.items():
        for part in parts:
            part.save_pretrained(tmp_path / name)
        with pytest.raises(ModelKindError, match="without --text-encoder"):
            export_offline(tmp_path / name, tmp_path / "page", photos)
    with pytest.raises(UnknownLanguageError, match=r"not learned en .* --texts"):
        export_offline(taught, tmp_path / "page", photos, languages=["uk", "en"])
    assert not (tmp_path / "page").exists()
    with pytest.raises(ArgumentError, match="exists"):
        export_offline(taught, taught, photos)
