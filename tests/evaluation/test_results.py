import json

import pytest

from babelens.evaluation.results import Measurement, Results, read_results, write_results
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


def written(folder, report=REPORT, ranks=None, **given):
    folder.mkdir(parents=True)
    file = folder / "results.json"
    results = Results("", **given)
    results.add(report, dataset="shapes", split="test")
    write_results(file, results.measured, ranks)
    return file


def test_a_file_has_an_entry_for_each_number(tmp_path):
    entries = json.loads(written(tmp_path / "run", command="babelens evaluate").read_text(encoding="utf-8"))
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
    file = written(tmp_path / "run")
    again = Measurement("shapes", "test", "de", "t2i_r1", 60.0, 4, "again")
    other = Measurement("photos", "", "de", "t2i_r1", 10.0, 4, "")
    write_results(file, [again, other])
    found = read_results(tmp_path / "run")
    assert len(found) == 7 and again in found and other in found


@pytest.mark.parametrize("content", ["{", '{"de": 1}', '[{"dataset": "shapes"}]'])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"results\.json"):
        read_results(tmp_path)
