"""The recipes `mla/…` on a tiny CLIP: what fine-tuning trains, and transfer that is kept during exposure."""

import json

import pytest
import torch
from transformers import AutoModel
from typer.testing import CliRunner

from babelens.cli.main import app
from tests.support.tiny_native import saved, tiny_bert, tiny_clip
from tests.support.tiny_training import write_shapes

SHORT = {
    "training.per_device_train_batch_size": 4,
    "training.use_cpu": "true",
    "training.precision": "float32",
    "training.logging_steps": 1,
    "training.dataloader_num_workers": 0,
    "training.save_strategy": "no",
    "model.overrides.languages": "[de, fr]",
}
PAIRS = "[[de, en], [fr, en]]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cache):
    """Images with captions, a CLIP, M-BERT's tokenizer with its table, and the result of `mla/kept`."""
    folder = tmp_path_factory.mktemp("mla")
    saved(tiny_clip(), folder / "clip")
    saved(tiny_bert(), folder / "bert")
    (folder / "shapes").mkdir()
    write_shapes(folder / "shapes")
    train("kept", folder, folder / "kept", **kept(folder, "kept"))
    return folder


def train(name, folder, output, **settings):
    words = [word for key, value in (SHORT | settings).items() for word in ("--set", f"{key}={value}")]
    done = CliRunner().invoke(app, ["train", f"mla/{name}", "--output", str(output), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return AutoModel.from_pretrained(output)


def kept(folder, name):
    """Settings of the recipes of table 3, rows 7 and 8."""
    return {
        "model.from_pretrained": folder / "clip",
        "multilingual_tokenizer.from_pretrained": folder / "bert",
        "train.text_text.source": folder / "shapes" / "pairs.tsv",
        "train.text_text.options": "{}",
        "train.text_text.pairs": PAIRS,
        "train.triplet.source": folder / "shapes",
        "train.triplet.options": "{}",
        "train.triplet.pairs": PAIRS,
        "stages.transfer.training.max_steps": 2,
        "stages.exposure.training.max_steps": 2,
        "training.save_strategy": "steps",
    }


def losses(output, stage):
    (state,) = (output / "checkpoints" / stage).glob("*/trainer_state.json")
    return json.loads(state.read_text())["log_history"][0].keys()


def test_transfer_is_kept_on_the_batches_of_exposure(folder, tmp_path):
    train("kept-nce", folder, tmp_path / "run", **kept(folder, "kept-nce"))
    for output in (folder / "kept", tmp_path / "run"):
        assert {"loss_triplet"} == {name for name in losses(output, "exposure") if name.startswith("loss_")}


def test_fine_tuning_on_english_and_then_on_all(folder, tmp_path):
    """CLIP is trained first, with its acquirers off; then the acquirers, on the frozen CLIP."""
    parts = ("train.image_text", "validation")
    data = {f"{part}.source": folder / "shapes" for part in parts} | {f"{part}.options": "{}" for part in parts}
    ends = {"training.max_steps": 2, "training.eval_strategy": "no", "training.load_best_model_at_end": "false"}
    start = {"model.from_pretrained": folder / "kept"}
    english = train("finetune-en", folder, tmp_path / "en", **data, **ends, **start)
    start = {"model.from_pretrained": tmp_path / "en", "train.image_text.languages": "[de, fr]"}
    everything = train("finetune-all", folder, tmp_path / "all", **data, **ends, **start)

    def changed(model, before):
        weights = before.state_dict()
        return {".mla_" in name for name, value in model.state_dict().items() if not torch.equal(value, weights[name])}

    assert changed(english, AutoModel.from_pretrained(folder / "kept")) == {False}
    assert changed(everything, english) == {True}
