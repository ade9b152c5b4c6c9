"""What a card says of the method is true of the model's configuration, also of models made from pretrained towers."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from babelens import model_cards
from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import DataSource, ModelCardFacts

DATA = [DataSource(name="Photos", license="CC0-1.0", role="images", attribution="Nobody")]
FACTS = ModelCardFacts(model_name="tiny", method="mural", training_data=DATA, image_languages=["en", "de"])


@pytest.fixture(scope="module")
def saved(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")

    def folder(method):
        if not (root / method).exists():
            for part in request.getfixturevalue(f"make_{method}")():
                part.save_pretrained(root / method)
        return root / method

    return folder


@pytest.fixture
def card_of(saved, tmp_path):
    def write(method, languages=("en", "de"), change=None, **config):
        for path in saved(method).glob("*.json"):
            shutil.copy(path, tmp_path)
        for name, values in {"config.json": config, "processor_config.json": change or {}}.items():
            path = tmp_path / name
            path.write_text(json.dumps(json.loads(path.read_text()) | values))
        facts = dataclasses.replace(FACTS, method=method, image_languages=list(languages))
        return " ".join(write_card(tmp_path, facts).read_text().split())

    return write


@pytest.mark.parametrize("method", ["mural", "etcl"])
@pytest.mark.parametrize(
    ("config", "said", "unsaid"),
    [
        ({}, ["Images are not projected", "at its first token", "WordPiece pieces"], ["Frozen"]),
        ({"image_head": True, "projection_dim": 77}, ["Images are projected to 77 dimensions"], ["not projected"]),
        ({"text_pooling": "mean"}, ["the mean of the states of its tokens"], ["at its first token"]),
        ({"text_pooling": "eos"}, ["the state at its last token"], ["at its first token"]),
        ({"text_pooling": "pooler"}, ["own pooled state"], ["at its first token"]),
        ({"image_pooling": "cls"}, ["as the state at its first position"], ["last feature map"]),
        ({"image_pooling": "mean"}, ["the mean over all positions"], ["last feature map"]),
        ({"text_config": {"model_type": "xlm-roberta"}}, ["of the type `xlm-roberta`"], ["a BERT"]),
        ({"vision_config": {"model_type": "dinov2"}}, ["of the type `dinov2`"], ["EfficientNet", "feature map"]),
        ({"text_hidden_size": 9, "text_layer_norm": True}, ["hidden layer of 9", "normalized and then"], []),
        ({"text_prompt": "query: "}, ["read after `query: `"], []),
        ({"freeze": ["image", "text"]}, ["Frozen in training: the image tower and the text tower"], []),
    ],
)
def test_towers(card_of, method, config, said, unsaid):
    text = card_of(method, **config)
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


def test_tasks_of_mural(card_of):
    both = card_of("mural", shared_text_head=True, text_text_margin=0.0)
    assert "Two tasks" in both and "the same text head" in both and "additive margin" not in both
    one = card_of("mural", tasks=["image_text"])
    assert "One task" in one and "Two tasks" not in one and "*Translation matching*" not in one


def test_what_is_not_as_in_the_paper(card_of):
    published = {"text_text_temperature": 0.01, "text_text_margin": 0.3, "label_smoothing": 0.0}
    assert "after the paper" not in card_of("mural", **published)
    assert "after the paper" not in card_of("mural", tasks=["image_text"], text_text_temperature=0.1)
    own = {"text_text_temperature": 0.1, "text_text_margin": 0, "shared_text_head": True, "text_hidden_size": 9}
    text = card_of("mural", **published | own)
    for part in (
        "divided by 0.1, there 0.01",
        "margin of translations is 0, there 0.3",
        "one text head",
        "linear layer",
    ):
        assert part in text
    assert "divided by 0.1, there the learned temperature" in card_of("etcl", text_text_temperature=0.1)


def test_one_language(card_of):
    text = card_of("mural", languages=["en"])
    assert "texts of one language" in text and "text across languages" not in text and "1 languages" not in text


def test_how_texts_and_images_are_read(card_of):
    assert "cut at 64 tokens; images are resized to 36 × 36" in card_of("mural")
    images = {"do_resize": True, "size": {"shortest_edge": 50}, "do_center_crop": False}
    text = card_of("mural", change={"max_text_length": 9, "image_processor": images})
    assert "cut at 9 tokens; the shorter side" in text and "proportions" not in text and "the centre of" not in text


@pytest.mark.parametrize(
    ("method", "config", "said", "unsaid"),
    [
        ("mla", {}, "perceptron with one hidden layer", "linear layer"),
        ("mla", {"acquirer": "linear"}, "a residual linear layer", "perceptron"),
        ("mla", {"text_text_objective": "nce"}, "by a contrastive loss", "mean squared error"),
        ("mla", {"image_text_objective": "mse"}, "to those of the text's image", "tells the text's image"),
        ("mla_student", {"strategy": "projection"}, "the projection alone is trained", "acquirers* after"),
        ("mla_student", {"native_texts": "native"}, "are read by the frozen model", "read by it too"),
        ("liwe", {"translation_weight": 0.0}, "between images and texts, which", "in two languages about"),
        ("liwe", {"vision_config": None}, "given as features", "backbone embeds images"),
        ("smalr", {"specific_words": None}, "Every word has an embedding", "latent vocabulary"),
        ("smalr", {"language_branches": True}, "recurrent encoder of its own", "One recurrent"),
        ("smalr", {"mask_weight": 0.0}, "an adversarial classifier", "cross-language modelling"),
    ],
)
def test_other_methods(card_of, method, config, said, unsaid):
    text = card_of(method, **config)
    assert said in text and unsaid not in text


def test_every_setting_that_a_sentence_reads_is_one_of_the_configuration(card_of, tmp_path):
    """A key that is renamed would silently fall back to a default."""
    for method in ("mural", "etcl", "mla", "mla_student", "liwe", "smalr"):
        card_of(method)
        template = Path(model_cards.__file__).with_name(f"{method}.md").read_text()
        read = set(re.findall(r'made\.config\.get\("(\w+)"', template))
        assert read <= set(json.loads((tmp_path / "config.json").read_text())), method
