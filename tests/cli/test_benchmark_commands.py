"""`babelens evaluate benchmark` on small copies of published files."""

import json

import pytest

from babelens.data.benchmarks.catalog import benchmark_names, find_benchmark
from babelens.evaluation import load_benchmark
from babelens.evaluation.query_ranks import read_ranks
from babelens.evaluation.results import read_rows
from babelens.inference.embedder import Embedder
from tests.support.published_benchmarks import WRITERS


@pytest.fixture
def xtd(tmp_path):
    WRITERS["xtd"](tmp_path / "xtd")
    return tmp_path / "xtd"


def test_the_benchmarks_are_listed(run):
    listed = run("evaluate", "benchmark").output
    assert all(name in listed for name in benchmark_names())
    everything = json.loads(run("evaluate", "benchmark", "--json").output)
    assert [each["name"] for each in everything] == list(benchmark_names())


@pytest.mark.parametrize("name", benchmark_names())
def test_a_benchmark_is_shown_in_full(run, name):
    benchmark = find_benchmark(name)
    shown = run("evaluate", "benchmark", "--benchmark", name).output
    for text in (benchmark.title, benchmark.license, benchmark.paper, benchmark.url, *benchmark.facts):
        assert text in shown
    for file in benchmark.files:
        assert file.path in shown and file.origin in shown
    as_json = json.loads(run("evaluate", "benchmark", "--benchmark", name, "--json").output)
    assert as_json["license"] == benchmark.license and len(as_json["figures"]) == len(benchmark.figures)


def test_ours_stand_beside_the_figures_of_papers(run, model, xtd, tmp_path):
    arguments = ("evaluate", "benchmark", model, "--benchmark", "xtd", "--root", xtd, "--languages", "ko,de")
    shown = run(*arguments, "--output", tmp_path / "out/xtd.json").output
    assert "xtd, t2i_r10, next to Jain et al. 2021 (MURAL), table 4" in shown and "88.1" in shown
    report = json.loads(run(*arguments, "--json").output)
    assert report == load_benchmark("xtd", xtd, ["ko", "de"]).evaluate(Embedder.from_pretrained(model))
    assert set(read_ranks(tmp_path / "out/xtd.ranks.npz")) == {"xtd/ko", "xtd/de"}
    [(results,)] = read_rows([tmp_path / "out/xtd.json"]).values()  # as `babelens compare` reads it
    assert set(results.scores) == set(results.ranks) == {("xtd", "ko"), ("xtd", "de")}


def test_the_parts_of_cxc_are_shown(run, model, tmp_path):
    WRITERS["cxc"](tmp_path)
    shown = run("evaluate", "benchmark", model, "--benchmark", "cxc", "--root", tmp_path).output
    for part in (
        "image-text, recall in %",
        "text-text",
        "image-image",
        "sts",
        "sits, next to",
        "spearman",
        "mean_rank",
    ):
        assert part in shown


def test_what_is_wrong_is_said_in_one_sentence(run, model, xtd):
    arguments = ("evaluate", "benchmark", model, "--benchmark", "xtd", "--root")
    assert (
        "there is no benchmark 'xdt'"
        in run("evaluate", "benchmark", model, "--benchmark", "xdt", "--root", xtd, code=2).output
    )
    assert "has no captions in sw" in run(*arguments, xtd, "--languages", "sw", code=2).output
    assert "names no language" in run(*arguments, xtd, "--languages", ",", code=2).output
    assert "there is no benchmark 'xdt'" in run("evaluate", "benchmark", "--benchmark", "xdt", code=2).output
    (xtd / "STAIR/test_1kcaptions_jp.txt").unlink()
    shown = " ".join(run(*arguments, xtd, code=2).output.replace("│", " ").split())
    assert "there is no file XTD10/test_1kcaptions_jp.txt" in shown
    assert "`babelens evaluate benchmark --benchmark xtd` shows" in shown
