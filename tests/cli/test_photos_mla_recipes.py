"""The recipes `photos/mla`: an English dual encoder of two pretrained towers acquires languages, in both ways."""

import pytest
import torch
from transformers import AutoTokenizer
from typer.testing import CliRunner

from babelens import Embedder
from babelens.cli.main import app
from babelens.training.loading import load_recipe
from babelens.training.recipe import find_recipe
from tests.contracts import drawn_images
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_native import saved, tiny_bert
from tests.support.tiny_training import write_shapes

PIECES = "multilingual_tokenizer"
ENGLISH = ["a red bar", "an old blue dot in green"]
SHORT = {"training.use_cpu": "true", "training.disable_tqdm": "true", "training.per_device_train_batch_size": "8"}


def train(name, output, **settings):
    options = [word for key, value in (SHORT | settings).items() for word in ("--set", f"{key}={value}")]
    CliRunner().invoke(app, ["train", f"photos/mla/{name}", "--output", str(output), *options], catch_exceptions=False)
    return Embedder.from_pretrained(output, device="cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The shapes as files, and what the recipe of the base makes of them."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "shapes").mkdir()
    write_shapes(folder / "shapes")
    saved_backbone("efficientnet", folder / "vision")
    saved(tiny_bert(), folder / "text")
    source = {"train.image_text.source": folder / "shapes", "model.image": folder / "vision"}
    train("clip", folder / "clip", **source, **{"model.text": folder / "text", "training.max_steps": 2})
    return folder


@pytest.mark.parametrize("name", ["mla", "student"])
def test_a_base_acquires_languages_and_keeps_english_to_the_bit(base, name, tmp_path):
    shapes = base / "shapes"
    settings = {
        "model.from_pretrained": base / "clip",
        "model.overrides.languages": "[de, fr]",
        "train.image_text.source": shapes,
        "train.image_text.languages": "[de, fr]",
        "train.text_text.source": shapes / "pairs.tsv",
        "train.text_text.pairs": "[[de, en], [fr, en]]",
    }
    stages = load_recipe(find_recipe(f"photos/mla/{name}")).stages
    short = [f"{{name: {stage.name}, tasks: {stage.tasks}, training: {{max_steps: 2}}}}" for stage in stages]
    settings |= {"training.max_steps": 2} | ({"stages": f"[{', '.join(short)}]"} if short else {})
    source = "text_model" if name == "student" else "multilingual_tokenizer"
    acquired = train(name, tmp_path / name, **settings, **{f"{source}.from_pretrained": base / "text"})
    if name == "mla":  # of the encoder's pieces, those that the captions use
        kept, whole = (AutoTokenizer.from_pretrained(path) for path in (tmp_path / name / PIECES, base / "text"))
        assert kept.get_vocab().keys() < whole.get_vocab().keys()
        assert acquired.model.config.vocab_size == len(kept)
    plain, images = Embedder.from_pretrained(base / "clip", device="cpu"), drawn_images(3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = [embedder.encode_text(ENGLISH, language="en") for embedder in (acquired, plain)]
        assert (found[0] == found[1]).all()
        assert (acquired.encode_image(images) == plain.encode_image(images)).all()
    finally:
        torch.set_num_threads(threads)
    assert acquired.encode_text(["ein roter Balken", "un point"], language=["de", "fr"]).shape == (2, 512)
