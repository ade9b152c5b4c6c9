import dataclasses
import re
from html.parser import HTMLParser

import markdown
import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from PIL import Image
from transformers import TrainingArguments

from babelens.evaluation.emoji import EmojiBenchmark
from babelens.model_cards.base_models import TEXT_TOWER, BaseModel
from babelens.model_cards.card_text import paths_in, publishable
from babelens.model_cards.cards import RidgeCardFacts, add_results, model_card, write_adapter_card, write_card
from babelens.model_cards.facts import DataSource, Example, ModelCardFacts, Result, TrainingRun, training_run
from babelens.trainers.ridge_solving import LanguageResult
from babelens.training.results import emoji_results, emoji_sources
from babelens.utils.errors import ModelFolderError
from tests.support.retrieval_fixtures import ColorEmbedder

TWEMOJI = DataSource(name="Twemoji", license="CC-BY-4.0", role="images", attribution="Twitter and contributors")
CLDR = DataSource(name="CLDR annotations", license="Unicode-3.0", role="names", attribution="Unicode")


def scores(base: float) -> dict[str, float]:
    names = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall")
    return {name: base + step for step, name in enumerate(names)} | {"n_images": 447, "n_texts": 440}


@pytest.fixture
def facts() -> ModelCardFacts:
    report = {"de": scores(50.123), "zh-Hant": scores(40.0), "sw": scores(30.0), "pt": scores(10.0)}
    return ModelCardFacts(
        model_name="mural-emoji",
        method="mural",
        training_data=[TWEMOJI, CLDR],
        image_languages=["de", "zh-Hant", "zh"],
        pair_languages=["sw"],
        unseen_languages=["pt"],
        parameters=1234567,
        results=[Result(dataset="Emoji, unseen concepts", scores=report, command="babelens evaluate mural-emoji")],
        examples=[
            Example(
                title="Ein Hund",
                image=Image.new("RGB", (8, 8), "brown"),
                ranking=[("ein Hund", 0.75), ("eine Katze", 0.25)],
                file_name="examples/ein-hund.png",
            )
        ],
    )


def test_metadata_are_what_the_hub_asks_for(facts):
    metadata = yaml.safe_load(str(model_card(facts)).split("---\n")[1])
    assert metadata["language"] == ["de", "zh", "sw"]  # ISO 639, each once; nothing is claimed for `pt`
    assert metadata["language_bcp47"] == ["de", "zh-Hant", "zh", "sw"]
    assert metadata["license"] == "cc-by-4.0"
    assert metadata["library_name"] == "transformers"
    assert metadata["pipeline_tag"] == "zero-shot-image-classification"
    assert metadata["metrics"] == ["recall"]
    assert metadata["widget"] == [
        {
            "src": "examples/ein-hund.png",
            "example_title": "Ein Hund",
            "candidate_labels": "ein Hund, eine Katze",
            "output": [{"label": "ein Hund", "score": 0.75}, {"label": "eine Katze", "score": 0.25}],
        }
    ]


def test_the_text_says_what_was_measured_and_how(facts):
    text = model_card(facts).text
    assert "| de | captioned images | 50.1 | 51.1 | 52.1 | 53.1 | 54.1 | 55.1 | 56.1 | 447 | 440 |" in text
    assert "| sw | translations only | 30.0 |" in text
    assert "| pt | nothing | 10.0 |" in text
    assert "Measured by `babelens evaluate mural-emoji`." in text
    assert "1,234,567" in text
    assert "| Twemoji | images | CC-BY-4.0 | Twitter and contributors |" in text
    assert "How this model was trained was not recorded." in text
    assert "@inproceedings{jain-etal-2021-mural," in text and "title = {{MURAL}: Multimodal" in text
    assert "published under **cc-by-4.0**" in text and "strictest" in text
    assert "{%" not in text and "None" not in text
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4 and all(compile(block, "card", "exec") for block in blocks)
    bare = model_card(dataclasses.replace(facts, results=[], examples=[], unseen_languages=[], parameters=None))
    assert "This model has not been evaluated." in bare.text
    assert not {"model-index", "metrics", "widget"} & set(bare.data.to_dict())


def test_the_first_screen_is_what_it_does_its_numbers_a_figure_and_code(facts, tmp_path):
    first = ModelCard.load(write_card(tmp_path, facts)).text.strip().splitlines()[:24]
    assert any("embeds images and texts" in line for line in first)
    assert any("de 52.1 · zh-Hant 42.0 · sw 32.0 · pt 12.0" in line for line in first)
    assert "![Recall by language](recall.svg)" in first and "from babelens import Embedder" in first
    figure = (tmp_path / "recall.svg").read_text(encoding="utf-8")
    assert re.findall(r'text-anchor="end">([\w-]+)<', figure) == ["de", "zh-Hant", "sw", "pt"]
    assert figure.startswith("<svg") and ">52.1<" in figure


def test_written_folder_holds_card_images_and_endpoint(facts, tmp_path):
    (tmp_path / "modeling_toy.py").write_text(
        "import json\nimport torch.nn\nfrom PIL import Image\nfrom .other import X\n"
    )
    path = write_card(tmp_path, facts)
    assert path.read_text(encoding="utf-8") == str(ModelCard.load(path))
    assert Image.open(tmp_path / "examples/ein-hund.png").size == (8, 8)
    compile((tmp_path / "handler.py").read_text(), "handler.py", "exec")
    required = (tmp_path / "requirements.txt").read_text().splitlines()
    assert [re.split("[<>=]", line)[0] for line in required] == ["pillow", "torch", "transformers"]
    assert required[-1] in ("transformers<6,>=5.20", "transformers>=5.20,<6")


def test_training_run_comes_from_arguments_and_log(facts, tmp_path):
    args = TrainingArguments(output_dir=str(tmp_path), learning_rate=1e-3, max_steps=12, logging_steps=5, save_steps=5)
    log = [{"loss": 1.0, "step": 5}, {"train_runtime": 90.0, "train_loss": 0.5, "step": 12}, {"eval_x": 1, "step": 12}]
    run = training_run(args, log, command="babelens train recipe.yaml")
    assert (run.steps, run.minutes, run.loss) == (12, "1.5", 0.5)
    assert run.hyperparameters == {"learning_rate": 1e-3, "max_steps": 12}
    text = model_card(dataclasses.replace(facts, run=run)).text
    for said in ("`babelens train recipe.yaml`", "`learning_rate` 0.001", "`max_steps` 12", "final loss 0.5;"):
        assert said in text
    with pytest.raises(ValueError, match="train_runtime"):
        training_run(args, log[:1], command="babelens train recipe.yaml")


FIFTY = """
    af ar az be bg bn bs ca cs cy da de el en es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn ko ky
    lo lt lv mk ml mn mr ms my ne nl pl
""".split()  # noqa: SIM905


def test_many_languages_are_means_and_folded_rows(facts, tmp_path):
    recalls = {language: scores(4.0 + number) | {"flags": {}} for number, language in enumerate(FIFTY)}
    results = [Result(dataset=f"Data {table}", scores=recalls, command="x") for table in range(2)]
    groups = {"image_languages": FIFTY[:3], "pair_languages": FIFTY[3:26], "unseen_languages": FIFTY[26:]}
    text = write_card(tmp_path, dataclasses.replace(facts, license="other", results=results, **groups)).read_text()
    assert all(text.count(f"| {tag} |") == 2 for tag in FIFTY)
    assert text.count("<details><summary>All 50 languages</summary>") == text.count("</details>") == 2
    assert text.index("| mean of 3 | captioned images | 5.0 |") < text.index("<details>") < text.index("| af |")
    _, entries = model_index_to_eval_results(yaml.safe_load(text.split("---\n")[1])["model-index"])
    recalls = {e.dataset_config: e.metric_value for e in entries if e.metric_name == "mean recall"}
    assert recalls["mean of 3, captioned images"] == 11.0 and len(recalls) == 3
    assert ModelCard.load(tmp_path / "README.md").data.language == FIFTY[:26]


def test_the_four_questions_become_two_tables(emoji_corpus):
    groups = {"image_languages": ["de"], "unseen_languages": ["ar"]}
    report = EmojiBenchmark(ColorEmbedder(), corpus=emoji_corpus, **groups, pair_languages=[]).report()
    results = emoji_results(report, command="babelens evaluate mural-emoji")
    data = emoji_sources(["twemoji", "openmoji", "fluent"])
    given = ModelCardFacts(model_name="m", method="mural", training_data=data, results=results, **groups)
    text = model_card(given).text
    concepts, vendor = text.split("**Emoji, unseen concepts (twemoji, test split)**")[1].split(
        "**Emoji, unseen vendor (noto, train split)**"
    )
    for table in (concepts, vendor):
        assert "| de | captioned images | 100.0 |" in table and "| ar | nothing | 100.0 |" in table
        assert "R@10 of 100.0" in table
    assert text.count("Measured by `babelens evaluate mural-emoji`.") == 1


EVIL = "<img src=x onerror=alert(1)>"
HOSTILE = [EVIL, "a `code` <b> | y |\n| <i>z</i>", "](javascript:alert(1)) [x {{ 7 * 7 }} {% raw %}"]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))


def facts_with(text):
    measured = {"steps": 1, "seconds": 1.0, "loss": 1.0, "hardware": "one core", "versions": "torch 2"}
    run = TrainingRun(command=f"babelens train '{text}'", hyperparameters={text: text}, **measured)
    data = DataSource(name=text, license="CC0-1.0", role=text, attribution=text, url=f"javascript:{text}")
    example = Example(title=text, image=Image.new("RGB", (2, 2)), ranking=[(text, 1.0)], file_name="examples/a.png")
    return ModelCardFacts(
        model_name=text.replace("/", ""),
        method="mural",
        training_data=[data],
        image_languages=["en", "de"],
        results=[Result(dataset=text, scores={"en": scores(1.0)}, command=text, note=text)],
        base_models=[BaseModel(name=text, license="mit", license_name=text)],
        run=run,
        stages=[text, text],
        examples=[example],
    )


def checked(folder):
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
def test_a_card_shows_the_markup_of_others_as_text(text, tmp_path):
    write_card(tmp_path, facts_with(text))
    assert checked(tmp_path).data.model_name == text.replace("/", "")


@pytest.mark.parametrize("way", ["ridge", "adapter"])
def test_a_card_of_acquired_languages(way, tmp_path):
    text = EVIL
    command = f"babelens acquire --translations /home/ada/pairs.tsv --output '{text}'"
    base = BaseModel(name=text, license="other", license_name=text)
    both = {"name": text.replace("/", ""), "native_language": "en", "command": command}
    trained = {"parameters": 2, "pairs": 20, "exposed": False}
    if way == "ridge":
        result = LanguageResult(20, 20, 50.0, 90.0, 85.0, 95.0, 5.0, 5.0, 1.0, 0.5, None, 1.0, 1234)
        bases = [base, BaseModel(name=text, license_name=text, license="other", role=TEXT_TOWER)]
        given = {"results": {"uk": result}, "words": 1234}
        RidgeCardFacts(languages=["uk"], base_models=bases, has_encoder=True, **given, **both).save(tmp_path)
    else:
        trained |= {"trained_embedding": True, "max_text_length": 64, "license": "other"}
        write_adapter_card(tmp_path, language="uk", base_model=text, base=base, **both, **trained)
    card = checked(tmp_path)
    assert "/home/ada" not in card.content and "pairs.tsv" in card.content


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("babelens train a.yaml --output /mnt/big/runs/mural", "babelens train a.yaml --output mural"),
        ("--images '/home/jane doe/my photos'", "--images 'my photos'"),
        ("C:\\Users\\Jane\\photos", "photos"),
        ('{"source": "/srv/photos/val"}', '{"source": "val"}'),
    ],
)
def test_paths_are_named_by_their_last_name(text, public):
    assert publishable(text) == public and paths_in(text) and not paths_in(public)


def test_what_is_no_path_of_a_machine_stays():
    for text in ("https://huggingface.co/a/b/c", "owner/name", "and/or", "![a](examples/a.png)"):
        assert publishable(text) == text and not paths_in(text)


CARD = """---
license: apache-2.0
model_name: tiny
widget: [{src: a.png}]
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


def test_results_are_added_and_replaced_and_the_card_stays(tmp_path):
    with pytest.raises(ModelFolderError, match="has no model card"):
        add_results(tmp_path, [])
    (tmp_path / "README.md").write_text(CARD, "utf-8")
    add_results(tmp_path, [result("uk", 30.0), result("uk", 9.0, "hit_rate_at_1")])
    add_results(tmp_path, [result("uk", 31.5), result("sw", 12.0)])
    card = ModelCard.load(tmp_path / "README.md")
    assert {(each.dataset_name, each.metric_name): each.metric_value for each in card.data.eval_results} == {
        ("Emoji (uk)", "mean recall"): 41.5,
        ("XM3600 (uk)", "hit_rate_at_1"): 9.0,
        ("XM3600 (uk)", "ndcg_at_10"): 31.5,
        ("XM3600 (sw)", "ndcg_at_10"): 12.0,
    }
    assert card.text.strip() == CARD.split("---\n")[2].strip() and card.data.widget == [{"src": "a.png"}]


@pytest.mark.parametrize(
    ("method", "config", "said", "unsaid"),
    [
        ("mural", {"image_head": True, "projection_dim": 77}, "in 77 dimensions", "not projected"),
        ("mural", {"text_text_margin": 0}, "`text_text_margin` 0", "additive margin"),
        ("mla", {"acquirer": "linear"}, "a residual linear layer", "perceptron"),
        ("liwe", {"translation_weight": 0.0}, "between images and texts, which", "in two languages about"),
        ("smalr", {"specific_words": None}, "Every word has its own embedding", "latent vocabulary"),
    ],
)
def test_what_is_said_of_a_method(request, facts, tmp_path, method, config, said, unsaid):
    for part in request.getfixturevalue(f"make_{method}")(**config):
        part.save_pretrained(tmp_path)
    bare = dataclasses.replace(facts, method=method, results=[], examples=[], image_languages=["en", "de"])
    text = " ".join(write_card(tmp_path, bare).read_text().split())
    assert said in text and unsaid not in text
