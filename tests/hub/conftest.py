"""A Python that lacks babelens, and a tiny published model."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from babelens import MuralConfig, MuralModel, MuralProcessor
from babelens.processing.image_processing_mural import MuralImageProcessor


@pytest.fixture(scope="session")
def run_without_babelens(tmp_path_factory):
    """Runs Python code in a virtual environment that has what this one has, except babelens; returns what it prints.

    Its site-packages holds links to the installed packages; babelens, and what leads to its sources, is left out.
    """
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "venv", symlinks=True)
    site_packages = next((folder / "venv").glob("lib*/python*/site-packages"))
    for installed in (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")):
        for package in installed.iterdir():
            link = site_packages / package.name
            if "babelens" not in package.name and package.suffix != ".pth" and not link.exists():
                link.symlink_to(package)

    def run(code: str, *arguments: str | Path) -> str:
        refuse = "import importlib.util\nassert importlib.util.find_spec('babelens') is None\n"
        command = [folder / "venv/bin/python", "-c", refuse + code, *arguments]
        environment = {
            "PATH": os.environ["PATH"],
            "HF_HOME": str(folder / "hf"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _tiny_mural() -> tuple[MuralModel, MuralProcessor]:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ein", "rotes", "auto", "un", "chien", "gris"]
    config = MuralConfig(
        text_config={
            "vocab_size": len(words),
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
        },
        vision_config={"width_coefficient": 0.1, "depth_coefficient": 0.1, "image_size": 32},
        temperature_init_value=0.1,
    )
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "attention_mask"],
    )
    image_processor = MuralImageProcessor(size={"height": 36, "width": 36}, crop_size={"height": 32, "width": 32})
    torch.manual_seed(0)
    return MuralModel(config).eval(), MuralProcessor(image_processor, fast)


@pytest.fixture(scope="session")
def make_mural():
    """Builds the same tiny MURAL, a model and its processor, at every call."""
    return _tiny_mural


@pytest.fixture(scope="session")
def published(tmp_path_factory, make_mural) -> Path:
    """A folder as training leaves it: model and processor, saved one after the other. Not to be changed."""
    folder = tmp_path_factory.mktemp("published") / "mural-tiny"
    for part in make_mural():
        part.save_pretrained(folder)
    return folder
