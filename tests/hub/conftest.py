import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from PIL import Image

from babelens.model_cards.cards import write_card
from babelens.model_cards.facts import DataSource, Example, ModelCardFacts
from tests.support.hub_double import HubDouble
from tests.support.tiny_native import saved


@pytest.fixture(scope="session")
def published(tmp_path_factory, make_mural) -> Path:
    """A folder as training leaves it: model and processor, saved one after the other. Not to be changed."""
    folder = tmp_path_factory.mktemp("published") / "mural-tiny"
    return saved(make_mural(), folder)


@pytest.fixture(scope="session")
def finished(published, tmp_path_factory):
    """A published folder with its card. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "mural-tiny"
    shutil.copytree(published, folder)
    shown = Example(
        title="Auto",
        image=Image.new("RGB", (8, 8)),
        ranking=[("ein rotes auto", 0.75), ("ein grauer hund", 0.25)],
        file_name="examples/auto.png",
        language="de",
    )
    data = DataSource(name="Synthetic images", license="CC0-1.0", role="images", attribution="nobody")
    facts = ModelCardFacts(
        model_name="mural-tiny", method="mural", image_languages=["de", "fr"], training_data=[data], examples=[shown]
    )
    write_card(folder, facts)
    return folder


@pytest.fixture
def hub(monkeypatch) -> HubDouble:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    return HubDouble()
