"""SMALR's promises about its size, kept by models of the paper's sizes; the table of the documentation is theirs."""

import importlib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(CHECKOUT / "benchmarks")
    return importlib.import_module("smalr")


def test_ten_languages_in_twenty_million_parameters(benchmark):
    counts = {row.title: row.counts() for row in benchmark.rows()}
    trained, needed = counts["SMALR"]
    assert trained < 20e6
    assert needed + benchmark.consistency_parameters() == pytest.approx(7.1e6, rel=0.1)
    assert counts["MULE"][0] > 5 * trained
    # 93 % of MULE are words, from which their number was taken
    assert 1 - counts["MULE"][1] / counts["MULE"][0] == pytest.approx(0.93, abs=0.005)


def test_the_documentation_has_the_table(benchmark):
    assert benchmark.table() in (CHECKOUT / "docs" / "results" / "smalr.md").read_text(encoding="utf-8")
