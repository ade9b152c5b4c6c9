import json
import re

import pytest
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification

from babelens import Rc3ForVisualEntailment
from babelens.evaluation.ranking import read_ranks
from babelens.model_cards.facts import PIPELINE_TAGS
from babelens.trainers.rc3_tasks import RC3_TASKS
from babelens.utils.errors import CorpusError
from tests.support.published_rc3 import write_xflickrco, write_xgqa, write_xvnli
from tests.support.results import numbers_of
from tests.support.tiny_rc3_tasks import SETTINGS, save_pretrained_rc3
from tests.support.tiny_recipes import train
from tests.support.tiny_training import write_shapes

TRAINING = {key: value for key, value in SETTINGS.items() if key != "disable_tqdm"} | {
    "max_steps": 4,
    "save_strategy": "steps",
    "save_steps": 2,
    "per_device_train_batch_size": 2,
}


ENGLISH, PAIR = {"languages": ["en"]}, {"pairs": [["en", "de"]]}
# Training and test data of a task, the reader, and the files of its options in the published layouts.
DATA = {
    "visual-entailment": (
        *(ENGLISH, {"languages": ["en", "fr"]}, "xvnli"),
        {"file": "xvnli/{language}/test.jsonl", "images": "flickr30k"},
    ),
    "visual-question-answering": (
        *(ENGLISH, {"languages": ["en", "de"]}, "xgqa"),
        {
            "file": "xgqa/{language}/testdev_balanced_questions.json",
            "answers": "xgqa/trainval_ans2label.json",
            "images": "gqa",
        },
    ),
    "image-text-retrieval": (
        *(ENGLISH, {"languages": ["en", "de"]}, "xflickrco"),
        {"file": "xflickrco/{language}/test.jsonl", "images": "xflickrco/images"},
    ),
    "translation": (PAIR, PAIR, "shapes", {}),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Data of each task, and a pre-trained RC3."""
    folder = tmp_path_factory.mktemp("tasks")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        write_xvnli()
        write_xgqa()
        write_xflickrco()
    (folder / "shapes").mkdir()
    write_shapes(folder / "shapes")
    save_pretrained_rc3(folder / "rc3")
    return folder


def recipe(files, task, **options):
    english, every, source, given = DATA[task]
    options = {name: str(files / "data" / path) for name, path in given.items()} | options
    source = str(files / source) if source == "shapes" else source
    data = {"source": source, "options": options, "license": "CC0-1.0"}
    return {
        "method": "rc3",
        "task": task,
        "model": {"from_pretrained": str(files / "rc3")},
        "train": {"english": data | english},
        "test": {"tested": data | every},
        "training": TRAINING,
    }


@pytest.fixture(scope="module")
def entailment(files, tmp_path_factory):
    """A recipe's folder, with its file and its run; not to be changed."""
    folder = tmp_path_factory.mktemp("entailment")
    train(recipe(files, "visual-entailment"), folder)
    return folder


@pytest.mark.parametrize(
    "task", ["image-text-retrieval", "translation", pytest.param("visual-question-answering", marks=pytest.mark.slow)]
)
def test_every_task_leaves_a_model_its_numbers_and_a_card(run, task, files, tmp_path):
    if task == "translation":
        pytest.importorskip("sacrebleu")
    output = train(recipe(files, task), tmp_path)
    report = numbers_of(output, "tested")
    metrics = RC3_TASKS[task].metrics
    assert list(report) == (["en-de"] if task == "translation" else ["en", "de"])
    assert all(set(metrics) <= numbers.keys() for numbers in report.values())
    ranks = read_ranks(output / "results.ranks.npz")
    assert list(ranks) == ([] if task == "translation" else ["tested/en", "tested/de"])
    run("evaluate", "task", output, "--recipe", tmp_path / "recipe.yaml", "--output", tmp_path / "again.json")
    assert numbers_of(tmp_path / "again.json", "tested") == report
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
    assert re.search(r"\| en \| yes \| [\d.]+ \| 4 \|", card) and re.search(r"\| fr \| no \| [\d.]+ \| 4 \|", card)
    shown = run("evaluate", "task", output, "--recipe", entailment / "recipe.yaml").output
    assert "visual-entailment, tested" in shown and "mean" not in shown
    model = AutoModelForSequenceClassification.from_pretrained(output)
    assert type(model) is Rc3ForVisualEntailment
    assert list(model.config.id2label.values()) == ["contradiction", "neutral", "entailment"]


def test_training_goes_on_with_the_answers_that_a_model_has(files, tmp_path):
    task, answers = "visual-question-answering", tmp_path / "answers.json"
    first = train(recipe(files, task), tmp_path / "first")
    answers.write_text(json.dumps({"yes": 0, "pipe": 1}))
    with pytest.raises(CorpusError, match=r"testdev_balanced_questions\.json entry 201307251: the answer 'no'"):
        train(recipe(files, task, answers=str(answers)), tmp_path)
    answers.write_text(json.dumps({"pink": 0, "yes": 1, "pipe": 2, "no": 3}))
    onwards = recipe(files, task, answers=str(answers))
    output = train(onwards | {"model": {"from_pretrained": str(first)}}, tmp_path)
    assert list(json.loads((output / "config.json").read_text())["id2label"].values()) == ["yes", "pipe", "no"]


def test_a_model_of_a_task_says_how_it_is_evaluated(run, files, entailment, tmp_path):
    output = entailment / "run"
    assert "evaluate task" in str(run("evaluate", "captions", output, "--data", files / "shapes", code=1).exception)
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(recipe(files, "image-text-retrieval")))
    refused = run("evaluate", "task", output, "--recipe", other, code=1).exception
    assert "Rc3ForVisualEntailment" in str(refused)
