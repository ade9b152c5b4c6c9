"""Results in a card are read back by huggingface_hub, and everything else in the card stays as it was."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, parse_eval_result_entries

from babelens.model_cards import result_tables
from babelens.model_cards.result_tables import add_results
from babelens.publishing import files_to_publish
from babelens.utils.errors import ModelFolderError

CARD = """---
language: [en, uk]
license: apache-2.0
model_name: tiny
widget:
- src: a.png
model-index:
- name: tiny
  results:
  - task: {type: image-text-retrieval}
    dataset: {type: emoji, name: Emoji (uk), config: uk}
    metrics: [{type: recall, name: mean recall, value: 41.5}]
---

# tiny

Text – with a dash.
"""


def result(subset, value, metric="ndcg_at_10"):
    of_data = {"dataset_type": "mteb/xm3600", "dataset_name": f"XM3600 ({subset})", "dataset_config": subset}
    return EvalResult(task_type="Retrieval", metric_type=metric, metric_name=metric, metric_value=value, **of_data)


def entry(subset, value):
    return EvalResultEntry(dataset_id="mteb/xm3600", task_id=f"XM3600_{subset}_test", value=value, date="2026-01-02")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "README.md").write_text(CARD, "utf-8")
    return tmp_path


def scores_of(folder):
    card = ModelCard.load(folder / "README.md")
    return {(each.dataset_name, each.metric_name): each.metric_value for each in card.data.eval_results}


def entries_of(folder):
    return parse_eval_result_entries(yaml.safe_load((folder / ".eval_results" / "XM3600.yaml").read_text("utf-8")))


def test_two_that_add_results_at_once_keep_each_others(folder, monkeypatch):
    load = result_tables.CompactCard.load

    def slowly(path):
        card = load(path)
        time.sleep(0.1)
        return card

    monkeypatch.setattr(result_tables.CompactCard, "load", slowly)
    with ThreadPoolExecutor(4) as threads:
        subsets = ["uk", "sw", "mi", "de"]
        added = [
            threads.submit(add_results, folder, [result(each, 1.0)], {"XM3600": [entry(each, 1)]}) for each in subsets
        ]
        assert [each.result() for each in added] == [None] * 4
    assert {f"XM3600 ({each})" for each in subsets} <= {name for name, _ in scores_of(folder)}
    assert len(entries_of(folder)) == 4
    assert {path.name for path in folder.iterdir()} == {"README.md", ".eval_results"}


def test_results_are_added_and_replaced(folder):
    add_results(folder, [result("uk", 30.0), result("uk", 9.0, "hit_rate_at_1")], {"XM3600": [entry("uk", 30.0)]})
    add_results(folder, [result("uk", 31.5), result("sw", 12.0)], {"XM3600": [entry("uk", 31.5), entry("sw", 12.0)]})
    assert scores_of(folder) == {
        ("Emoji (uk)", "mean recall"): 41.5,
        ("XM3600 (uk)", "hit_rate_at_1"): 9.0,
        ("XM3600 (uk)", "ndcg_at_10"): 31.5,
        ("XM3600 (sw)", "ndcg_at_10"): 12.0,
    }
    assert entries_of(folder) == [entry("uk", 31.5), entry("sw", 12.0)]
    card = ModelCard.load(folder / "README.md")
    assert card.text.strip() == CARD.split("---\n")[2].strip()
    assert card.data.language == ["en", "uk"] and card.data.widget == [{"src": "a.png"}]
    assert card.data.model_name == "tiny"


def test_a_card_without_results_gets_the_name_of_its_folder(folder):
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# x\n")
    add_results(folder, [result("uk", 30.0)], {})
    assert ModelCard.load(folder / "README.md").data.model_name == folder.name


def test_results_are_published_with_the_model(folder):
    add_results(folder, [], {"XM3600": [entry("uk", 30.0)]})
    (folder / ".eval_results" / ".hidden").touch()
    (folder / ".cache").touch()
    assert list(files_to_publish(folder)) == [".eval_results/XM3600.yaml", "README.md"]


def test_a_folder_without_a_card_and_damaged_results_are_refused(folder, tmp_path):
    (folder / ".eval_results").mkdir()
    for content in ("{", "- 3", "[{value: 3}]"):
        (folder / ".eval_results" / "XM3600.yaml").write_text(content)
        with pytest.raises(ModelFolderError, match=r"XM3600.yaml is damaged"):
            add_results(folder, [], {"XM3600": [entry("uk", 30.0)]})
    (folder / "README.md").unlink()
    with pytest.raises(ModelFolderError, match=r"has no model card, README.md"):
        add_results(folder, [], {})


def test_many_subsets_are_shown_by_their_means(folder):
    tags = [f"{a}{b}" for a in "abcde" for b in "fghij"]
    scores = [result(tag, float(number)) for number, tag in enumerate(tags)]
    entries = {"XM3600": [entry(tag, float(number)) for number, tag in enumerate(tags)]}
    for _ in range(2):
        add_results(folder, scores, entries)
        assert scores_of(folder) == {("Emoji (uk)", "mean recall"): 41.5, ("XM3600 (mean of 25)", "ndcg_at_10"): 12.0}
        assert len(entries_of(folder)) == 25
