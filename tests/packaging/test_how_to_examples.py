"""The Python examples of the pages about other tools run, one after the other, on tiny models."""

import shutil
from typing import Any

import pytest
import torch

from babelens import Rc3ForConditionalGeneration, Rc3ForVisualQuestionAnswering
from tests.support.documents import TITLED_BLOCK, pages, write_example_data
from tests.support.tiny_rc3_tasks import tiny_config, tiny_processor

SECTIONS = ["transformers", "Data sets and trackers"]  # of "Use other libraries"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_mural):
    """Where the examples run: images with captions, and a tiny model of each kind in `runs`."""
    folder = tmp_path_factory.mktemp("how-to")
    write_example_data(folder)
    for part in make_mural():
        part.save_pretrained(folder / "runs/mural")
    for name, head in {"xgqa": Rc3ForVisualQuestionAnswering, "translation": Rc3ForConditionalGeneration}.items():
        torch.manual_seed(0)
        processor = tiny_processor()
        for part in (head(tiny_config(processor, visual="patches")), processor):
            part.save_pretrained(folder / "runs" / name)
    return folder


@pytest.mark.parametrize("section", SECTIONS)
def test_examples_run(section, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    text = pages("how-to")["other-libraries"].partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {"__name__": "example"}
    ran = 0
    for language, title, code in TITLED_BLOCK.findall(text):
        if language == "python" and not title:  # the title says what a test does not have
            exec(compile(code, section, "exec"), names)
            ran += 1
    assert ran
