import json

import pytest

from babelens.evaluation.results import Results, read_results
from babelens.utils.errors import InputError

REPORT = {
    "de": {
        "t2i_r1": 50.0,
        "i2t_r1": 100.0,
        "mean_recall": 75.0,
        "n_texts": 4,
        "n_images": 2,
        "flags": {"t2i_r1": 1.0},
    },
    "fr": {"t2i_r1": 25.0, "i2t_r1": 50.0, "mean_recall": 37.5, "n_texts": 4, "n_images": 2},
}


def written(file, report, command="", **data):
    file.parent.mkdir(exist_ok=True)
    results = Results("", command)
    results.add(report, **data)
    results.save(file)
    return file


def test_a_file_has_an_entry_for_each_number(tmp_path):
    file = written(tmp_path / "results.json", REPORT, "babelens evaluate", dataset="shapes", split="test")
    entries = json.loads(file.read_text(encoding="utf-8"))
    assert len(entries) == 6
    assert entries[1] == {
        "dataset": "shapes",
        "split": "test",
        "language": "de",
        "metric": "i2t_r1",
        "value": 100.0,
        "n": 2,
        "command": "babelens evaluate",
    }


def test_the_same_measurement_is_replaced_and_others_stay(tmp_path):
    file = written(tmp_path / "run" / "results.json", REPORT, dataset="shapes", split="test")
    written(file, {"de": {"t2i_r1": 60.0}}, "again", dataset="shapes", split="test")
    written(file, {"de": {"t2i_r1": 10.0}}, dataset="photos")
    found = read_results(tmp_path / "run")
    assert len(found) == 7
    assert {(each.dataset, each.value, each.command) for each in found if each.metric == "t2i_r1"} == {
        ("shapes", 60.0, "again"),
        ("shapes", 25.0, ""),
        ("photos", 10.0, ""),
    }


@pytest.mark.parametrize("content", ["{", '{"de": 1}', '[{"dataset": "shapes"}]'])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"results\.json"):
        read_results(tmp_path)
