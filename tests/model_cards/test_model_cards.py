"""Model cards: metadata that the Hub accepts, results as they were measured, nothing that was not."""

import dataclasses
import re

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from PIL import Image
from transformers import TrainingArguments

from babelens.model_cards.card_checks import card_problems
from babelens.model_cards.card_text import CompactCard
from babelens.model_cards.cards import model_card, write_card
from babelens.model_cards.facts import (
    DataSource,
    Example,
    ModelCardFacts,
    example,
    retrieval_results,
    training_run,
)
from babelens.model_cards.licenses import weights_license
from babelens.utils.errors import LanguageTagError

TWEMOJI = DataSource(name="Twemoji", license="CC-BY-4.0", role="images", attribution="Twitter and contributors")
CLDR = DataSource(
    name="CLDR annotations", license="Unicode-3.0", role="names", attribution="Unicode", hub_id="unicode/cldr"
)
OPENMOJI = DataSource(name="OpenMoji", license="CC-BY-SA-4.0", role="images", attribution="HfG Schwäbisch Gmünd")


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
        results=retrieval_results(
            report, dataset="Emoji, unseen concepts", command="babelens evaluate emoji mural-emoji"
        ),
        examples=[
            Example(
                title="Ein Hund",
                image=Image.new("RGB", (8, 8), "brown"),
                ranking=[("ein Hund", 0.75), ("eine Katze", 0.25)],
                file_name="examples/ein-hund.png",
            )
        ],
    )


def test_a_table_has_a_row_for_each_source_and_example_whatever_its_words(facts):
    """A recipe's attribution may have several lines, as YAML writes them, and ends with one then."""
    odd = dataclasses.replace(TWEMOJI, name="A|B", license="CC-BY-4.0", attribution="Jane Doe\nand | others\n")
    shown = dataclasses.replace(facts.examples[0], ranking=[("a|b", 0.75), ("c\r\nd", 0.25)])
    text = model_card(dataclasses.replace(facts, training_data=[odd, CLDR], examples=[shown])).text.splitlines()
    assert "| A\\|B | images | CC-BY-4.0 | Jane Doe and \\| others |" in text
    assert "| ![Ein Hund](examples/ein-hund.png) | a\\|b 0.750, c d 0.250 |" in text


def test_labels_with_commas_are_not_shown_as_several_ones(facts, tmp_path):
    """As some emoji are called; the Hub parts labels at commas."""
    family = dataclasses.replace(
        facts.examples[0], ranking=[("Familie: Mann, Frau", 0.9), ("ein Hund", 0.1)], file_name="examples/family.png"
    )
    path = write_card(tmp_path, dataclasses.replace(facts, examples=[*facts.examples, family]))
    assert card_problems(tmp_path) == []
    card = ModelCard.load(path)
    assert [each["src"] for each in card.data.widget] == ["examples/ein-hund.png"]
    assert "Familie: Mann, Frau 0.900" in card.text and (tmp_path / "examples/family.png").is_file()


def test_metadata_are_what_the_hub_asks_for(facts):
    metadata = yaml.safe_load(str(model_card(facts)).split("---\n")[1])
    assert metadata["language"] == ["de", "zh", "sw"]  # ISO 639, each once; nothing is claimed for `pt`
    assert metadata["language_bcp47"] == ["de", "zh-Hant", "zh", "sw"]
    assert metadata["license"] == "cc-by-4.0"
    assert metadata["library_name"] == "transformers"
    assert metadata["pipeline_tag"] == "zero-shot-image-classification"
    assert metadata["datasets"] == ["unicode/cldr"]
    assert metadata["metrics"] == ["recall"]
    assert metadata["widget"] == [
        {
            "src": "examples/ein-hund.png",
            "example_title": "Ein Hund",
            "candidate_labels": "ein Hund, eine Katze",
            "output": [{"label": "ein Hund", "score": 0.75}, {"label": "eine Katze", "score": 0.25}],
        }
    ]


def test_model_index_holds_every_language_as_measured(facts):
    metadata = yaml.safe_load(str(model_card(facts)).split("---\n")[1])
    name, results = model_index_to_eval_results(metadata["model-index"])
    assert name == "mural-emoji"
    measured = {(result.dataset_config, result.metric_name): result.metric_value for result in results}
    assert len(measured) == len(results) == 4 * 5
    assert measured["de", "text to image R@1"] == 50.12
    assert measured["de", "text to image R@10"] == 52.12
    assert measured["pt", "mean recall"] == 16.0
    assert {result.metric_type for result in results} == {"recall"}


def test_the_text_says_what_was_measured_and_how(facts):
    text = model_card(facts).text
    assert "| de | captioned images | 50.1 | 51.1 | 52.1 | 53.1 | 54.1 | 55.1 | 56.1 | 447 | 440 |" in text
    assert "| sw | translations only | 30.0 |" in text
    assert "| pt | nothing | 10.0 |" in text
    assert "Measured by `babelens evaluate emoji mural-emoji`." in text
    assert "1,234,567" in text
    assert "| Twemoji | images | CC-BY-4.0 | Twitter and contributors |" in text
    assert "How this model was trained was not recorded." in text
    assert "@inproceedings{jain-etal-2021-mural," in text and "title = {{MURAL}: Multimodal" in text
    assert "published under **cc-by-4.0**" in text and "strictest" in text
    assert "{%" not in text and "None" not in text


def test_a_model_that_was_not_evaluated_says_so_and_claims_nothing(facts):
    bare = dataclasses.replace(facts, results=[], examples=[], unseen_languages=[], parameters=None)
    card = model_card(bare)
    assert "This model has not been evaluated." in card.text
    assert not {"model-index", "metrics", "widget"} & set(card.data.to_dict())


def test_python_in_the_card_is_python(facts):
    blocks = re.findall(r"```python\n(.*?)```", model_card(facts).text, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        compile(block, "card", "exec")


def test_written_folder_holds_card_images_and_endpoint(facts, tmp_path):
    (tmp_path / "modeling_toy.py").write_text(
        "import json\nimport torch.nn\nfrom PIL import Image\nfrom .other import X\n"
    )
    path = write_card(tmp_path, facts)
    assert path.read_text(encoding="utf-8") == str(CompactCard.load(path)) == str(model_card(facts))
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
    assert (
        "`babelens train recipe.yaml`" in text
        and all(argument in text for argument in ("`learning_rate` 0.001", "`max_steps` 12"))
        and "final loss 0.5;" in text
    )
    with pytest.raises(ValueError, match="train_runtime"):
        training_run(args, log[:1], command="babelens train recipe.yaml")


def test_an_example_is_the_models_own_answer():
    def classifier(image, candidate_labels, hypothesis_template):
        assert hypothesis_template == "{}"
        return [{"label": label, "score": 1 / len(candidate_labels)} for label in candidate_labels]

    shown = example(classifier, Image.new("RGBA", (4, 4)), ["a", "b"], "Rouge & bleu: 狗")
    assert shown.ranking == [("a", 0.5), ("b", 0.5)]
    assert shown.file_name == "examples/rouge-bleu.png"


@pytest.mark.parametrize(
    ("sources", "license"),
    [([CLDR], "apache-2.0"), ([TWEMOJI, CLDR], "cc-by-4.0"), ([OPENMOJI, TWEMOJI, CLDR], "cc-by-sa-4.0")],
)
def test_weights_carry_the_strictest_license_of_their_data(sources, license):
    assert weights_license(sources) == license


def test_an_unknown_license_is_left_to_people(facts):
    flickr = DataSource(name="Flickr30k", license="Flickr terms of use", role="images", attribution="its authors")
    with pytest.raises(ValueError, match="Flickr30k is under 'Flickr terms of use'"):
        model_card(dataclasses.replace(facts, training_data=[flickr]))
    stated = dataclasses.replace(facts, training_data=[flickr], license="cc-by-nc-4.0")
    card = model_card(stated)
    assert card.data.license == "cc-by-nc-4.0" and "strictest" not in card.text
    with pytest.raises(ValueError, match="no training data"):
        weights_license([])


def test_facts_that_cannot_be_are_refused(facts):
    with pytest.raises(LanguageTagError):
        dataclasses.replace(facts, image_languages=["english"])
    with pytest.raises(ValueError, match="needs the languages"):
        dataclasses.replace(facts, image_languages=[], pair_languages=[])
    with pytest.raises(ValueError, match="must not name an owner"):
        dataclasses.replace(facts, model_name="somebody/model")
    with pytest.raises(ValueError, match="no text for the cards of method 'mla2'"):
        model_card(dataclasses.replace(facts, method="mla2"))
