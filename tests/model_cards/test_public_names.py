"""Cards, facts and reports name folders, and do not say where on the machine they are."""

import dataclasses

import pytest

from babelens.model_cards.card_text import paths_in, public_name, publishable
from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import DataSource, ModelCardFacts, TrainingRun, retrieval_results
from babelens.model_cards.short_cards import AdapterCardFacts, write_short_card

HOME = "/home/jane.doe/secret project/photos"
RUN = TrainingRun(
    command=f"babelens train my.yaml --output /home/jane.doe/runs/mural --set train.source='{HOME}'",
    hyperparameters={"deepspeed": "/home/jane.doe/ds.json"},
    steps=1,
    seconds=1.0,
    loss=1.0,
    hardware="one core",
    versions="torch 2",
)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("babelens train a.yaml --output /mnt/big/runs/mural", "babelens train a.yaml --output mural"),
        ("--output=~/runs/mural", "--output=mural"),
        ("--images '/home/jane doe/my photos'", "--images 'my photos'"),
        ("Validation data (/srv/photos/val)", "Validation data (val)"),
        ("C:\\Users\\Jane\\photos", "photos"),
        ('{"source": "/srv/photos/val"}', '{"source": "val"}'),
    ],
)
def test_paths_are_named_by_their_last_name(text, public):
    assert publishable(text) == public and paths_in(text) and not paths_in(public)


@pytest.mark.parametrize(
    "text",
    [
        *("https://huggingface.co/a/b/c", "owner/name", "runs/mural", "and/or", "image/text / label"),
        *("![a](examples/a.png)", "10.18653/v1/2021.emnlp/293"),
    ],
)
def test_what_is_no_path_of_a_machine_stays(text):
    assert publishable(text) == text and not paths_in(text)


def test_a_source_is_named_by_its_folder(tmp_path, monkeypatch):
    (tmp_path / "private" / "photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert public_name("private/photos") == public_name(tmp_path / "private" / "photos") == "photos"
    assert public_name("owner/name") == "owner/name" and public_name("/gone/away/photos") == "photos"


def test_cards(tmp_path):
    data = DataSource(name=HOME, license="CC0-1.0", role="images", attribution="Nobody")
    report = {"en": dict.fromkeys(("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall"), 1.0)}
    report["en"] |= {"n_images": 1, "n_texts": 1}
    results = retrieval_results(report, dataset=f"Validation data ('{HOME}')", command=f"x --data '{HOME}'")
    facts = ModelCardFacts(
        model_name="m", method="mural", training_data=[data], image_languages=["en"], run=RUN, results=results
    )
    text = write_card(tmp_path, dataclasses.replace(facts, training_data=[data])).read_text()
    assert "jane" not in text and "photos" in text and "--output mural" in text
    adapter = AdapterCardFacts(
        name="uk",
        language="uk",
        native_language="en",
        base_model="/home/jane.doe/models/clip",
        on_mla=False,
        parameters=1,
        trained_embedding=True,
        embedding="embedding",
        max_text_length=77,
        pairs=1,
        exposed=False,
        command="babelens acquire --base /home/jane.doe/models/clip",
    )
    text = write_short_card(tmp_path, adapter).read_text()
    assert "jane" not in text and "base_model:" not in text and "--base clip" in text
