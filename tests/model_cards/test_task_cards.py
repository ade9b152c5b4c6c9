"""Cards of models of RC3's tasks: what each is for, its own measures, metadata that the Hub knows."""

import dataclasses

import pytest
from huggingface_hub.repocard_data import model_index_to_eval_results

from babelens.model_cards.cards import model_card
from babelens.model_cards.facts import PIPELINE_TAGS, DataSource, Result, TaskCardFacts
from babelens.trainers.rc3_tasks import RC3_TASKS

SNLI = DataSource(name="SNLI-VE", license="CC-BY-SA-4.0", role="texts", attribution="its authors")


def facts(task: str, **changes) -> TaskCardFacts:
    measured = RC3_TASKS[task].metrics
    language = "en-de" if task == "translation" else "de"
    scores = dict.fromkeys(measured, 61.25) | {"n": 880}
    return TaskCardFacts(
        **{
            "model_name": "rc3-task",
            "method": "rc3",
            "task": task,
            "model_class": RC3_TASKS[task].model.__name__,
            "scores": measured,
            "labels": ["yes", "no"],
            "image_languages": ["en"],
            "unseen_languages": ["de"],
            "training_data": [SNLI],
            "results": [
                Result(dataset="test", language=language, scores=scores, command="babelens evaluate emoji rc3-task")
            ],
        }
        | changes
    )


@pytest.mark.parametrize("task", list(RC3_TASKS))
def test_a_card_says_what_was_measured_as_the_hub_calls_it(task):
    card = model_card(facts(task))
    metadata = card.data.to_dict()
    assert metadata["pipeline_tag"] == PIPELINE_TAGS[task] and metadata["language"] == ["en", "de"]
    assert task in metadata["tags"] and metadata["license"] == "cc-by-sa-4.0"
    expected = {"translation": {"sacrebleu", "chrf"}, "image-text-retrieval": {"recall"}}.get(task, {"accuracy"})
    assert set(metadata["metrics"]) == expected
    name, results = model_index_to_eval_results(metadata["model-index"])
    assert name == "rc3-task" and {result.metric_value for result in results} == {61.25}
    language, seen = ("en-de", "no") if task == "translation" else ("de", "no")
    row = " | ".join([language, seen, *["61.2"] * len(RC3_TASKS[task].metrics), "880"])
    assert f"| {row} |" in card.text
    assert f"import {RC3_TASKS[task].model.__name__}" in card.text and "zero-shot-image" not in card.text


def test_both_languages_of_a_translation_must_have_been_trained_on():
    trained = facts("translation", image_languages=["en", "de"], unseen_languages=[])
    assert trained.training_of("en-de") == "yes" and trained.training_of("en-fr") == "no"


def test_a_language_with_a_script_is_one_language():
    chinese = facts("visual-entailment", image_languages=["en", "zh-Hant"])
    assert chinese.training_of("zh-Hant") == "yes"


def test_unknown_tasks_are_refused():
    with pytest.raises(ValueError, match="task='chess'"):
        dataclasses.replace(facts("translation"), task="chess")
