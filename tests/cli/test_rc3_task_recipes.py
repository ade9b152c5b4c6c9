import json
import re
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification

from babelens import Rc3ForVisualEntailment
from babelens.evaluation.ranking import read_ranks
from babelens.model_cards.facts import PIPELINE_TAGS
from babelens.trainers.rc3_tasks import RC3_TASKS
from babelens.utils.errors import CorpusError
from tests.support.results import numbers_of
from tests.support.tiny_rc3_tasks import LANGUAGES, SETTINGS, colour_rows, save_pretrained_rc3
from tests.support.tiny_recipes import train
from tests.support.tiny_training import COLORS, shapes_corpus, write_shapes

TRAINING = {key: value for key, value in SETTINGS.items() if key != "disable_tqdm"} | {
    "max_steps": 4,
    "save_strategy": "steps",
    "save_steps": 2,
    "per_device_train_batch_size": 8,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The shapes in the formats that are published, and a pre-trained RC3."""
    folder = write_shapes(tmp_path_factory.mktemp("tasks"))
    for image_id in shapes_corpus()["image_id"]:
        shutil.copy(folder / f"{image_id}.png", folder / f"{image_id}.jpg")  # as Flickr30K and GQA call theirs
    save_pretrained_rc3(folder / "rc3")
    answers = {"false": "contradiction", "true": "entailment"}
    for tag in LANGUAGES:
        lines = [
            {"gold_label": answers[label], "sentence2": row["text"]}
            | {"Flikr30kID": row["image_id"], "pairID": str(place)}
            for place, (row, label) in enumerate(_named(colour_rows([tag]).remove_columns("image")))
        ]
        _write(folder / f"xvnli-{tag}.jsonl", lines)
        questions = colour_rows([tag], list(COLORS)).remove_columns("image")
        asked = {
            str(place): {"question": row["text"], "answer": label, "imageId": row["image_id"]}
            for place, (row, label) in enumerate(_named(questions))
        }
        (folder / f"xgqa-{tag}.json").write_text(json.dumps(asked), "utf-8")
        captions = [
            {"img_path": f"{row['image_id']}.png", "sentences": [c["text"]]}
            for row in shapes_corpus().remove_columns("image")
            for c in row["captions"]
            if c["language"] == tag
        ]
        _write(folder / f"xflickrco-{tag}.jsonl", captions)
    (folder / "answers.json").write_text(json.dumps({color: place for place, color in enumerate(COLORS)}))
    return folder


def _named(rows):
    names = rows.features["label"].names
    return [(row, names[row["label"]]) for row in rows]


def _write(file, lines):
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")


def recipe(files, task, source, options, **changes):
    data = {"source": source, "options": options, "license": "CC0-1.0"}
    english, every = {"languages": ["en"]}, {"languages": LANGUAGES}
    if task == "translation":
        english = every = {"pairs": [["en", "de"]]}
    return {
        "method": "rc3",
        "task": task,
        "model": {"from_pretrained": str(files / "rc3")},
        "train": {"english": data | english},
        "test": {"shapes": data | every},
        "training": TRAINING,
    } | changes


def recipes(files):
    return {
        "visual-entailment": ("xvnli", {"file": f"{files}/xvnli-{{language}}.jsonl", "images": str(files)}),
        "visual-question-answering": (
            "xgqa",
            {"file": f"{files}/xgqa-{{language}}.json", "answers": str(files / "answers.json"), "images": str(files)},
        ),
        "image-text-retrieval": ("xflickrco", {"file": f"{files}/xflickrco-{{language}}.jsonl", "images": str(files)}),
        "translation": (str(files), {}),
    }


@pytest.fixture(scope="module")
def entailment(files, tmp_path_factory):
    """A recipe's folder, with its file and its run; not to be changed."""
    folder = tmp_path_factory.mktemp("entailment")
    train(recipe(files, "visual-entailment", *recipes(files)["visual-entailment"]), folder)
    return folder


@pytest.mark.parametrize(
    "task", ["image-text-retrieval", "translation", pytest.param("visual-question-answering", marks=pytest.mark.slow)]
)
def test_every_task_leaves_a_model_its_numbers_and_a_card(run, task, files, tmp_path):
    if task == "translation":
        pytest.importorskip("sacrebleu")
    content = recipe(files, task, *recipes(files)[task])
    output = train(content, tmp_path)
    report = numbers_of(output, "shapes")
    metrics = RC3_TASKS[task].metrics
    assert list(report) == (["en-de"] if task == "translation" else LANGUAGES)
    assert all(set(metrics) <= numbers.keys() for numbers in report.values())
    ranks = read_ranks(output / "results.ranks.npz")
    assert list(ranks) == ([] if task == "translation" else [f"shapes/{language}" for language in LANGUAGES])
    run("evaluate", "task", output, "--recipe", tmp_path / "recipe.yaml", "--output", tmp_path / "again.json")
    assert numbers_of(tmp_path / "again.json", "shapes") == report
    card = ModelCard.load(output / "README.md")
    assert card.data.pipeline_tag == PIPELINE_TAGS[task] and task in card.data.tags
    expected = {"translation": {"sacrebleu", "chrf"}, "image-text-retrieval": {"recall"}}.get(task, {"accuracy"})
    assert set(card.data.metrics) == expected
    assert {result.dataset_config for result in card.data.eval_results} == set(report)
    assert RC3_TASKS[task].model.__name__ in card.text
    run("push", output, "somebody/rc3", "--dry-run")
    assert type(RC3_TASKS[task].model.from_pretrained(output)) is RC3_TASKS[task].model


def test_english_is_trained_on_and_the_others_are_told_apart(run, entailment):
    output = entailment / "run"
    assert numbers_of(output, "vocabulary").keys() == {"en"}
    card = (output / "README.md").read_text()
    assert "| Languages of the texts in fine-tuning | en |" in card
    assert re.search(r"\| en \| yes \| [\d.]+ \| 32 \|", card) and re.search(r"\| de \| no \| [\d.]+ \| 32 \|", card)
    shown = run("evaluate", "task", output, "--recipe", entailment / "recipe.yaml").output
    assert "visual-entailment, shapes" in shown and "mean" not in shown
    model = AutoModelForSequenceClassification.from_pretrained(output)
    assert type(model) is Rc3ForVisualEntailment
    assert list(model.config.id2label.values()) == ["contradiction", "neutral", "entailment"]


def test_training_goes_on_with_the_answers_that_a_model_has(files, tmp_path):
    content = recipe(files, "visual-question-answering", *recipes(files)["visual-question-answering"])
    (tmp_path / "first").mkdir()
    first = train(content, tmp_path / "first")
    fewer = tmp_path / "fewer.json"
    fewer.write_text(json.dumps({"red": 0, "blue": 1}))
    options = recipes(files)["visual-question-answering"][1]
    with pytest.raises(CorpusError, match=r"xgqa-en\.json entry 4: the answer"):
        train(recipe(files, content["task"], "xgqa", options | {"answers": str(fewer)}), tmp_path)
    more = tmp_path / "more.json"
    more.write_text(json.dumps({color: place for place, color in enumerate(["pink", *COLORS])}))
    onwards = recipe(files, content["task"], "xgqa", options | {"answers": str(more)})
    output = train(onwards | {"model": {"from_pretrained": str(first)}}, tmp_path)
    assert list(json.loads((output / "config.json").read_text())["id2label"].values()) == list(COLORS)


def test_a_model_of_a_task_says_how_it_is_evaluated(run, files, entailment, tmp_path):
    output = entailment / "run"
    assert "evaluate task" in str(run("evaluate", "captions", output, "--data", files, code=1).exception)
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(recipe(files, "image-text-retrieval", *recipes(files)["image-text-retrieval"])))
    refused = run("evaluate", "task", output, "--recipe", other, code=1).exception
    assert "Rc3ForVisualEntailment" in str(refused)
