"""The Hub's rules for metadata, without network: what is refused, and that cards of babelens are not."""

import pytest

from babelens.model_cards.card_checks import PIPELINE_TAGS, card_problems
from babelens.model_cards.facts import EMBEDDING_TAG, PIPELINE_TAG, PIPELINE_TAGS as OF_TASKS
from tests.support.hub_store import Refusal, check_card

GOOD = """
language: [de, en]
license: mit
library_name: transformers
pipeline_tag: zero-shot-image-classification
base_model: owner/model
base_model_relation: finetune
tags: [babelens]
inference: {parameters: {hypothesis_template: "{}"}}
widget:
- {src: a.png, candidate_labels: "a, b", output: [{label: a, score: 0.5}, {label: b, score: 0.5}]}
model-index:
- name: tiny
  results:
  - task: {type: retrieval}
    dataset: {type: data, name: Data}
    metrics: [{type: recall, value: 1.5}]
"""


@pytest.fixture
def problems(tmp_path):
    (tmp_path / "a.png").touch()

    def of(metadata):
        (tmp_path / "README.md").write_text(f"---\n{metadata.strip()}\n---\n# tiny\n")
        return card_problems(tmp_path)

    return of


def test_a_good_card_has_no_problem(problems):
    assert problems(GOOD) == []
    assert check_card(f"---\n{GOOD.strip()}\n---\n", "model") == []


@pytest.mark.parametrize(
    ("old", "new", "problem", "is_refused"),
    [
        ("[de, en]", "[de, zh-Hant]", "language 'zh-Hant' is no ISO 639 code", True),
        ("[de, en]", "[de, xx]", "language: ", False),
        ("[de, en]", "[de, no]", "", True),  # YAML 1.1 reads false
        ("[de, en]", "[]", "the metadata have no language", False),
        ("license: mit", "license: MIT License", "'MIT License' is no license", True),
        ("license: mit", "license: mit\nlicense: gpl", "license is given twice", True),
        ("{type: data, name: Data}", "{type: data, type: more, name: Data}", "type is given twice", True),
        ("zero-shot-image", "zero-shots-image", "is no task of the Hub; did you mean", False),
        ("library_name: transformers", "library_name: [a]", "library_name ['a'] is no text", True),
        ("owner/model", "./runs/model", "base_model './runs/model' is no repository of the Hub", True),
        ("owner/model", "[owner/model, a/b/c]", "base_model 'a/b/c' is no repository of the Hub", True),
        ("finetune", "finetuned", "base_model_relation 'finetuned' is none of", False),
        ("tags: [babelens]", "tags: [1]", "tags is no list of texts", False),
        ("value: 1.5", "value: .nan", "model-index: recall of Data is nan, and not a number", False),
        ("value: 1.5", "amount: 1.5", "Invalid `model_index`", True),
        ("- name: tiny", "- title: tiny", "Invalid `model_index`", True),
        ("src: a.png, ", "", "example 1 of the widget has no src", False),
        ('"a, b"', "[a, b]", "example 1 of the widget has candidate_labels that are no text", False),
        ('"a, b"', '"a, c"', "other labels in output than in candidate_labels", False),
        ('{parameters: {hypothesis_template: "{}"}}', "yes please", "inference is neither true", False),
        ("a.png", "b.png", "the widget shows 'b.png', which is missing", False),
        ("license: mit", "license: [mit", "README.md: ", True),
    ],
)
def test_a_broken_rule_is_one_sentence(problems, old, new, problem, is_refused):
    """Whatever the Hub's double refuses is found before; of other mistakes the Hub would take no notice."""
    assert old in GOOD
    metadata = GOOD.replace(old, new, 1)
    found = problems(metadata)
    assert any(problem in each for each in found) and all(each.startswith("README.md: ") for each in found)
    assert not any("\n" in each for each in found)
    if is_refused:
        with pytest.raises(Refusal):
            check_card(f"---\n{metadata.strip()}\n---\n", "model")


def test_the_tasks_of_babelens_are_the_hubs():
    assert {PIPELINE_TAG, EMBEDDING_TAG, *OF_TASKS.values()} <= set(PIPELINE_TAGS)
    assert len(PIPELINE_TAGS) == len(set(PIPELINE_TAGS)) == 57
