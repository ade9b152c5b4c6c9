"""A card stays readable with any number of languages, and says where the results are that it does not show."""

import re

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from PIL import Image

from babelens.model_cards.card_checks import metadata_problems
from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import (
    DataSource,
    Example,
    ModelCardFacts,
    RetrievalResult,
    TrainingRun,
)
from babelens.registry import METHODS
from babelens.utils.defaults import BENCHMARK_LANGUAGES

MAX_LINES = 250
RECALLS = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall")
FIFTY = """
    af ar az be bg bn bs ca cs cy da de el en es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn ko ky
    lo lt lv mk ml mn mr ms my ne nl pl
""".split()  # noqa: SIM905
DATA = [DataSource(name=f"Source {n}", license="CC0-1.0", role="images", attribution="nobody") for n in range(4)]
RUN = TrainingRun(
    command="babelens train emoji/mural",
    hyperparameters={f"argument_{number}": number for number in range(20)},
    steps=1000,
    seconds=60,
    loss=0.5,
    hardware="2 CPU cores",
    versions="babelens",
    precision="float32, because the processor has no other",
)
SHOWN = [
    Example(
        title=f"{n}", image=Image.new("RGB", (8, 8)), ranking=[("a", 0.75), ("b", 0.25)], file_name=f"examples/{n}.png"
    )
    for n in range(3)
]


def results(tables: int, languages: list[str]) -> list[RetrievalResult]:
    return [
        RetrievalResult(
            dataset=f"Data {table}",
            language=language,
            scores=dict.fromkeys(RECALLS, 10.0 + number) | {"n_images": 100, "n_texts": 200, "flags": {}},
            command="babelens evaluate",
            note="A random ranking has 1.0.",
        )
        for table in range(tables)
        for number, language in enumerate(languages)
    ]


def facts(method: str, tables: int, languages: list[str]) -> ModelCardFacts:
    trained = languages[: len(languages) // 2 + 1]
    return ModelCardFacts(
        model_name="tiny",
        method=method,
        image_languages=trained[:3],
        pair_languages=trained[3:],
        unseen_languages=[tag for tag in languages if tag not in trained],
        training_data=DATA,
        results=results(tables, languages),
        run=RUN,
        examples=SHOWN,
        parameters=1000,
        stages=["one", "two"],
        license="other",
    )


@pytest.mark.parametrize("tables", [1, 3, 5])
@pytest.mark.parametrize("method", list(METHODS))
def test_fifty_languages(method, tables, tmp_path):
    path = write_card(tmp_path, facts(method, tables, FIFTY))
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= MAX_LINES
    metadata = ModelCard.load(path).data.to_dict()
    assert metadata["language"] == list(dict.fromkeys([*FIFTY[:26]])) and metadata_problems(metadata) == []
    full = (tmp_path / "results.md").read_text("utf-8")
    assert all(full.count(f"| {tag} |") == tables for tag in FIFTY)
    assert path.read_text("utf-8").count("[results.md](results.md)") == tables


def test_the_means_and_ten_languages(tmp_path):
    text = write_card(tmp_path, facts("mural", 1, FIFTY)).read_text("utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| (captioned images|translations only|nothing) \| ([\d.]+) \|", text, re.M)
    assert rows[:3] == [
        ("mean of 3", "captioned images", "11.0"),
        ("mean of 23", "translations only", "24.0"),
        ("mean of 24", "nothing", "47.5"),
    ]
    assert [row[0] for row in rows[3:]] == [*FIFTY[:5], *FIFTY[-5:]]
    metadata = yaml.safe_load(text.split("---\n")[1])
    _, entries = model_index_to_eval_results(metadata["model-index"])
    of_german = {e.dataset_config: e.metric_value for e in entries if e.metric_name == "mean recall"}
    assert of_german["mean of 3, captioned images"] == 11.0 and of_german["af"] == 10.0 and len(of_german) == 13


def test_few_results_are_all_shown_and_an_earlier_file_goes(tmp_path):
    write_card(tmp_path, facts("mural", 1, FIFTY))
    text = write_card(tmp_path, facts("mural", 2, FIFTY[:5])).read_text("utf-8")
    assert not (tmp_path / "results.md").exists() and "mean of" not in text
    assert all(text.count(f"| {tag} |") == 2 for tag in FIFTY[:5])


def test_results_of_the_users_stay(tmp_path):
    (tmp_path / "results.md").write_text("# My results", encoding="utf-8")
    write_card(tmp_path, facts("mural", 1, FIFTY[:5]))
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == "# My results"


def test_all_languages_of_the_emoji_benchmark(tmp_path):
    """The card of a recipe of the benchmark: two questions, and validation data."""
    languages = [tag for group in BENCHMARK_LANGUAGES.values() for tag in group]
    path = write_card(tmp_path, facts("mural", 3, languages))
    assert len(path.read_text("utf-8").splitlines()) <= MAX_LINES and path.stat().st_size < 20_000
