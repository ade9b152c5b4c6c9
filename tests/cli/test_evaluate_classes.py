"""`babelens evaluate classes` on a tiny CLIP and folders of images."""

import json

import pytest

from babelens.evaluation import ClassifiedImages, evaluate_classification, read_labels
from babelens.inference.embedder import Embedder
from babelens.utils.errors import CorpusError, InputError
from tests.contracts import drawn_images
from tests.support.results import numbers_of

CLASSES = ["car", "cat", "dog", "house", "sea", "sun"]
LABELS = {"en": {name: name for name in CLASSES}, "de": {"car": "Auto", "cat": "Katze", "dog": "Hund"}}


@pytest.fixture
def photos(tmp_path):
    """Images to train and to test on."""
    for number, image in enumerate(drawn_images(24)):
        place = tmp_path / ("train" if number < 12 else "test") / CLASSES[number % 6]
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number:02}.png")
    (tmp_path / "labels.json").write_text(json.dumps(LABELS), "utf-8")
    (tmp_path / "prompts.json").write_text('{"de": ["ein {}", "das {}"], "en": ["a {}"]}', "utf-8")
    return tmp_path


def test_all_ways_of_classifying(run, model, photos):
    data, labels = photos / "test", photos / "labels.json"
    arguments = [
        "evaluate",
        "classes",
        model,
        "--data",
        data,
        "--labels",
        labels,
        "--output",
        photos / "out" / "classes.json",
    ]
    more = ["--train-data", photos / "train", "--knn", 3]
    shown, report = run(*arguments, *more).output, json.loads(run(*arguments, *more, "--json").stdout)
    assert list(report) == ["zero_shot", "groups", "knn"]
    images = ClassifiedImages.of_folder(data)
    expected = evaluate_classification(Embedder.from_pretrained(model), images, read_labels(labels, images.classes))
    assert report["zero_shot"] == expected
    assert report["groups"]["well-resourced"]["languages"] == ["en", "de"]
    assert report["knn"]["neighbors"] == 3
    for text in ("accuracy in %", "mean, all (2)", "3 nearest neighbors: top 1"):
        assert text in " ".join(shown.split())


def test_models_are_compared_image_by_image(run, model, photos):
    results = []
    for prompts in ("photo", "label"):
        results.append(photos / f"{prompts}.json")
        options = [
            "--labels",
            photos / "labels.json",
            "--prompts",
            prompts,
            "--train-data",
            photos / "train",
            "--knn",
            1,
        ]
        run("evaluate", "classes", model, "--data", photos / "test", *options, "--output", results[-1])
    reports = [numbers_of(path, "test") for path in results]
    compared = json.loads(run("compare", *results, "--format", "json").stdout)
    of = {(each["test_set"], each["language"], each["metric"]): each for each in compared if each["run"] == "label"}
    for language in ("en", "de"):
        before, after = (report[language]["top1"] for report in reports)
        found = of["test", language, "top1"]
        assert found["difference"] == pytest.approx(after - before)
        assert found["difference_low"] <= found["difference"] <= found["difference_high"]
    assert of["test", "en", "top5"]["p"] <= 1
    of_images = of["test, knn", "images", "top1"]  # no text takes part
    assert of_images["difference"] == 0 and of_images["p"] == 1
    assert ("test, knn", "images", "neighbors") not in of


def test_languages_and_a_file_of_prompts(run, model, photos):
    arguments = ["evaluate", "classes", model, "--data", photos / "test", "--labels", photos / "labels.json", "--json"]
    found = json.loads(run(*arguments, "--languages", "DE", "--prompts", photos / "prompts.json").stdout)
    assert list(found["zero_shot"]) == ["de"]
    assert {name: found["zero_shot"]["de"][name] for name in ("n_classes", "n_images", "n_templates")} == {
        "n_classes": 3,
        "n_images": 6,
        "n_templates": 2,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --labels or --knn"),
        (["--knn", "1"], "--knn and --train-data go together"),
        (["--labels", "LABELS", "--train-data", "DATA"], "--knn and --train-data go together"),
        (["--knn", "1", "--train-data", "DATA", "--languages", "de"], "there are no labels in any language"),
        (["--labels", "LABELS", "--languages", ","], "names no language"),
    ],
)
def test_options_that_do_not_go_together(run, model, photos, options, message):
    names = {"LABELS": photos / "labels.json", "DATA": photos / "train"}
    given = [names.get(option, option) for option in options]
    shown = run("evaluate", "classes", model, "--data", photos / "test", *given, code=2).output
    assert message in " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--labels", "labels.json", "--languages", "fr"], CorpusError, "no labels in 'fr', only in en, de"),
        (["--labels", "labels.json", "--prompts", "labels.json"], InputError, "expected a list of templates"),
        (["--labels", "labels.json", "--prompts", "photos"], CorpusError, "photos: .*No such file"),
        (["--knn", "13", "--train-data", "train"], InputError, "12 images for neighbors"),
    ],
)
def test_files_that_do_not_fit(run, model, photos, monkeypatch, options, error, message):
    monkeypatch.chdir(photos)
    failed = run("evaluate", "classes", model, "--data", "test", *options, code=1)
    with pytest.raises(error, match=message):
        raise failed.exception
