"""The report about a run: its numbers are those of the results, it asks nothing of the network, and nothing that it
shows is read as code. What a browser shows is in `test_report_in_browser`."""

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from report_runs import QUERIES, write_run

from babelens.configuration.errors import ComparisonError
from babelens.evaluation.comparison import image_contributions
from babelens.evaluation.query_ranks import read_ranks
from babelens.reports.charts import line_chart, number, tick_labels, ticks
from babelens.reports.page import report_page, write_report
from babelens.reports.results import language_facts, read_sources, test_sets as sets_of


class Page(HTMLParser):
    """The elements of a page with their attributes, and its headings; it checks that elements are closed in order."""

    VOID = {"meta", "link", "img", "br"}

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(seeds):
    return report_page(read_sources(seeds))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_numbers_and_intervals_are_those_of_the_results(seeds, validation):
    (evaluation,) = read_sources(seeds).evaluations
    (test,) = sets_of(evaluation)
    assert (test.title, test.metric, test.sizes) == (
        "Validation data",
        "mean recall",
        "40 images and 40 texts in each language",
    )
    for language, bar in test.bars.items():
        values = [report[language]["mean_recall"] for report in validation]
        assert bar.value == pytest.approx(np.mean(values)) and list(bar.dots) == values
    assert [bar.value for bar in test.means] == [pytest.approx(np.mean([bar.value for bar in test.bars.values()]))]
    runs = [read_ranks(seeds / f"seed-{seed}/evaluation/validation.ranks.npz")["captions/ar"] for seed in (1, 2)]
    contributions = image_contributions(runs, "mean_recall")
    drawn = contributions[np.random.default_rng(0).integers(0, 40, (20_000, 40))].sum(1)
    assert test.bars["ar"].interval == pytest.approx(tuple(np.percentile(drawn, (2.5, 97.5))), abs=0.4)
    cells = dict(test.rows)["sw"]
    assert cells[0].startswith(f"{np.mean([report['sw']['t2i_r1'] for report in validation]):.1f} ± ")


def test_everything_is_in_the_page(page, text):
    for tag in ("script", "iframe", "object", "form"):
        assert not page.all(tag)
    for image in page.all("img"):
        assert image["src"].startswith("data:image/webp;base64,") and re.search(
            r"mage at rank \d|Query image", image["alt"]
        )
    assert len(page.all("img")) == 4 * len(QUERIES)  # three images for a text, and one that searches texts
    loaded = re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(([^)]*)\)", text)
    assert all(value.startswith(("data:", "#")) for pair in loaded for value in pair if value)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "http" not in policy


def test_what_users_wrote_is_text(page, text):
    assert QUERIES["en"] in page.texts and "<script" not in text and "<b>" in "".join(page.texts)
    assert "javascript:" not in text  # a source's address


def test_it_can_be_read_aloud(page):
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in page.all("svg"):
        named = {*attributes.get("aria-labelledby", "").split()} <= {*ids} and "aria-labelledby" in attributes
        assert attributes.get("aria-hidden") == "true" or attributes["role"] == "img"
        assert attributes.get("aria-hidden") == "true" or named or attributes["aria-label"]
    for attributes in page.all("a"):
        assert attributes["href"].removeprefix("#") in ids


def test_texts_state_their_language_and_find_their_direction(page):
    queries = [attributes for attributes in page.all("p") if attributes.get("class") == "query"]
    assert [each["lang"] for each in queries] == list(QUERIES)
    assert {each["dir"] for each in queries} == {"auto"}


def test_facts_of_the_run(page):
    shown = " ".join(" ".join(page.texts).split())
    for part in (
        "A model trained by MURAL, with 2 seeds; numbers are the means over them",
        "7 languages measured, in 6 scripts",
        "Trained with captioned images (2)",
        "Never seen in training (2)",
        "1.5 min",
        "1.5 GB",
        "1.23 million",
        "not for commercial use",
        "Photos & more",
        "The right image has rank 2.",
        "Images by Ann",
    ):
        assert part in shown, part
    assert shown.count("The right image has rank") == 1


def test_curves_of_seeds_and_of_one_run(seeds):
    of_seeds, of_one = (Page(report_page(read_sources(path))) for path in (seeds, seeds / "seed-1"))
    assert "seed-1 is " in " ".join(of_seeds.texts) and "mean recall en is 21 at step 20" in " ".join(of_one.texts)
    assert "Logged once: " in " ".join(of_one.texts)


def test_a_model_that_no_recipe_trained(seeds, tmp_path):
    """Its folder has results and a card, and neither facts nor ranks."""
    run = shutil.copytree(seeds / "seed-1", tmp_path / "acquired")
    for name in ("facts.json", "validation.ranks.npz", "validation.gallery.json"):
        (run / "evaluation" / name).unlink()
    shown = " ".join(" ".join(Page(write_report(run).read_text(encoding="utf-8")).texts).split())
    assert (run / "report.html").is_file() and "License of the weights: mit" in shown
    assert "Other languages" not in shown and "interval of 95" not in shown and "What it finds" not in shown
    (run / "README.md").write_text("---\nlicense: [\n---\n")
    with pytest.raises(ComparisonError, match=r"README\.md has metadata that cannot be read"):
        write_report(run)


def test_a_file_of_results(seeds, tmp_path):
    results = shutil.copy(seeds / "seed-1/evaluation/validation.json", tmp_path / "mine.json")
    assert write_report(results) == tmp_path / "mine.report.html"
    tasks = {"xvnli": {"en": {"accuracy": 70.0, "n": 9}, "de": {"accuracy": 60.0, "n": 9}}}
    (tmp_path / "task.json").write_text(json.dumps(tasks))
    shown = Page(write_report(tmp_path / "task.json", tmp_path / "a" / "b.html").read_text("utf-8")).texts
    assert "task: xvnli: accuracy" in [part.strip() for part in shown]


@pytest.mark.parametrize("german", [60.0, float("nan")])
def test_a_score_that_is_not_a_number_is_in_the_table_alone(tmp_path, german):
    """Such as a rank correlation of equal scores."""
    tasks = {"sts": {"en": {"spearman": float("nan")}, "de": {"spearman": german}}}
    (tmp_path / "task.json").write_text(json.dumps(tasks))
    (test,) = sets_of(read_sources(tmp_path / "task.json").evaluations[0])
    assert list(test.bars) == (["de"] if german == 60 else []) and dict(test.rows)["en"] == ["nan"]
    assert "nan" in [part.strip() for part in Page(write_report(tmp_path / "task.json").read_text("utf-8")).texts]


def test_what_is_no_run_or_is_damaged(seeds, tmp_path):
    with pytest.raises(ComparisonError, match="has no results: it is no folder of a run"):
        write_report(tmp_path)
    # Of other programs too, and with a text in the place of a number.
    for other in (
        '{"de": 0.1}',
        '{"scripts": {"test": "jest"}}',
        '{"de": {"t2i_r1": 1.5, "x": null}}',
        '{"a": {"b": [1]}}',
    ):
        (tmp_path / "other.json").write_text(other)
        with pytest.raises(ComparisonError, match="has no results of a test set"):
            write_report(tmp_path / "other.json")
    run = shutil.copytree(seeds / "seed-1", tmp_path / "notes")
    (run / "evaluation" / "notes.json").write_text('{"made": {"by": "somebody"}}')
    assert "somebody" not in write_report(run).read_text(encoding="utf-8")
    for name in ("facts.json", "validation.gallery.json", "validation.json"):
        run = shutil.copytree(seeds / "seed-1", tmp_path / name)
        (run / "evaluation" / name).write_text('{"rows": [{}]')
        with pytest.raises(ComparisonError, match=rf"{name} (is damaged|cannot be read)"):
            write_report(run)


def test_labels_of_ticks_tell_them_apart():
    assert tick_labels(ticks(6.4012, 6.4049)) == ["6.401", "6.402", "6.403", "6.404", "6.405"]
    assert tick_labels([0.0, 20.0, 40.0]) == ["0", "20", "40"]
    assert tick_labels(ticks(12_340.1, 12_340.4)) == ["12,340.1", "12,340.2", "12,340.3", "12,340.4"]


def test_ticks_are_round_and_hold_the_range():
    for low, high in ((0, 3.2), (0, 100), (0.2, 0.21), (5, 5), (0, 0), (-3, 7), (1e-5, 3e-5)):
        found = ticks(low, high)
        steps = np.diff(found)
        assert found[0] <= low and found[-1] >= high and len(found) <= 7
        assert steps == pytest.approx(steps[0]) and steps[0] > 0
    assert [number(value) for value in (0, 0.00125, 31.66, 1240, 5e-5, 100)] == [
        "0", "0.00125", "31.7", "1,240", "5e-5", "100",
    ]  # fmt: skip


def test_a_chart_leaves_out_what_is_not_finite():
    chart = line_chart("Loss", [("a", [(1, 2.0), (2, float("nan")), (3, 1.0)]), ("b", [(1, float("inf"))])])
    assert [(line.name, len(line.points)) for line in chart.lines] == [("a", 2)]
    assert chart.description == "a is 2 at step 1 and 1 at step 3."
    assert not line_chart("Nothing", []).lines


@pytest.mark.parametrize(
    ("tag", "name", "script"),
    [
        ("el", "Greek", "Greek"),
        ("hi", "Hindi", "Devanagari"),
        ("zh-Hant", "Chinese (Traditional Han)", "Traditional Han"),
        ("pt-BR", "Portuguese (Brazil)", "Latin"),
        ("no language", "no language", ""),
        ("en-de", "en-de", ""),
    ],
)
def test_names_of_languages(tag, name, script):
    facts = language_facts(tag)
    assert (facts.name, facts.script) == (name, script)


@pytest.mark.parametrize(
    "evil", ["<img src=x onerror=alert(1)>", "</title><script>alert(1)</script>", '" onload=alert(1) x="']
)
def test_markup_in_names_is_text(tmp_path, evil):
    """Of the run, its stages, settings, data, models and images, in the facts that a stranger's folder may hold."""
    folder = write_run(tmp_path / "run", 1)
    facts = json.loads((folder / "evaluation/facts.json").read_text())
    card = facts["card"]
    card |= {"model_name": evil, "method": evil, "license": evil, "license_name": evil}
    card["run"] |= {"command": evil, "hyperparameters": {evil: evil}, "hardware": evil, "versions": evil}
    card["training_data"] = [dict.fromkeys(card["training_data"][0], evil)]
    card["base_models"] = [{"name": evil, "license": evil, "license_name": evil, "role": evil, "on_hub": True}]
    facts["logs"] = [{"stage": evil, "log": facts["logs"][0]["log"]}]
    (folder / "evaluation/facts.json").write_text(json.dumps(facts))
    page = Page(report_page(read_sources(folder)))
    assert page.all("script") == [] and {tag for tag, _ in page.elements} & {"iframe", "object", "form"} == set()
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert all(each["src"].startswith("data:") for each in page.all("img"))
    assert evil in "".join(page.texts)
