import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from babelens import CrossEncoder, Embedder, MlaModel
from babelens.modeling.peft_mla import save_adapter
from babelens.utils.errors import BabelensError, ModelFolderError
from babelens.utils.pretrained import load_config, load_model
from tests.support.tiny_native import tiny_bert

WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"


def change_weights(folder, change, file=WEIGHTS):
    save_file(change(load_file(folder / file)), folder / file, metadata={"format": "pt"})


def change_json(file, **keys):
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def truncate(file):
    file.write_bytes(file.read_bytes()[:-50])


def as_pickle(folder):
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def as_shards(folder):
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).rename(folder.parent / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "../elsewhere.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


NAME = "text_projection.weight"
PANIC = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
FAULTS = {
    f"lacks the weights {NAME} of": lambda f: change_weights(f, lambda w: {k: v for k, v in w.items() if k != NAME}),
    f"NaN or infinite in {NAME}": lambda f: change_weights(f, lambda w: w | {NAME: w[NAME] * torch.nan}),
    f"{WEIGHTS} is truncated or damaged": lambda f: truncate(f / WEIGHTS),
    "header too large": lambda f: (f / WEIGHTS).write_bytes((2**62).to_bytes(8, "little") + b"{}"),
    "model.safetensors": as_pickle,
    r"names weights in '\.\./elsewhere.safetensors'": as_shards,
    "tokenizer.json is truncated or damaged": lambda f: change_json(f / "tokenizer.json", normalizer=PANIC),
    "clap-your-hands": lambda f: change_json(f / "config.json", model_type="clap-your-hands"),
    "is code from the Hub": lambda f: change_json(f / "config.json", attn_implementation="evil/kernel"),
}


@pytest.fixture
def folder(clip_folder, tmp_path):
    return shutil.copytree(clip_folder, tmp_path / "clip")


@pytest.mark.parametrize("message", FAULTS)
def test_a_damaged_folder_is_one_sentence(message, folder):
    FAULTS[message](folder)
    with pytest.raises(ModelFolderError, match=message) as caught:
        Embedder.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_pickle_is_read_when_it_is_asked_for(folder, clip_folder):
    as_pickle(folder)
    model = load_model(AutoModel, folder, use_safetensors=False)
    assert torch.equal(
        model.text_projection.weight, Embedder.from_pretrained(clip_folder).model.text_projection.weight
    )


def test_there_is_no_model(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(ModelFolderError, match="holds no model"):
        Embedder.from_pretrained(tmp_path)
    with pytest.raises(ModelFolderError, match="is a file: name the folder"):
        Embedder.from_pretrained(tmp_path / "notes.txt")
    with pytest.raises(ModelFolderError, match=r"(?i)no folder '.*/mistyped'"):
        Embedder.from_pretrained(tmp_path / "mistyped")


def test_code_of_a_model_runs_when_it_is_allowed_alone(monkeypatch, folder):
    marks = folder.parent / "it-ran"
    (folder / "evil.py").write_text(
        f"open({str(marks)!r}, 'w')\nfrom transformers import PreTrainedConfig\n"
        "class EvilConfig(PreTrainedConfig):\n    model_type = 'evil'\n"
    )
    change_json(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.EvilConfig"})
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("nobody is asked on the terminal"))
    for load in (Embedder.from_pretrained, load_config, CrossEncoder.from_pretrained):
        with pytest.raises(ModelFolderError, match="--trust-remote-code"):
            load(folder)
    assert not marks.exists()
    assert load_config(folder, trust_remote_code=True).model_type == "evil"
    assert marks.exists()


def test_a_kernel_from_the_hub_is_code(clip_folder):
    for name in ("paged|evil/kernel", {"text_config": "evil/kernel"}):
        with pytest.raises(ModelFolderError, match="attn_implementation"):
            load_model(AutoModel, clip_folder, attn_implementation=name)


def spoiled(weights):
    return {name: value * torch.nan if ".mla_acquirers." in name else value for name, value in weights.items()}


def renamed(weights):
    return {name.replace(".layers.0.", ".layers.7."): value for name, value in weights.items()}


ADAPTER_FAULTS = {
    "does not fit .*missing .*layers.0": lambda f: change_weights(f, renamed, ADAPTER),
    "NaN or infinite": lambda f: change_weights(f, spoiled, ADAPTER),
    "truncated or damaged": lambda f: truncate(f / ADAPTER),
}


@pytest.mark.parametrize("message", ADAPTER_FAULTS)
def test_a_damaged_adapter_is_one_sentence(message, clip_folder, tmp_path):
    tokenizer = tiny_bert()[1]
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 12, "sep_token_id": tokenizer.sep_token_id}
    model = MlaModel.from_native(AutoModel.from_pretrained(clip_folder), languages=["de"], acquirer_size=4, **sizes)
    save_adapter(model, "de", adapter := tmp_path / "adapter", base_model=str(clip_folder))
    tokenizer.save_pretrained(adapter)
    assert Embedder.from_pretrained(adapter).model.config.languages == ["de"]
    ADAPTER_FAULTS[message](adapter)
    with pytest.raises(BabelensError, match=message) as caught:
        Embedder.from_pretrained(adapter)
    assert "\n" not in str(caught.value)


def test_a_misspelled_folder_is_asked_for_once(monkeypatch):
    """Downloads ask six times for each of several files, which takes more than a minute without network."""
    asked = []

    def nobody(url, **options):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("babelens.utils.pretrained.get_hf_file_metadata", nobody)
    with pytest.raises(BabelensError, match="'runs/nowhere'"):
        Embedder.from_pretrained("runs/nowhere")
    assert len(asked) == 1
