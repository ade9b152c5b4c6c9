"""`babelens analyze`: each command on tiny models and real files."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image
from tiny_cross_encoder import tiny_cross_encoder

from babelens import Rc3Model
from babelens.configuration.errors import ComparisonError, CorpusError, ModelKindError, SaveError
from babelens.configuration.locks import locked_path
from babelens.data.corpus.loading import load_captions
from babelens.evaluation.analysis import svcca
from babelens.inference.embedder import Embedder

TAGS = ["en", "de", "fr", "cs", "sw"]
N = 40


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    """Forty images with a caption in each of five languages, some of them equal to the English one."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    lines = []
    for n in range(N):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{n}.png")
        words = {tag: "".join(random.choice(list("abcdefghijkl"), 6)) for tag in TAGS}
        lines.append({"file_name": f"{n}.png", "captions": {tag: [f"{word} {n}"] for tag, word in words.items()}})
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.fixture(scope="module")
def mural_folder(mural_parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mural")
    for part in mural_parts:
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def result(tmp_path, run):
    """Runs a command of `analyze`, and returns the numbers that it wrote."""

    def analyze(*arguments, name="figure.svg"):
        out = tmp_path / "out" / name
        printed = json.loads(run("analyze", *arguments, "--output", out, "--json").stdout)
        assert printed == json.loads(out.with_suffix(".json").read_text("utf-8"))
        if out.suffix == ".svg":
            assert ET.parse(out).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert sorted(path.name for path in out.parent.iterdir()) == sorted({out.name, out.with_suffix(".json").name})
        return printed

    return analyze


def test_languages_are_compared_by_svcca(result, clip_folder, captioned):
    found = result("languages", clip_folder, "--data", captioned, "--languages", "en,de,fr,cs", "--limit", "30")
    assert found["analysis"] == "languages" and found["languages"] == TAGS[:4] and found["n_texts"] == 30
    embedder, corpus = Embedder.from_pretrained(clip_folder), load_captions(captioned)
    texts = {tag: [row[i]["text"] for row in corpus["captions"]] for i, tag in enumerate(TAGS)}
    rows = [index * N // 30 for index in range(30)]
    en, de = (embedder.encode_text([texts[tag][row] for row in rows], language=tag) for tag in ("en", "de"))
    assert found["similarities"][0][1] == pytest.approx(svcca(en, de), abs=1e-6)
    again = result("languages", clip_folder, "--data", captioned, "--languages", "en,de,fr,cs", "--limit", "30")
    assert again == found


def test_texts_in_the_space_of_a_task(result, run, clip_folder, captioned, mural_folder, tmp_path):
    given = ("--data", captioned, "--languages", "en,de,fr,cs", "--limit", "30", "--task", "text_text")
    found = result("languages", mural_folder, *given)
    corpus = load_captions(captioned)
    texts = [[corpus["captions"][index * N // 30][i]["text"] for index in range(30)] for i in range(2)]
    embedder = Embedder.from_pretrained(mural_folder)
    en, de = (
        embedder.encode_text(each, language=tag, task="text_text") for tag, each in zip(TAGS, texts, strict=False)
    )
    assert found["similarities"][0][1] == pytest.approx(svcca(en, de), abs=1e-6)
    assert found["similarities"] != result("languages", mural_folder, *given[:-2])["similarities"]
    result("captions", mural_folder, *given[:-4], "--limit", "4", *given[-2:])
    assert result("distances", mural_folder, "--baseline", mural_folder, *given)["median"]["de"] == 1
    with pytest.raises(ModelKindError, match="text_text"):
        run_raising(run, "languages", clip_folder, *given, "--output", tmp_path / "x.svg")


def test_languages_of_a_file_of_translations(result, clip_folder, tmp_path):
    random = np.random.default_rng(0)
    lines = ["\t".join(TAGS[:4])]
    lines += ["\t".join("".join(random.choice(list("abcdefg"), 5)) for _ in range(4)) for _ in range(30)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    assert result("languages", clip_folder, "--data", tmp_path / "pairs.tsv")["n_texts"] == 30


def test_captions_are_laid_out(result, clip_folder, captioned):
    found = result("captions", clip_folder, "--data", captioned, "--limit", "4", "--languages", "en,de", "--seed", "7")
    assert np.shape(found["coordinates"]) == (2, 4, 2) and found["seed"] == 7 and found["method"] == "tsne"


def test_neighbors_of_an_image_and_of_a_text(result, run, clip_folder, captioned, tmp_path):
    corpus = load_captions(captioned)
    image_id, captions = corpus["image_id"][3], corpus["captions"][3]
    options = ["--data", captioned, "--languages", "en,fr", "--top", "2", "--language", "de"]
    found = result("neighbors", clip_folder, *options, "--image-id", image_id, name="gallery.html")
    assert found["query"] == captions[1]["text"] and found["image_id"] == image_id
    assert [len(each) for each in found["captions"].values()] == [2, 2] and len(found["images"]) == 2
    page = (tmp_path / "out" / "gallery.html").read_text(encoding="utf-8")
    assert page.count("data:image/webp") == 6 and "Nearest images" in page
    free = run("analyze", "neighbors", clip_folder, *options, "--query", "abc", "--output", tmp_path / "free.html")
    assert "Images nearest to abc [de]:" in free.stdout
    with pytest.raises(CorpusError, match="no caption in de of an image 'missing'"):
        run_raising(run, "neighbors", clip_folder, *options, "--image-id", "missing", "--output", tmp_path / "x.html")


def run_raising(run, *arguments):
    """Runs a command whose error `main` would print, and raises it."""
    raise run("analyze", *arguments, code=1).exception


def test_agreement_of_a_model_and_of_its_results(result, run, clip_folder, captioned, tmp_path):
    found = result("agreement", clip_folder, "--data", captioned, "--rank", "5")
    assert found["n_images"] == found["n_searched"] == N and sum(found["by_count"]) == N
    run("evaluate", "captions", clip_folder, "--data", captioned, "--output", tmp_path / "results.json")
    same = result("agreement", tmp_path / "results.json", "--rank", "5")
    assert sorted(same["found"].items()) == sorted(found["found"].items())
    assert len(same["in_none"]) == len(found["in_none"])
    some = result("agreement", tmp_path / "results.json", "--languages", "en,de")
    assert some["languages"] == ["en", "de"]
    (tmp_path / "results.ranks.npz").unlink()
    with pytest.raises(ComparisonError, match="has no ranks of queries for captions: give --data"):
        run_raising(run, "agreement", tmp_path / "results.json", "--output", tmp_path / "x.svg")


def test_forgetting_between_models_and_between_results(result, run, clip_folder, captioned, tmp_path, mural_parts):
    other = tmp_path / "other"
    for part in mural_parts:
        part.save_pretrained(other)
    options = ["--data", captioned, "--metric", "t2i_r10", "--languages", "en,de,fr"]
    found = result("forgetting", clip_folder, other, *options)
    assert found["languages"] == ["en", "de", "fr"] and np.shape(found["scores"]) == (3, 2)
    assert found["tests"][0][0].keys() == {"value", "low", "high", "p"}
    for name, model in (("a", clip_folder), ("b", other)):
        run("evaluate", "captions", model, "--data", captioned, "--output", tmp_path / f"{name}.json")
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    same = result("forgetting", *files, "--metric", "t2i_r10", "--languages", "en,de,fr")
    assert same["models"] == ["a", "b"] and same["scores"] == found["scores"] and same["tests"] == found["tests"]
    with pytest.raises(ComparisonError, match="there are no results in ja; there are"):
        run_raising(run, "forgetting", *files, "--languages", "en,ja", "--output", tmp_path / "x.svg")


def test_recall_beside_the_texts_of_a_recipe(result, run, clip_folder, captioned, tmp_path):
    run("evaluate", "captions", clip_folder, "--data", captioned, "--output", tmp_path / "results.json")
    (tmp_path / "pairs.tsv").write_text("en\tfr\n" + "".join(f"text {n}\ttexte {n % 4}\n" for n in range(9)))
    recipe = {
        "method": "mural",
        "model": {"preset": "mural-tiny"},
        "train": {
            "image_text": {"source": str(captioned), "languages": ["en", "de"]},
            "text_text": {"source": str(tmp_path / "pairs.tsv")},
        },
        "training": {"max_steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    found = result("data", tmp_path / "results.json", "--recipe", tmp_path / "recipe.yaml", "--metric", "mean_recall")
    by_tag = dict(zip(found["languages"], zip(found["captions"], found["translations"], strict=True), strict=True))
    assert by_tag == {"en": (N, 9), "de": (N, 0), "fr": (0, 4), "cs": (0, 0), "sw": (0, 0)}
    assert found["characters"][found["languages"].index("fr")] == 4 * len("texte 0")
    with pytest.raises(ComparisonError, match=r"has no 'accuracy' for .*; there are t2i_r1"):
        arguments = [tmp_path / "results.json", "--recipe", tmp_path / "recipe.yaml", "--metric", "accuracy"]
        run_raising(run, "data", *arguments, "--output", tmp_path / "x.svg")


def test_distances_of_an_rc3_and_of_a_dual_encoder(result, run, captioned, clip_folder, tmp_path):
    texts = [caption["text"] for row in load_captions(captioned)["captions"] for caption in row]
    judge, processor = tiny_cross_encoder(texts, TAGS)
    model = Rc3Model(judge.config).eval()
    folders = []
    for name, scale in (("rc3", 1.0), ("without", 1.25)):
        model.encoder.layer_norm.weight.data.fill_(scale)
        folders.append(tmp_path / name)
        for part in (model, processor):
            part.save_pretrained(folders[-1])
    found = result("distances", folders[0], "--baseline", folders[1], "--data", captioned, "--limit", "6")
    assert found["anchor"] == "en" and sorted(found["languages"]) == ["cs", "de", "fr", "sw"]
    np.testing.assert_allclose(found["ratios"], 0.8, atol=1e-4)  # states are scaled by the last layer norm
    same = result("distances", clip_folder, "--baseline", clip_folder, "--data", captioned, "--languages", "de,sw")
    assert set(np.ravel(same["ratios"])) == {1.0}
    wrong = [
        (["--baseline", folders[0]], "only one of"),
        (["--baseline", clip_folder, "--regions", clip_folder], "dual encoders read no regions"),
        (["--baseline", tmp_path / "missing"], "Invalid value for --baseline"),
    ]
    for options, message in wrong:
        arguments = ["distances", clip_folder, *options, "--data", captioned, "--output", tmp_path / "x.svg"]
        assert message in run("analyze", *arguments, code=2).output


# ---- Wrong arguments ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["languages", "M", "--data", "d", "--output", "x.pdf"], "a figure is written as .svg or .png"),
        (["languages", "M", "--data", "d", "--output", "x.svg", "--languages", ","], "names no language"),
        (["neighbors", "M", "--data", "d", "--language", "de", "--output", "x.html"], "give a text as --query"),
        (
            ["neighbors", "M", "--data", "d", "--language", "de", "--output", "x.svg", "--query", "a"],
            "written as .html",
        ),
        (
            ["neighbors", "M", "--data", "d", "--language", "de", "--output", "x.html", "--query", " "],
            "the query is empty",
        ),
        (["forgetting", "M", "--output", "x.svg"], "two models or more"),
        (["agreement", "M", "--output", "x.svg", "--split", "test"], "give --data"),
        (["agreement", "M", "--output", "x.svg", "--data", "d", "--test-set", "t"], "--data is the test set"),
        (["distances", "M", "--baseline", "B", "--data", "d", "--output", "x.svg", "--grid", "3"], "give --regions"),
        (["agreement", "missing.json", "--output", "x.svg"], "there is no such file"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_arguments_are_refused(run, arguments, message):
    assert message in run("analyze", *arguments, code=2).output


def test_other_results_are_not_replaced(run, clip_folder, captioned, tmp_path):
    (tmp_path / "validation.json").write_text('{"en": {"t2i_r1": 1.0}}')
    with pytest.raises(SaveError, match=r"validation.json holds no numbers of an analysis"):
        run_raising(run, "languages", clip_folder, "--data", captioned, "--output", tmp_path / "validation.svg")
    assert "t2i_r1" in (tmp_path / "validation.json").read_text()


def test_models_are_shown_on_the_same_queries(result, run, clip_folder, captioned, mural_folder, tmp_path):
    given = ("--data", captioned, "--languages", "en,de", "--queries", "2", "--top", "4")
    found = result("retrieval", clip_folder, mural_folder, *given, name="found.html")
    names = [clip_folder.name, mural_folder.name]
    assert [list(query["found"]) for query in found["queries"]] == [names] * 4
    assert found["queries"][0]["row"] == found["queries"][2]["row"]  # chosen by the image, in every language
    corpus, embedder = load_captions(captioned), Embedder.from_pretrained(clip_folder)
    scores = embedder.encode_text([row[0]["text"] for row in corpus["captions"]], language="en")
    scores = scores @ embedder.encode_image(corpus["image"]).T
    first = [scores[n].argmax() == n for n in range(N)]
    assert found["first"]["en"][names[0]] == pytest.approx(100 * np.mean(first))
    query = found["queries"][0]
    best = query["found"][names[0]]
    assert best["candidates"] == np.argsort(-scores[query["row"]], kind="stable")[:4].tolist()
    assert best["right"] == [each == query["row"] for each in best["candidates"]]
    assert best["rank"] == 1 + int((scores[query["row"]] > scores[query["row"], query["row"]]).sum())
    texts = result("retrieval", clip_folder, mural_folder, *given, "--direction", "image-to-text", name="found.html")
    query = texts["queries"][0]
    best = query["found"][names[0]]
    captions = [row[0]["text"] for row in corpus["captions"]]
    column = scores[:, query["row"]]
    assert best["names"] == [captions[n] for n in np.argsort(-column, kind="stable")[:4]]
    page = (tmp_path / "out" / "found.html").read_text(encoding="utf-8")
    assert all(page.count(f'<p class="note">{name}</p>') == 4 for name in names)


def test_only_queries_that_models_answer_in_different_ways(
    result, run, clip_folder, captioned, mural_folder, tmp_path
):
    given = ("--data", captioned, "--languages", "en", "--queries", "40", "--differing")
    (tmp_path / "out").mkdir()
    with pytest.raises(ComparisonError, match="is named twice"):
        run_raising(run, "retrieval", clip_folder, clip_folder, *given, "--output", tmp_path / "x.html")
    found = result("retrieval", clip_folder, mural_folder, *given, name="found.html")
    for query in found["queries"]:
        assert {each["rank"] == 1 for each in query["found"].values()} == {True, False}


def test_captions_beside_their_translations(result, run, clip_folder, captioned, tmp_path):
    given = ("--data", captioned, "--languages", "en,de,fr", "--queries", "1", "--consistency")
    found = result("retrieval", clip_folder, *given, name="clc.html")
    assert list(found["queries"][0]["found"]) == [
        "the text alone",
        "all together (CLC)",
        "translated: de",
        "translated: fr",
    ]
    alone = result("retrieval", clip_folder, *given[:-1], name="clc.html")["first"]["en"]
    assert found["first"]["en"]["the text alone"] == alone[clip_folder.name]
    wrong = run("analyze", "retrieval", clip_folder, clip_folder, *given, "--output", tmp_path / "x.html", code=2)
    assert "captions of one model" in " ".join(wrong.output.split())


def test_images_and_labels_are_in_one_map(result, clip_folder, tmp_path):
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "animals" / name).mkdir(parents=True)
        for n in range(4):
            pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "animals" / name / f"{n}.png")
    (tmp_path / "labels.tsv").write_text("class\ten\tde\ncat\tcat\tKatze\ndog\tdog\t\n")
    given = ("--data", tmp_path / "animals", "--labels", tmp_path / "labels.tsv")
    found = result("labels", clip_folder, *given)
    assert found["classes"] == ["cat", "dog"] and found["targets"] == [0] * 4 + [1] * 4
    assert np.shape(found["images"]) == (8, 2) and found["labels"][1][1] == [None, None]
    assert found["accuracy"]["de"] == 50  # of one label


def test_a_figure_that_another_command_draws(run, mural_folder, captioned, tmp_path):
    """Its numbers would lie beside the figure of the other."""
    with locked_path(tmp_path / "map.svg"):
        refused = run(
            "analyze", "languages", mural_folder, "--data", captioned, "--output", tmp_path / "map.svg", code=1
        )
        assert isinstance(refused.exception, SaveError) and "map.svg is in use by process" in str(refused.exception)
    assert list(tmp_path.iterdir()) == []
