"""The Python examples of the pages about other tools run, one after the other, on tiny models."""

import shutil
import sys
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

import pytest
import torch
from documents import TITLED_BLOCK, pages, write_example_data
from pydantic import BaseModel, PrivateAttr
from tiny_rc3_tasks import tiny_config, tiny_processor

from babelens import Rc3ForConditionalGeneration, Rc3ForVisualQuestionAnswering

SECTIONS = ["transformers' pipelines", "Integrations"]  # of "Use a model in other libraries"


# ---- The base classes of libraries that are not installed, with the methods that their subclasses need ----


class Embeddings(ABC):
    """langchain_core.embeddings.Embeddings."""

    @abstractmethod
    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...

    @abstractmethod
    def embed_query(self, text: str) -> list[float]: ...


class BaseEmbedding(BaseModel, ABC):
    """llama_index.core.base.embeddings.base.BaseEmbedding, which is a pydantic model."""

    model_name: str

    @abstractmethod
    def _get_query_embedding(self, query: str) -> list[float]: ...

    @abstractmethod
    async def _aget_query_embedding(self, query: str) -> list[float]: ...

    @abstractmethod
    def _get_text_embedding(self, text: str) -> list[float]: ...

    def get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embedding(text)


MISSING: dict[str, dict[str, Any]] = {
    "langchain_core.embeddings": {"Embeddings": Embeddings},
    "llama_index.core.base.embeddings.base": {"BaseEmbedding": BaseEmbedding},
    "llama_index.core.bridge.pydantic": {"PrivateAttr": PrivateAttr},
}


@pytest.fixture
def stand_ins(monkeypatch):
    for name, content in MISSING.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


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
def test_examples_run(section, folder, stand_ins, tmp_path, monkeypatch):
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
