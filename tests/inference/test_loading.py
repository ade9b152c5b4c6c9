"""Adapters of other kinds."""

import json

import pytest

from babelens.inference.embedder import Embedder
from babelens.utils.errors import ModelKindError


@pytest.fixture
def adapter(tmp_path):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "TOY"}))
    return tmp_path / "adapter"


def test_an_adapter_of_another_kind_is_refused(adapter):
    with pytest.raises(ModelKindError, match="holds an adapter of TOY, and not of LORA or MLA"):
        Embedder.from_pretrained(adapter)
    (adapter / "adapter_config.json").write_text("[]")
    with pytest.raises(ModelKindError, match="an adapter of no kind"):
        Embedder.from_pretrained(adapter)
