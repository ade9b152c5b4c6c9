"""The identity of models and data: any change of what an answer depends on changes it, and nothing else does."""

import copy
import hashlib
import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from babelens.inference.embedder import Embedder
from babelens.modeling.modeling_mla import MlaModel
from babelens.modeling.peft_mla.conversion import save_adapter
from babelens.modeling.peft_mla.embedding import embedding_digest
from babelens.utils.identity import (
    code_of,
    contents_digest,
    folder_identity,
    image_identity,
    index_identity,
    is_same_model,
    model_identity,
    remote_state,
)


def weights(dtype):
    return {
        "table.weight": torch.arange(6, dtype=dtype).reshape(3, 2).T,  # not contiguous
        "projection.weight": torch.ones(2, 2, dtype=dtype) / 4,
        "projection.bias": torch.tensor([1.5, -2.0], dtype=dtype),
        "scale": torch.tensor(0.5, dtype=dtype),
    }


def plain_bytes(value):
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_digests_are_those_of_version_0_1(dtype):
    """Adapters name the digest of their embedding, and indexes that of their model's weights."""
    given = weights(dtype)
    expected = hashlib.sha256()
    for name in ("table.weight", "projection.weight", "projection.bias"):
        expected.update(plain_bytes(given[name].float()))
    assert embedding_digest(given) == expected.hexdigest()

    expected = hashlib.sha256(b"settings")
    for name in sorted(given):
        expected.update(f"{name} {given[name].dtype} {tuple(given[name].shape)}".encode() + plain_bytes(given[name]))
    expected.update((3).to_bytes(8, "big") + b"one")
    assert contents_digest(given, "settings", [b"one"]) == expected.hexdigest()

    model = nn.Module()
    for name, value in given.items():
        model.register_buffer(name.replace(".", "_"), value)
    expected = hashlib.blake2b(b"", digest_size=12)
    for name, value in model.state_dict().items():
        expected.update(f"{name} {value.dtype}".encode() + plain_bytes(value))
    assert model_identity(model).split("-")[0] == expected.hexdigest()


def identity_of(folder):
    embedder = Embedder.from_pretrained(folder)
    return model_identity(embedder.model, embedder.processor)


@pytest.fixture(params=["mural", "clip"])
def folder(request, tmp_path):
    """A model's folder that a test may change."""
    place = tmp_path / "model"
    if request.param == "clip":
        shutil.copytree(request.getfixturevalue("clip_folder"), place)
    else:
        for part in request.getfixturevalue("make_mural")():
            part.save_pretrained(place)
    return place


# A change for each kind of value, with which the model still loads.
def changed(value):
    return {bool: lambda: not value, float: lambda: value * 2 + 0.5, str: lambda: f"{value} "}[type(value)]()


CONFIG_KEYS = {
    "num_attention_heads": 1,
    "layer_norm_eps": 0.3,
    "hidden_act": "relu",
    "text_pooling": "mean",
    "image_pooling": "mean",
}


def leaves(settings, where=()):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from leaves(value, (*where, key))
        else:
            yield (*where, key), value


def rewritten(file, where, value):
    content = json.loads(file.read_text("utf-8"))
    part = content
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    file.write_text(json.dumps(content), encoding="utf-8")


def test_each_key_of_each_tower_counts(folder):
    """With equal weights, another number of heads gives other embeddings."""
    before, on_disk = identity_of(folder), folder_identity(folder)
    config = folder / "config.json"
    original = config.read_bytes()
    tried = set()
    for where, value in leaves(json.loads(original)):
        if where[-1] not in CONFIG_KEYS or value == CONFIG_KEYS[where[-1]]:
            continue
        rewritten(config, where, CONFIG_KEYS[where[-1]])
        after = identity_of(folder)
        assert after.split("-")[0] == before.split("-")[0], where  # which earlier versions compared alone
        assert after != before and not is_same_model(before, after, "the index"), where
        assert folder_identity(folder) != on_disk, where
        config.write_bytes(original)
        tried.add(where[-1])
    assert tried >= {"num_attention_heads", "layer_norm_eps", "hidden_act"}
    assert identity_of(folder) == before and folder_identity(folder) == on_disk


def test_each_setting_of_the_processor_counts(folder):
    before, on_disk = identity_of(folder), folder_identity(folder)
    file = folder / "processor_config.json"
    original = file.read_bytes()
    for where, value in leaves(json.loads(original)["image_processor"], ("image_processor",)):
        if type(value) not in (bool, float):
            continue
        rewritten(file, where, changed(value))
        assert identity_of(folder) != before, where
        assert folder_identity(folder) != on_disk, where
        file.write_bytes(original)
    assert identity_of(folder) == before


def test_each_file_of_the_model_counts(folder):
    before = folder_identity(folder)
    for file in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt")):
        others = ("config_sentence_transformers.json", "modules.json", "requirements.txt", "sentence_bert_config.json")
        if file.name in others:
            continue  # of sentence-transformers and endpoints
        original = file.read_bytes()
        if file.suffix == ".json":
            file.write_text(json.dumps(json.loads(original) | {"unheard_of": 1}), encoding="utf-8")
        else:
            file.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        assert folder_identity(folder) != before, file.name
        file.write_bytes(original)
    assert folder_identity(folder) == before


def test_the_tokenizer_counts_and_how_it_was_called_does_not(folder):
    embedder = Embedder.from_pretrained(folder)
    before = model_identity(embedder.model, embedder.processor)
    embedder.encode_text(["a", "a dog and a cat"], language="en")
    assert model_identity(embedder.model, embedder.processor) == before
    embedder.processor.tokenizer.add_tokens(["unheard-of"])
    assert model_identity(embedder.model, embedder.processor) != before


def test_a_models_place_and_card_do_not_count(folder, tmp_path):
    before, on_disk = identity_of(folder), folder_identity(folder)
    moved = folder.rename(tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    told = {"_name_or_path": "elsewhere", "transformers_version": "5.0.0", "architectures": ["Other"]}
    (moved / "config.json").write_text(json.dumps(config | told, indent=7))
    for other in ("README.md", "evaluation/emoji.json", "checkpoints/checkpoint-1/model.safetensors", "onnx/x.json"):
        (moved / other).parent.mkdir(parents=True, exist_ok=True)
        (moved / other).write_text("{}")
    assert identity_of(moved) == before
    assert folder_identity(moved) == on_disk
    assert folder_identity(tmp_path) is None


def test_weights_and_adapters_count(make_mla):
    model, processor = make_mla()
    before = model_identity(model, processor)
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] += 1
    assert model_identity(model, processor) != before
    assert model_identity(make_mla()[0], processor, "other settings") != before
    assert model_identity(make_mla()[0], processor) == before


# ---- Images ----


def image_identity_of(folder):
    embedder = Embedder.from_pretrained(folder)
    return image_identity(embedder.model, embedder.processor)


def test_each_weight_and_key_of_images_counts_for_images_and_none_of_texts(folder):
    """Of weights, one number of each; of configurations, each key with which the model still loads."""
    embedder = Embedder.from_pretrained(folder)
    before = image_identity(embedder.model, embedder.processor)
    for name, value in embedder.model.state_dict().items():
        number = value.view(-1)[0].clone()
        value.view(-1)[0] = number + 1
        is_same = image_identity(embedder.model, embedder.processor) == before
        assert is_same is not name.startswith(("vision_model", "visual_projection", "image_projection")), name
        value.view(-1)[0] = number
    for file, part, is_of_images in (
        ("config.json", "vision_config", True),
        ("config.json", "text_config", False),
        ("processor_config.json", "image_processor", True),
    ):
        original, tried = (folder / file).read_bytes(), 0
        for where, value in leaves(json.loads(original)[part], (part,)):
            known = CONFIG_KEYS.get(where[-1]) if file == "config.json" else None
            if file == "config.json" and (known is None or known == value):
                continue
            if file != "config.json" and type(value) not in (bool, float):
                continue
            rewritten(folder / file, where, changed(value) if known is None else known)
            assert (image_identity_of(folder) != before) is is_of_images, where
            tried += 1
            (folder / file).write_bytes(original)
        assert tried, part
    embedder.processor.tokenizer.add_tokens(["unheard-of"])
    assert image_identity(embedder.model, embedder.processor) == before


@pytest.mark.parametrize("make", ["make_mla", "make_mla_student", "make_ridge"])
def test_images_stay_when_languages_are_added(make, make_mla, request, tmp_path):
    """The image tower of a model that acquired languages is that of its base, to the bit, and so is its identity."""
    base, base_processor = make_mla()[0].unload(), make_mla()[1]
    model, processor = request.getfixturevalue(make)()
    for part in (model, processor):
        part.save_pretrained(tmp_path / "model")
    loaded = Embedder.from_pretrained(tmp_path / "model")
    before = image_identity(base, base_processor)
    assert image_identity(loaded.model, loaded.processor) == before != model_identity(base, base_processor)
    assert index_identity(base, base_processor) == f"{model_identity(base, base_processor)}-{before}"
    images = [torch.randint(0, 256, (30, 40, 3), dtype=torch.uint8).numpy() for _ in range(3)]
    of_base = Embedder(base, base_processor).encode_image(images)
    assert (loaded.encode_image(images) == of_base).all()
    with torch.no_grad():
        next(model.native_model.vision_model.parameters()).view(-1)[0] += 1
    assert image_identity(model, processor) != before


def test_images_stay_with_an_adapter(clip_folder, make_mla, tmp_path):
    """Which is a folder of its own beside the base; a LoRA of the image tower is another matter."""
    base = Embedder.from_pretrained(clip_folder)
    model = MlaModel.from_native(base.model, languages=["de"], vocab_size=make_mla()[0].config.vocab_size)
    save_adapter(model, "de", tmp_path / "adapter", base_model=str(clip_folder))
    make_mla()[1].multilingual_tokenizer.save_pretrained(tmp_path / "adapter")
    before, adapted = image_identity(base.model, base.processor), Embedder.from_pretrained(tmp_path / "adapter")
    assert type(adapted.model) is MlaModel
    assert image_identity(adapted.model, adapted.processor) == before
    lora = get_peft_model(base.model, LoraConfig(target_modules=r".*vision_model.*q_proj", init_lora_weights=False))
    lora.save_pretrained(str(tmp_path / "lora"))
    assert image_identity_of(tmp_path / "lora") != before


def test_a_glossary_that_is_corrected_leaves_the_images(make_ridge, tmp_path):
    for part in make_ridge(glossaries=True):
        part.save_pretrained(tmp_path)
    before, of_all = image_identity_of(tmp_path), identity_of(tmp_path)
    glossary = tmp_path / "glossary.tsv"
    glossary.write_text(glossary.read_text("utf-8").replace("dog", "hound"), "utf-8")
    assert image_identity_of(tmp_path) == before and identity_of(tmp_path) != of_all


def test_images_of_unknown_code_depend_on_the_whole_model(clip_parts):
    model, processor = clip_parts
    tower = type("Tower", (type(model.vision_model),), {})._from_config(model.vision_model.config)  # of this file
    whole = copy.deepcopy(model)
    whole.vision_model = tower
    assert image_identity(whole, processor) == index_identity(whole, processor) == model_identity(whole, processor)


def test_images_of_one_tower_depend_on_the_whole_model(make_smalr):
    model, processor = make_smalr()
    assert image_identity(model, processor) == model_identity(model, processor)


@pytest.mark.parametrize("make", ["make_smalr", "make_liwe"])
def test_words_count(make, request):
    model, processor = request.getfixturevalue(make)()
    before = model_identity(model, processor)
    processor.max_text_length += 1
    assert model_identity(model, processor) != before


def test_the_version_of_the_code_counts(make_mural, monkeypatch):
    model, processor = make_mural()
    before, code = model_identity(model, processor), code_of(model)
    monkeypatch.setattr("babelens.__version__", "99.0")
    assert code_of(model) != code
    assert model_identity(model, processor).split("-")[:2] == before.split("-")[:2]
    assert is_same_model(before, model_identity(model, processor), "the index")  # with a warning


@pytest.mark.parametrize(
    ("stored", "found", "same", "warned"),
    [
        ("w-s-c", "w-s-c", True, False),
        ("w-s-c", "w-s-d", True, True),
        ("w", "w-s-c", True, True),
        ("w-s-c", "w", True, True),
        ("w-s-c", "w-t-c", False, False),
        ("w-s-c", "v-s-c", False, False),
        ("w", "v-s-c", False, False),
        ("v", "w", False, False),
        ("w-s-c-i-j-k", "v-t-d-i-j-k", True, False),  # of images, by another model with the same image tower
        ("w-s-c-i-j-k", "v-t-d-i-j-l", True, True),
        ("w-s-c-i-j-k", "w-s-c-h-j-k", False, False),
        ("w-s-c-i-j-k", "v-t-d-i-h-k", False, False),
        ("w-s-c", "w-s-c-i-j-k", True, False),
        ("w-s-c", "v-s-c-i-j-k", False, False),
        ("w", "w-s-c-i-j-k", True, True),
    ],
)
def test_identities_of_earlier_versions_pass_with_a_warning(stored, found, same, warned, caplog):
    assert is_same_model(stored, found, "the index") is same
    assert bool(caplog.records) is warned


def test_the_state_of_a_file_elsewhere_is_what_its_store_tells():
    import fsspec

    store = fsspec.filesystem("memory")
    address = "memory://identity/train-0.tar"
    assert remote_state(address) == ""
    store.pipe(address, b"first")
    before = remote_state(address)
    assert "5 bytes" in before and remote_state(address) == before
    store.pipe(address, b"other")
    assert remote_state(address) != before
    assert remote_state("nothing-knows-this://x") == ""
