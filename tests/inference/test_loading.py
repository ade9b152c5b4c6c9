"""An adapter is loaded by the function that its kind has registered."""

import json

import pytest

from babelens.configuration.errors import ModelKindError
from babelens.inference import loading
from babelens.inference.embedder import Embedder


@pytest.fixture
def adapter(tmp_path):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "TOY"}))
    return tmp_path / "adapter"


def test_a_kind_that_registers_itself_is_loaded(clip_parts, adapter, monkeypatch):
    monkeypatch.setattr(loading, "_LOADERS", dict(loading._LOADERS))
    asked = []
    loading.register_adapter_loader("TOY", lambda source, **options: asked.append((source, options)) or clip_parts)
    embedder = Embedder.from_pretrained(adapter, trust_remote_code=False)
    assert (embedder.model, embedder.processor) == clip_parts
    ((source, options),) = asked
    assert source == str(adapter) and options["trust_remote_code"] is False


def test_a_kind_that_nobody_registered_is_refused(adapter):
    with pytest.raises(ModelKindError, match="holds an adapter of TOY, and not of LORA or MLA"):
        Embedder.from_pretrained(adapter)
    (adapter / "adapter_config.json").write_text("[]")
    with pytest.raises(ModelKindError, match="an adapter of no kind"):
        Embedder.from_pretrained(adapter)
