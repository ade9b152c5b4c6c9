import json

import numpy as np
import pytest

from babelens.evaluation.comparison import compare
from babelens.evaluation.ranking import QueryRanks
from babelens.evaluation.results import Measurement, Results, read_results, read_rows, write_results
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


def test_rows_are_runs_files_and_folders_of_seeds(tmp_path):
    one, two = (QueryRanks(np.array([r] * 4), np.array([1, 1]), np.array([0, 0, 1, 1]), "q", "i") for r in (1, 2))
    written(tmp_path / "a", ranks={"shapes, test/de": one})
    for seed in ("1", "2"):
        written(tmp_path / "b" / f"seed-{seed}", ranks={"shapes, test/de": two})
    rows = read_rows([tmp_path / "a", tmp_path / "b"])
    assert [len(rows[name]) for name in ("a", "b")] == [1, 2]
    scores = {(each.language, each.row): each for each in compare(rows, ["t2i_r1"])}
    assert scores["de", "b"].values == [50.0, 50.0] and scores["de", "b"].difference.value == -100.0
    assert scores["mean", "a"].values == [37.5] and scores["fr", "b"].difference is None
    with pytest.raises(InputError, match="no results"):
        read_rows([tmp_path / "a" / "nothing"])


def test_other_queries_are_not_compared(tmp_path):
    written(tmp_path / "a")
    written(tmp_path / "b", {"de": REPORT["de"] | {"n_texts": 5}})
    with pytest.raises(InputError, match="different queries"):
        compare(read_rows([tmp_path / "a", tmp_path / "b"]))
