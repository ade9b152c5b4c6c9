"""MLA adapters as files: saved, loaded by peft and by transformers, with the shared embedding inside or apart."""

import json
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn

from babelens.modeling.peft_mla import MlaAdapterConfig, load_embedding, save_embedding
from babelens.utils.errors import InputError, ModelFolderError
from tests.support.tiny_adapters import SEP, VOCABULARY, make_clip

# Of peft, when transformers adds a second adapter.
pytestmark = pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning")

WEIGHTS = "adapter_model.safetensors"
IDS = torch.tensor([[2, 5, 6, 9, SEP], [2, 7, SEP, 0, 0], [2, 9, 8, SEP, 0]])


def texts(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.get_text_features(input_ids=IDS).pooler_output


def language(tag: str, **options) -> MlaAdapterConfig:
    return MlaAdapterConfig(language=tag, **VOCABULARY | options)


@pytest.fixture
def german(tmp_path) -> tuple[Path, torch.Tensor]:
    """The folder of an adapter with the embedding inside, and the features of `IDS` with it."""
    model = get_peft_model(make_clip(), language("de")).eval()
    model.save_pretrained(tmp_path / "german")
    return tmp_path / "german", texts(model)


@pytest.fixture
def shared(tmp_path) -> tuple[dict[str, Path], dict[str, torch.Tensor]]:
    """Folders of `de` and `fr`, and of the `embedding` that they share; the features of `IDS` in both languages."""
    model = get_peft_model(make_clip(), language("de", train_embedding=False), adapter_name="de").eval()
    save_embedding(model, tmp_path / "embedding")
    model.peft_config["de"].embedding = str(tmp_path / "embedding")
    french = language("fr", train_embedding=False, embedding=str(tmp_path / "embedding"))
    model.add_adapter("fr", french)
    features = {}
    for name in ("de", "fr"):
        model.set_adapter(name)
        features[name] = texts(model)
    model.save_pretrained(tmp_path)
    return {name: tmp_path / name for name in ("de", "fr", "embedding")}, features


def test_peft_loads_what_it_saved(german):
    folder, expected = german
    for trainable in (True, False):
        options = {"low_cpu_mem_usage": trainable, "is_trainable": trainable}
        model = PeftModel.from_pretrained(make_clip(), folder, **options)
        assert torch.equal(texts(model), expected)
        assert any(parameter.requires_grad for parameter in model.parameters()) == trainable


def test_transformers_loads_what_peft_saved(german):
    folder, expected = german
    model = make_clip()
    report = model.load_adapter(folder)
    assert torch.equal(texts(model), expected)
    assert not (report.missing_keys or report.unexpected_keys)
    assert not any(parameter.requires_grad for name, parameter in model.named_parameters() if "mla_" in name)


def test_adapters_that_share_an_embedding_hold_acquirers_alone(shared):
    folders, features = shared
    for name in ("de", "fr"):
        assert all(".mla_acquirers." in key for key in load_file(folders[name] / WEIGHTS))
    model = PeftModel.from_pretrained(make_clip(), folders["de"], adapter_name="de")
    report = model.load_adapter(folders["fr"], adapter_name="fr")
    assert not (report.missing_keys or report.unexpected_keys)
    for name in ("fr", "de"):
        model.set_adapter(name)
        assert torch.equal(texts(model), features[name])


def test_the_embedding_may_lie_on_the_hub(shared, tmp_path, monkeypatch):
    folders, features = shared
    commit = "0" * 40
    repository = tmp_path / "hub" / "models--someone--embedding"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folders["embedding"], repository / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    settings = json.loads((folders["de"] / "adapter_config.json").read_text())
    (folders["de"] / "adapter_config.json").write_text(json.dumps(settings | {"embedding": "someone/embedding"}))
    assert torch.equal(texts(PeftModel.from_pretrained(make_clip(), folders["de"])), features["de"])
    with pytest.raises(ModelFolderError, match="someone/else has no readable"):
        get_peft_model(make_clip(), language("de", embedding="someone/else"))


def test_damaged_embeddings_are_refused(shared):
    folders, _ = shared
    file = folders["embedding"] / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    with pytest.raises(ModelFolderError, match=r"no readable model\.safetensors"):
        load_embedding(folders["embedding"])
    save_file({"table.weight": torch.zeros(2, 2)}, file)
    with pytest.raises(ModelFolderError, match="no non-native embedding"):
        load_embedding(folders["embedding"])
    file.unlink()
    base = make_clip()
    with pytest.raises(ModelFolderError, match=r"no readable model\.safetensors"):
        PeftModel.from_pretrained(base, folders["de"])
    assert not hasattr(base, "peft_config") and torch.equal(texts(base), texts(make_clip()))


def test_an_embedding_that_was_trained_since_is_refused(shared):
    folders, _ = shared
    weights = load_file(folders["embedding"] / "model.safetensors")
    save_file(
        weights | {"projection.bias": weights["projection.bias"] + 1e-3}, folders["embedding"] / "model.safetensors"
    )
    with pytest.raises(InputError, match="is not the one that the 'de' adapter needs"):
        PeftModel.from_pretrained(make_clip(), folders["de"])
    model = get_peft_model(make_clip(), language("cs", embedding=str(folders["embedding"])), adapter_name="cs")
    with pytest.raises(InputError, match="another shared embedding"):
        model.load_adapter(folders["de"], adapter_name="de")
    model = get_peft_model(make_clip(), language("cs"), adapter_name="cs")
    with pytest.raises(InputError, match="another shared embedding"):
        model.add_adapter("fr", language("fr", embedding=str(folders["embedding"])))
    with pytest.raises(RuntimeError, match="size mismatch"):
        get_peft_model(make_clip(), language("cs", embedding=str(folders["embedding"]), vocab_size=99))
