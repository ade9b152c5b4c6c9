"""Markup in what users name is shown as text: no element of a card, and no code of a Space, comes from it."""

import ast
from html.parser import HTMLParser

import markdown
import pytest
from huggingface_hub import ModelCard
from PIL import Image

from babelens.model_cards.base_models import TEXT_TOWER, BaseModel
from babelens.model_cards.card_checks import card_problems
from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import DataSource, Example, ModelCardFacts, TrainingRun, retrieval_results
from babelens.model_cards.short_cards import (
    AdapterCardFacts,
    RidgeCardFacts,
    write_short_card,
)
from babelens.spaces import space_files
from babelens.trainers.ridge_results import LanguageResult
from tests.support.browser import browser

EVIL = "<img src=x onerror=alert(1)>"
HOSTILE = [
    EVIL,
    "<script>alert(1)</script>",
    "](javascript:alert(1)) [x",
    "a `code` <b>",
    "x | y |\n| <i>z</i>",
    "![x](javascript:alert(1))",
    "{{ 7 * 7 }} {% raw %}",
    "&lt;script&gt;",
    '"""\nimport os\n"""',
]


class Page(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))


def facts_with(text):
    run = TrainingRun(
        command=f"babelens train '{text}'",
        hyperparameters={text: text},
        steps=1,
        seconds=1.0,
        loss=1.0,
        hardware="one core",
        versions="torch 2",
    )
    data = DataSource(name=text, license="CC0-1.0", role=text, attribution=text, url=f"javascript:{text}")
    names = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall")
    report = {"en": dict.fromkeys(names, 1.0) | {"n_images": 1, "n_texts": 1}}
    example = Example(title=text, image=Image.new("RGB", (2, 2)), ranking=[(text, 1.0)], file_name="examples/a.png")
    return ModelCardFacts(
        model_name=text.replace("/", ""),
        method="mural",
        training_data=[data],
        image_languages=["en", "de"],
        results=retrieval_results(report, dataset=text, command=text, note=text),
        base_models=[BaseModel(name=text, license="mit", license_name=text)],
        run=run,
        stages=[text, text],
        examples=[example],
    )


def checked(folder):
    """The card of a folder, which has no elements but those of its templates."""
    card = ModelCard((folder / "README.md").read_text())
    page = Page(markdown.markdown(card.text, extensions=["tables", "fenced_code"]))
    tags = {tag for tag, _ in page.elements}
    plain = {"h1", "h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "a", "img"}
    assert tags <= plain | {"ul", "li", "strong", "em"}
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "javascript" not in attributes.get("href", ""), attributes
        assert tag != "img" or attributes["src"] == "examples/a.png", attributes
    return card


@pytest.mark.parametrize("text", HOSTILE)
def test_a_card(text, tmp_path):
    write_card(tmp_path, facts_with(text))
    card = checked(tmp_path)
    assert [problem for problem in card_problems(tmp_path) if "widget" not in problem] == []
    assert card.data.model_name == text.replace("/", "")


@pytest.mark.slow
def test_no_code_of_a_card_runs_in_a_browser(tmp_path):
    hostile = [text.replace("alert(1)", "console.error('run')") for text in HOSTILE]
    pages = []
    for number, text in enumerate(hostile):
        folder = tmp_path / str(number)
        write_card(folder, facts_with(text))
        card = ModelCard((folder / "README.md").read_text()).text.replace("examples/a.png", "0/examples/a.png")
        pages.append(markdown.markdown(card, extensions=["tables", "fenced_code"]))
    (tmp_path / "cards.html").write_text("<!doctype html><meta charset=utf-8>" + "<hr>".join(pages), encoding="utf-8")
    with browser(tmp_path / "browser") as page:
        page.open(tmp_path / "cards.html")
        page.run("document.querySelectorAll('a').forEach(link => link.href.startsWith('javascript') && link.click())")
        assert page.problems == []
        assert page.run("document.images.length") == len(hostile)
        assert page.run("document.body.innerText.includes('console.error')")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("way", ["ridge", "adapter"])
def test_a_card_of_acquired_languages(way, text, tmp_path):
    command = f"babelens acquire --translations /home/ada/pairs.tsv --output '{text}'"
    base = BaseModel(name=text, license="other", license_name=text)
    both = {"name": text.replace("/", ""), "native_language": "en", "command": command}
    trained = {"parameters": 2, "pairs": 20, "exposed": False}
    if way == "ridge":
        result = LanguageResult(20, 20, 50.0, 90.0, 85.0, 95.0, 5.0, 5.0, 1.0, 0.5, None, 1.0, 1234)
        bases = [base, BaseModel(name=text, license_name=text, license="other", role=TEXT_TOWER)]
        given = {"results": {"uk": result}, "words": 1234}
        facts = RidgeCardFacts(languages=["uk"], base_models=bases, has_encoder=True, **given, **both)
        write_short_card(tmp_path, facts)
    else:
        of_adapters = {"on_mla": False, "trained_embedding": True, "embedding": "embedding", "max_text_length": 64}
        write_short_card(
            tmp_path,
            AdapterCardFacts(language="uk", base_model=text, base=base, **of_adapters, **both, **trained),
        )
    card = checked(tmp_path)
    assert "/home/ada" not in card.content and "pairs.tsv" in card.content


@pytest.mark.parametrize("text", HOSTILE)
def test_a_space(text, make_mural, tmp_path):
    for part in make_mural():
        part.save_pretrained(tmp_path)
    write_card(tmp_path, facts_with(text))
    files = space_files(tmp_path, "ada/model")
    code = ast.parse(files["app.py"].decode())
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in code.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.List)
    }
    assert assigned["LANGUAGES"] == ["en", "de"]
    shown = [labels.splitlines() for _, labels, _ in assigned["EXAMPLES"]]
    assert shown in ([], [text.splitlines()]) or "," in text
    imported = [node for node in ast.walk(code) if isinstance(node, ast.Import)]
    assert {name.name for node in imported for name in node.names} == {"gradio", "torch"}
