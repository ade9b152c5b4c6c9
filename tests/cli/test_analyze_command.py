import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from babelens import Rc3Model
from babelens.data.corpus.loading import load_captions
from babelens.evaluation.analysis import svcca
from babelens.inference.embedder import Embedder
from babelens.utils.errors import SaveError
from tests.support.image_sources import drawn as drawn_image, write_captioned
from tests.support.tiny_cross_encoder import tiny_cross_encoder
from tests.support.tiny_native import saved

SVG = "{http://www.w3.org/2000/svg}"
TAGS = ["en", "de", "fr", "cs", "sw"]
N = 40


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    random, letters = np.random.default_rng(0), list("abcdefghijkl")
    captions = [{tag: [f"{''.join(random.choice(letters, 6))} {n}"] for tag in TAGS} for n in range(N)]
    return write_captioned(tmp_path_factory.mktemp("images"), [{"captions": each} for each in captions])


@pytest.fixture
def drawn(tmp_path):
    """The texts of the figure, and the number of points outside its legends."""

    def read():
        root = ET.parse(tmp_path / "out" / "figure.svg").getroot()
        groups = [(group.get("id", ""), list(group.iter(f"{SVG}use"))) for group in root.iter(f"{SVG}g")]
        legends = {use for name, uses in groups if name.startswith("legend") for use in uses}
        points = {use for name, uses in groups if name.startswith("PathCollection") for use in uses}
        return "".join(root.itertext()), len(points - legends)

    return read


@pytest.fixture
def result(tmp_path, run):
    def analyze(*arguments):
        out = tmp_path / "out" / "figure.svg"
        run("analyze", *arguments, "--output", out)
        assert sorted(path.name for path in out.parent.iterdir()) == ["figure.json", "figure.svg"]
        return json.loads(out.with_suffix(".json").read_text("utf-8"))

    return analyze


def test_languages_are_compared_by_svcca(result, drawn, clip_folder, captioned, tmp_path):
    found = result("languages", clip_folder, "--data", captioned, "--languages", "en,de,fr,cs")
    assert found["analysis"] == "languages" and found["languages"] == TAGS[:4] and found["n_texts"] == N
    embedder, corpus = Embedder.from_pretrained(clip_folder), load_captions(captioned)
    texts = {tag: [row[i]["text"] for row in corpus["captions"]] for i, tag in enumerate(TAGS)}
    en, de = (embedder.encode_text(texts[tag], language=tag) for tag in ("en", "de"))
    assert found["similarities"][0][1] == pytest.approx(svcca(en, de), abs=1e-6)
    shown, points = drawn()
    assert points == 4 and all(tag in shown for tag in TAGS[:4])
    figure = (tmp_path / "out" / "figure.svg").read_bytes()
    lines = ["\t".join(TAGS[:4]), *map("\t".join, zip(*(texts[tag] for tag in TAGS[:4]), strict=True))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    again = result("languages", clip_folder, "--data", tmp_path / "pairs.tsv", "--languages", "en,de,fr,cs")
    assert again == found
    assert (tmp_path / "out" / "figure.svg").read_bytes() == figure


def test_distances_of_an_rc3_and_of_a_dual_encoder(result, drawn, run, captioned, clip_folder, tmp_path):
    texts = [caption["text"] for row in load_captions(captioned)["captions"] for caption in row]
    judge, processor = tiny_cross_encoder(texts, TAGS)
    model = Rc3Model(judge.config).eval()
    folders = []
    for name, scale in (("rc3", 1.0), ("without", 1.25)):
        model.encoder.layer_norm.weight.data.fill_(scale)
        folders.append(tmp_path / name)
        saved((model, processor), folders[-1])
    found = result("distances", folders[0], "--baseline", folders[1], "--data", captioned)
    assert found["anchor"] == "en" and sorted(found["languages"]) == ["cs", "de", "fr", "sw"]
    np.testing.assert_allclose(found["ratios"], 0.8, atol=1e-4)  # states are scaled by the last layer norm
    shown, points = drawn()
    assert points == 4 * N + 4 and all(tag in shown for tag in found["languages"])  # each image, and the medians
    same = result("distances", clip_folder, "--baseline", clip_folder, "--data", captioned, "--languages", "de,sw")
    assert set(np.ravel(same["ratios"])) == {1.0}
    given = ("--baseline", folders[0], "--data", captioned, "--output", tmp_path / "x.svg")
    assert "only one of" in run("analyze", "distances", clip_folder, *given, code=2).output


def test_other_results_are_not_replaced(run, clip_folder, captioned, tmp_path):
    (tmp_path / "validation.json").write_text('{"en": {"t2i_r1": 1.0}}')
    given = ("--data", captioned, "--output", tmp_path / "validation.svg")
    error = run("analyze", "languages", clip_folder, *given, code=1).exception
    assert isinstance(error, SaveError) and "validation.json" in str(error)
    assert "t2i_r1" in (tmp_path / "validation.json").read_text()


def test_models_are_shown_on_the_same_queries(result, drawn, run, clip_folder, captioned, make_mural, tmp_path):
    mural_folder = saved(make_mural(), tmp_path / "mural")
    given = ("--data", captioned, "--languages", "en,de")
    found = result("retrieval", clip_folder, mural_folder, *given)
    names = [clip_folder.name, mural_folder.name]
    assert [list(query["found"]) for query in found["queries"]] == [names] * 6
    assert found["queries"][0]["row"] == found["queries"][3]["row"]  # chosen by the image, in every language
    corpus, embedder = load_captions(captioned), Embedder.from_pretrained(clip_folder)
    scores = embedder.encode_text([row[0]["text"] for row in corpus["captions"]], language="en")
    scores = scores @ embedder.encode_image(corpus["image"]).T
    first = [scores[n].argmax() == n for n in range(N)]
    assert found["first"]["en"][names[0]] == pytest.approx(100 * np.mean(first))
    query = found["queries"][0]
    best = query["found"][names[0]]
    assert best["candidates"] == np.argsort(-scores[query["row"]], kind="stable")[:5].tolist()
    assert best["right"] == [each == query["row"] for each in best["candidates"]]
    assert best["rank"] == 1 + int((scores[query["row"]] > scores[query["row"], query["row"]]).sum())
    assert [drawn()[0].count(f"{name}: rank ") for name in names] == [6, 6]
    twice = ("retrieval", clip_folder, clip_folder, *given, "--output", tmp_path / "x.svg")
    assert "is named twice" in run("analyze", *twice, code=2).output


def test_images_and_labels_are_in_one_map(result, drawn, clip_folder, tmp_path):
    for n in range(8):
        path = tmp_path / "animals" / ("cat", "dog")[n // 4] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn_image(n))
    (tmp_path / "labels.tsv").write_text("class\ten\tde\ncat\tcat\tKatze\ndog\tdog\t\n")
    given = ("--data", tmp_path / "animals", "--labels", tmp_path / "labels.tsv")
    found = result("labels", clip_folder, *given)
    assert found["classes"] == ["cat", "dog"] and found["targets"] == [0] * 4 + [1] * 4
    assert np.shape(found["images"]) == (8, 2) and found["labels"][1][1] == [None, None]
    assert found["accuracy"]["de"] == 50  # of one label
    shown, points = drawn()
    assert points == 8 + 3 and "de" in shown
