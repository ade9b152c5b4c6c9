import json
import shutil

import mteb
import pytest
from huggingface_hub import ModelCard

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig, evaluation
from babelens.data.benchmarks import benchmark_names, find_benchmark
from babelens.data.corpus.loading import load_captions
from babelens.evaluation.ranking import read_ranks
from babelens.evaluation.results import read_results
from babelens.inference.embedder import Embedder
from babelens.utils.errors import InputError, LanguageTagError
from tests.contracts import drawn_images
from tests.support import tiny_mteb_tasks as tasks
from tests.support.image_sources import write_captioned
from tests.support.published_layouts import BENCHMARKS
from tests.support.results import metrics_of, numbers_of
from tests.support.tiny_text_encoders import saved_encoder
from tests.support.translation_models import save_nllb


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    rows = []
    for n in range(8):
        captions = {"en": [f"number {n}"], "de": [f"nummer {n}", f"bild {n}"]}
        rows.append({"split": "test" if n < 4 else "validation", "captions": captions})
    return write_captioned(tmp_path_factory.mktemp("data") / "photos", rows)


@pytest.fixture(scope="module")
def embedder(model):
    return Embedder.from_pretrained(model)


def words(output):
    return " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize("protocol", ["standard", "mla"])
def test_captioned_images(run, model, embedder, photos, tmp_path, protocol):
    test, output = load_captions(photos, split="test"), tmp_path / "results.json"
    expected = evaluation.evaluate_retrieval(embedder, test, ["de", "en"], protocol=protocol)
    options = ("--data", photos, "--split", "test", "--protocol", protocol, "--output", output)
    shown = run("evaluate", "captions", model, *options).output
    assert numbers_of(output) == metrics_of(expected) and (tmp_path / "results.ranks.npz").is_file()
    assert f"{expected['en']['t2i_r1']:.1f}" in shown
    found = {(each.dataset, each.split, each.n) for each in read_results(output) if each.metric == "i2t_r1"}
    assert found == {("photos", "test", 4)}
    only = run("evaluate", "captions", model, *options[:4], "--languages", "en").output
    assert not [line for line in only.splitlines() if line.split()[:1] == ["de"]]


def test_captions_and_their_english_translations(run, model, embedder, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("babelens.inference.translation.DEFAULT_CACHE", tmp_path / "cache")
    nllb, output = save_nllb(tmp_path / "nllb"), tmp_path / "photos.json"
    given = ("--data", photos, "--split", "test", "--translator", nllb, "--output", output)
    assert "translated into en" in run("evaluate", "captions", model, *given).output
    expected = evaluation.evaluate_retrieval(embedder, load_captions(photos, split="test"), ["de", "en"])
    assert numbers_of(output) == metrics_of(expected)  # as they are, without translation
    assert len(list((tmp_path / "cache").glob("*.sqlite"))) == 1


def test_captions_search_together_with_their_translations(run, model, embedder, photos, tmp_path):
    lines = [{"en": f"number {n}", "de": f"das {n}"} for n in range(8)]
    lines += [{"de": f"{word} {n}", "en": f"that {n}"} for n in range(8) for word in ("nummer", "bild")]
    table = tmp_path / "table.jsonl"
    table.write_text("\n".join(map(json.dumps, lines)))
    given = ("--data", photos, "--split", "test", "--languages", "en,de", "--consistency")
    consistency = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=["en", "de"], aggregation="mean"))
    test = load_captions(photos, split="test")
    recalls = evaluation.evaluate_consistent_retrieval(embedder, test, ["en", "de"], consistency)
    shown = run("evaluate", "captions", model, *given, "--fit", "validation", "--output", tmp_path / "r.json").output
    assert "CLC-A" in shown
    assert f"{recalls['de']['mean_recall']:.1f}" in shown and "CLC-C, 96 weights" in shown
    plain = evaluation.evaluate_retrieval(embedder, test, ["en", "de"])
    assert numbers_of(tmp_path / "r.json") == metrics_of(plain)  # `compare` compares the searches by one caption
    shown = run("evaluate", "captions", model, *given, "--translator", table).output
    assert "CLC-C was left out" in shown and "served as translations" not in shown
    table.write_text(json.dumps(lines[0]))
    failed = run("evaluate", "captions", model, *given, "--translator", table, code=1).exception
    assert isinstance(failed, InputError) and "have no translation" in str(failed)


def test_the_emoji_benchmark(run, model, emoji_corpus, tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(evaluation.emoji, "load_emoji", lambda **options: asked.update(options) or emoji_corpus)
    groups = {"image": ("en", "de"), "pair": ("es",), "unseen": ("ar",)}
    defaults = {f"{name}_languages": languages for name, languages in groups.items()}
    monkeypatch.setattr(
        evaluation.emoji.EmojiBenchmark.__init__,
        "__kwdefaults__",
        evaluation.emoji.EmojiBenchmark.__init__.__kwdefaults__ | defaults,
    )
    monkeypatch.setattr("babelens.evaluation.consistency.load_emoji", lambda **_: emoji_corpus)
    output = tmp_path / "emoji.json"
    shown = run("evaluate", "emoji", model, "--consistency", "--output", output).output
    assert asked == {"vendors": ["twemoji", "noto"], "languages": ["en", "de", "es", "ar", "en"]}
    assert "Unseen concepts" in shown and "CLC-C, 96 weights" in shown
    assert {each.language for each in read_results(output)} == {"en", "de", "es", "ar"}


CLASSES = ["car", "cat", "dog", "house", "sea", "sun"]
LABELS = {"en": {name: name for name in CLASSES}, "de": {"car": "Auto", "cat": "Katze", "dog": "Hund"}}


@pytest.fixture
def animals(tmp_path):
    for number, image in enumerate(drawn_images(24)):
        place = tmp_path / ("train" if number < 12 else "test") / CLASSES[number % 6]
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number:02}.png")
    (tmp_path / "labels.json").write_text(json.dumps(LABELS), "utf-8")
    (tmp_path / "prompts.json").write_text('{"de": ["ein {}", "das {}"], "en": ["a {}"]}', "utf-8")
    return tmp_path


def test_classes_by_labels_and_by_neighbors(run, model, embedder, animals):
    given = ("evaluate", "classes", model, "--data", animals / "test", "--labels", animals / "labels.json")
    more = ("--train-data", animals / "train", "--knn", 3)
    shown = run(*given, *more, "--output", animals / "photo.json").output
    images = evaluation.ClassifiedImages.of_folder(animals / "test")
    expected = evaluation.evaluate_classification(
        embedder, images, evaluation.read_labels(animals / "labels.json", images.classes)
    )
    assert numbers_of(animals / "photo.json", "test") == metrics_of(expected)
    for text in ("accuracy in %", "mean, all (2)", "3 nearest neighbors: top 1"):
        assert text in words(shown)
    run(*given, *more, "--prompts", "label", "--output", animals / "label.json")
    compared = json.loads(run("compare", animals / "photo.json", animals / "label.json", "--format", "json").stdout)
    of = {(each["test_set"], each["language"], each["metric"]): each for each in compared if each["run"] == "label"}
    after = numbers_of(animals / "label.json", "test")["de"]["top1"]
    assert of["test", "de", "top1"]["difference"] == pytest.approx(after - expected["de"]["top1"])
    assert of["test, knn", "images", "top1"]["difference"] == 0
    shown = run(*given, "--languages", "DE", "--prompts", animals / "prompts.json").output
    assert "3 6 2" in words(shown) and " en " not in words(shown)  # classes, images, templates


def test_benchmarks_are_listed_and_shown_in_full(run):
    listed = run("evaluate", "benchmark").output
    assert all(name in listed for name in benchmark_names())
    for name in benchmark_names():
        benchmark, shown = find_benchmark(name), run("evaluate", "benchmark", "--benchmark", name).output
        files = [text for file in benchmark.files for text in (file["path"], file["origin"])]
        for text in (benchmark.title, benchmark.license, benchmark.paper, benchmark.url, *benchmark.facts, *files):
            assert text in shown


def test_results_next_to_the_figures_of_papers(run, model, embedder, tmp_path):
    BENCHMARKS["xtd"](tmp_path / "xtd")
    given = ("evaluate", "benchmark", model, "--benchmark", "xtd", "--root", tmp_path / "xtd")
    output = tmp_path / "out/xtd.json"
    shown = run(*given, "--languages", "ko,de", "--output", output).output
    assert "xtd, t2i_r10, next to Jain et al. 2021 (MURAL), table 4" in shown and "88.1" in shown
    report = evaluation.load_benchmark("xtd", tmp_path / "xtd", ["ko", "de"]).evaluate(embedder)
    assert numbers_of(output) == metrics_of(report["results"]["xtd"])
    assert set(read_ranks(tmp_path / "out/xtd.ranks.npz")) == {"xtd/ko", "xtd/de"}
    for options, word in ((["--languages", "sw"], "sw"), (["--languages", ","], "names no language")):
        assert word in run(*given, *options, code=2).output
    assert "'xdt'" in run("evaluate", "benchmark", "--benchmark", "xdt", code=2).output
    (tmp_path / "xtd/STAIR/test_1kcaptions_jp.txt").unlink()
    assert "test_1kcaptions_jp.txt" in words(run(*given, code=2).output)


@pytest.fixture
def tiny_tasks(monkeypatch):
    pairs = [("ein hund", "a dog"), ("zwei katzen", "two cats"), ("der rote ball", "the red ball")]
    made = {
        "TinyBitext": lambda: tasks.bitext(pairs),
        "TinyZeroShot": lambda: tasks.zero_shot(drawn_images(3), [0, 1, 0], ["rot", "blau"]),
    }
    monkeypatch.setattr(mteb, "get_task", lambda name: made[name]())


def test_scores_of_mteb_are_printed_kept_and_added_to_the_card(run, model, tiny_tasks, tmp_path):
    folder = shutil.copytree(model, tmp_path / "clip")
    given = ("evaluate", "mteb", folder, "--tasks", "TinyBitext,TinyZeroShot", "--languages", "de")
    assert "modelcard" in words(run(*given, "--card", code=2).output).replace(" ", "")
    (folder / "README.md").write_text("---\nlicense: mit\nlanguage: en\n---\n# A model\n")
    shown = run(*given, "--card").output
    (kept,) = (folder / "evaluation" / "mteb" / "results").glob("local__clip/*/TinyBitext.json")
    f1 = json.loads(kept.read_text())["scores"]["test"][0]["f1"]
    assert "TinyBitext, in %" in shown and "deu-Latn, eng-Latn" in shown and f"{100 * f1:.1f}" in shown
    scores = {each.dataset_name: each for each in ModelCard.load(folder / "README.md").data.eval_results}
    assert scores["TinyBitext (de-en)"].metric_value == pytest.approx(100 * f1, abs=1e-2)
    assert scores["TinyZeroShot (default)"].metric_type == "accuracy"
    run("evaluate", "mteb", folder, "--tasks", "TinyBitext", "--output", tmp_path / "mteb")
    assert list((tmp_path / "mteb").rglob("TinyBitext.json"))
    failed = run("evaluate", "mteb", folder, "--tasks", "TinyBitext", "--languages", "sw", code=1).exception
    assert isinstance(failed, LanguageTagError) and "sw" in str(failed)


def test_a_text_encoder_with_its_prompt(run, tiny_tasks, tmp_path):
    saved_encoder("bert", tmp_path / "bert", "mean_tokens")
    for prompt in ("query: ", "passage: "):  # results of one are not those of the other
        run("evaluate", "mteb", tmp_path / "bert", "--tasks", "TinyBitext", "--text-prompt", prompt)
    assert len(list((tmp_path / "bert" / "evaluation" / "mteb" / "results" / "local__bert").iterdir())) == 2


def test_comparing_seeds_with_a_run_and_with_a_file(run, model, folder_of, photos, tmp_path):
    seeds, file = tmp_path / "seeds", tmp_path / "evaluated.json"
    places = (seeds / "seed-1" / "results.json", seeds / "seed-2" / "results.json", file)
    for folder, place in zip((model, folder_of("mural"), model), places, strict=True):
        run("evaluate", "captions", folder, "--data", photos, "--output", place)
    scores = json.loads(run("compare", seeds, seeds / "seed-2", file, "--format", "json").stdout)
    assert list(dict.fromkeys(score["run"] for score in scores)) == ["seeds", "seed-2", "evaluated"]
    assert list(dict.fromkeys(score["language"] for score in scores)) == ["de", "en", "mean"]
    found = {(score["language"], score["run"], score["metric"]): score for score in scores}
    reports = [numbers_of(seeds / f"seed-{seed}") for seed in (1, 2)]
    for language in ("de", "en"):
        mean = found[language, "seeds", "mean_recall"]["mean"]
        assert mean == pytest.approx(sum(report[language]["mean_recall"] for report in reports) / 2)
        assert found[language, "evaluated", "t2i_r1"]["mean"] == reports[0][language]["t2i_r1"]
        difference = found[language, "seed-2", "mean_recall"]["difference"]
        assert difference == pytest.approx(reports[1][language]["mean_recall"] - mean)
    shown = run("compare", seeds, seeds / "seed-1", "--metrics", "mean_recall").stdout
    for words in ("photos, in %", "Mean ± standard deviation over 1 or 2 seeds.", "Difference from seeds"):
        assert words in shown
    (tmp_path / "empty").mkdir()
    assert "no results" in str(run("compare", seeds, tmp_path / "empty", code=1).exception)
