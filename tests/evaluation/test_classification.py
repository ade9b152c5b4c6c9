import json

import numpy as np
import pytest

from babelens import evaluation
from babelens.inference.embedder import Embedder
from babelens.utils.errors import CorpusError, InputError
from tests.contracts import drawn_images

CLASSES = ["car", "cat", "dog", "house", "sea", "sun", "tree"]
ENGLISH = dict(enumerate(CLASSES))
GERMAN = {0: "Auto", 1: "Katze", 2: "Hund", 3: "Haus", 5: "Sonne", 6: "Baum"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("classes")
    for number, image in enumerate(drawn_images(20)):
        place = root / CLASSES[number % 7]
        place.mkdir(exist_ok=True)
        image.save(place / f"{number:02}.png")
    return evaluation.ClassifiedImages.of_folder(root)


@pytest.fixture
def embedder(clip_parts):
    return Embedder(*clip_parts, batch_size=6)


def written(path, content) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return str(path)


def test_labels_in_the_published_form_by_name_and_as_a_table(tmp_path):
    published = {"EN": [list(ENGLISH), CLASSES], "DE": [list(GERMAN), list(GERMAN.values())], "ZH_MIN_NAN": [[], []]}
    by_name = {"en": {name: name for name in CLASSES}, "de": {CLASSES[i]: label for i, label in GERMAN.items()}}
    table = "\n".join(["class\ten\tde", *(f"{name}\t{name}\t{GERMAN.get(i, '')}" for i, name in ENGLISH.items())])
    expected = {"en": ENGLISH, "de": GERMAN}
    for file in (
        written(tmp_path / "published.json", published),
        written(tmp_path / "names.json", by_name),
        written(tmp_path / "labels.tsv", table),
    ):
        assert evaluation.read_labels(file, CLASSES) == expected
        assert evaluation.read_labels(file, CLASSES, "DE") == {"de": GERMAN}
        with pytest.raises(CorpusError, match="no labels in 'fr', only in en, de"):
            evaluation.read_labels(file, CLASSES, ["de", "fr"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"de": [[], []]}, "no class has a label"),
        ({"de": [[0, 1], ["Auto"]]}, "same length"),
        ({"de": [[1, 1], ["Auto", "Katze"]]}, "twice"),
        ({"de": {"lion": "Löwe"}}, "lion"),
        ({"de": {"cat": " "}}, "label"),
    ],
)
def test_wrong_labels(tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        evaluation.read_labels(written(tmp_path / "labels.json", content), CLASSES)


def test_indices_of_imagenet_need_all_of_its_classes(tmp_path):
    file = written(tmp_path / "labels.json", {"DE": [[0], ["Schleie"]]})
    with pytest.raises(CorpusError, match="1,000"):
        evaluation.read_labels(file, ["n01440764", "n01443537"])
    assert evaluation.read_labels(file, [f"n{number:08}" for number in range(1000)]) == {"de": {0: "Schleie"}}


def brute_force(embedder, data, named, templates, language) -> dict[str, float]:
    images = embedder.encode_image(data.images).astype(np.float64)
    rows = []
    for label in named.values():
        texts = embedder.encode_text([t.replace("{}", label) for t in templates], language=language).astype(np.float64)
        rows.append(texts.mean(0) / np.linalg.norm(texts.mean(0)))
    kept = [index for index, target in enumerate(data.targets) if target in named]
    ranks = []
    for index in kept:
        scores = np.array(rows) @ images[index]
        right = list(named).index(data.targets[index])
        ranks.append(1 + int(np.sum(np.delete(scores, right) >= scores[right] - 1e-6)))
    return {f"top{k}": 100 * np.mean(np.array(ranks) <= k) for k in (1, 5)} | {"n_images": len(kept)}


@pytest.mark.parametrize("prompts", ["photo", "label", {"de": ["ein {}.", "das {} hier", "{}"], "en": ["a {}"]}])
def test_a_real_model_equals_brute_force(embedder, data, prompts):
    labels = {"en": ENGLISH, "de": GERMAN}
    results = evaluation.evaluate_classification(embedder, data, labels, prompts=prompts)
    templates = {
        "photo": {"en": ["This is a photo of {}."], "de": ["Auf diesem Foto ist {} zu sehen."]},
        "label": {"en": ["{}"], "de": ["{}"]},
    }.get(str(prompts), prompts)
    for language, named in labels.items():
        expected = brute_force(embedder, data, named, templates[language], language)
        found = {name: results[language][name] for name in expected}
        assert found == pytest.approx(expected), language
        assert results[language]["n_classes"] == len(named)
        assert results[language]["n_templates"] == (0 if prompts == "label" else len(templates[language]))
    assert results["de"]["n_images"] == 17  # without those of the sea, which has no label


def test_equal_labels_are_counted_and_few_classes_have_no_top_5(embedder, data):
    same = {0: "Ding", 1: "Ding", 2: "Hund"}
    results = evaluation.evaluate_classification(embedder, data, {"de": same})["de"]
    assert results["n_equal_labels"] == 2 and "top5" not in results
    right = {0: "a", 1: "b"}
    assert "n_equal_labels" not in evaluation.evaluate_classification(embedder, data, {"de": right})["de"]


def test_means_of_groups():
    results = {
        "en": {"top1": 90.0, "top5": 99.0},
        "de": {"top1": 70.0, "top5": 80.0},
        "mg": {"top1": 20.0, "top5": 30.0},
        "sw": {"top1": 40.0},
    }
    groups = evaluation.language_groups({}, 7)
    assert list(groups) == ["well-resourced", "under-resourced"]
    means = evaluation.group_means(results, groups)
    assert means["all"] == {"top1": 55.0, "languages": ["en", "de", "mg", "sw"]}
    assert means["well-resourced"] == {"top1": 80.0, "top5": 89.5, "languages": ["en", "de"]}
    assert means["under-resourced"]["languages"] == ["mg"]
    counts = {"en": 1000, "de": 668, "fr": 667, "sw": 334, "mg": 333}
    groups = evaluation.language_groups({tag: dict.fromkeys(range(count), "x") for tag, count in counts.items()}, 1000)
    assert [groups[name] for name in ("low", "mid", "high")] == [["mg"], ["fr", "sw"], ["de"]]


def test_nearest_neighbors_by_cosine_equal_brute_force():
    random = np.random.default_rng(0)
    train, test = random.normal(size=(30, 4)), random.normal(size=(12, 4))
    train_targets, targets = random.integers(0, 3, 30), random.integers(0, 3, 12)
    cosines = (test / np.linalg.norm(test, axis=1, keepdims=True)) @ (train / np.linalg.norm(train, axis=1)[:, None]).T
    for k in (1, 5):
        votes = [np.bincount(train_targets[np.argsort(-row)[:k]], minlength=3).argmax() for row in cosines]
        found = evaluation.neighbor_accuracy(train, train_targets, test, targets, neighbors=k)
        assert found == {
            "top1": pytest.approx(100 * np.mean(votes == targets)),
            "neighbors": k,
            "n_train": 30,
            "n_images": 12,
        }
    with pytest.raises(InputError, match="31"):
        evaluation.neighbor_accuracy(train, train_targets, test, targets, neighbors=31)
