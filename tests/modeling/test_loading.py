"""What loading a model may not change: what is frozen, how missing weights are drawn, what earlier versions saved."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, Trainer, TrainingArguments

from babelens import (
    CrossLingualConsistency,
    CrossLingualConsistencyConfig,
    SmalrConfig,
)
from babelens.modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from babelens.modeling.modeling_rc3_tasks import Rc3ForConditionalGeneration
from babelens.modeling.modeling_smalr_latent import SmalrLatentModel
from tests.contracts import TEXTS, LoadingContract, assert_equal, image_text_batch, split

# ---- Models that are not published by themselves, or in another form ----


TINY_SMALR = {"languages": ["en", "de"], "vocabulary_sizes": [9, 7], "word_size": 5, "hidden_size": 16}
TINY_SMALR |= {"specific_words": 2, "latent_tokens": 6, "image_feature_size": 7, "image_hidden_size": 16}


@pytest.fixture(scope="session")
def make_compressed_smalr(make_smalr):
    def make():
        model, processor = make_smalr()
        return model.compress(), processor

    return make


@pytest.fixture(scope="session")
def make_latent_smalr(make_smalr):
    return lambda: (SmalrLatentModel(SmalrConfig(**TINY_SMALR)), None)


@pytest.fixture(scope="session")
def make_consistency():
    def make(**options):
        return CrossLingualConsistency(CrossLingualConsistencyConfig(languages=["en", "de", "ja"], **options)), None

    return make


class TestMuralOnTransformers(LoadingContract):
    """An image tower with attention, whose weights its own class draws."""

    factory = "make_mural"
    options = {
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        }
    }


class TestCompressedSmalr(LoadingContract):
    factory = "make_compressed_smalr"


class TestLatentSmalr(LoadingContract):
    factory = "make_latent_smalr"


class TestConsistency(LoadingContract):
    factory = "make_consistency"


class TestRc3PreTraining(LoadingContract):
    factory = "make_rc3"
    options = {"model_class": Rc3ForPreTraining}


# ---- What is frozen ----


def train_briefly(model, inputs, folder):
    arguments = TrainingArguments(
        folder,
        max_steps=2,
        per_device_train_batch_size=1,
        learning_rate=1e-2,
        weight_decay=0.1,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
    )
    data = [inputs | {"return_loss": True}] * 2
    Trainer(model, arguments, train_dataset=data, data_collator=lambda examples: dict(examples[0])).train()


LEARNERS = [
    ("make_mla_on_mural", {}, ("native_model.",), ".mla_"),
    ("make_mla_student", {"strategy": "acquisition"}, ("native_model.", "text_model."), ".mla_acquirers."),
]


@pytest.mark.parametrize(("factory", "options", "frozen", "learning"), LEARNERS)
def test_training_a_loaded_model_leaves_the_native_one_as_it_is(request, tmp_path, factory, options, frozen, learning):
    model, processor = request.getfixturevalue(factory)(**options)
    model.requires_grad_(True)
    model.save_pretrained(tmp_path / "model")
    loaded, _ = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    before = copy.deepcopy(loaded.state_dict())
    train_briefly(loaded, image_text_batch(processor), tmp_path / "run")
    after = loaded.state_dict()
    kept = [name for name in after if name.startswith(frozen) and ".mla_" not in name]
    assert any("running_mean" in name for name in kept) == (factory == "make_mla_on_mural")  # batch norm
    assert_equal({name: after[name] for name in kept}, {name: before[name] for name in kept})
    assert all(not torch.equal(after[name], before[name]) for name in after if learning in name and "up." in name)
    assert any(not torch.equal(after[name], before[name]) for name in after if learning in name)


WITHOUT_PACKAGE = """
import sys, torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, Trainer, TrainingArguments

folder, inputs, run, result = sys.argv[1:]
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules.")
arguments = TrainingArguments(run, max_steps=2, per_device_train_batch_size=1, learning_rate=1e-2, save_strategy="no",
    remove_unused_columns=False, report_to="none", disable_tqdm=True, use_cpu=True)
data = [load_file(inputs) | {"return_loss": True}] * 2
Trainer(model, arguments, train_dataset=data, data_collator=lambda examples: dict(examples[0])).train()
save_file({name: value.contiguous() for name, value in model.state_dict().items()}, result)
"""


def test_nor_does_it_without_the_package(make_mla, tmp_path, run_without_babelens):
    model, processor = make_mla()
    model.save_pretrained(tmp_path / "model")
    save_file({k: v.contiguous() for k, v in image_text_batch(processor).items()}, tmp_path / "inputs")
    run_without_babelens(
        WITHOUT_PACKAGE, tmp_path / "model", tmp_path / "inputs", tmp_path / "run", tmp_path / "result"
    )
    before, after = model.state_dict(), load_file(tmp_path / "result")
    kept = [name for name in after if name.startswith("native_model.") and ".mla_" not in name]
    assert_equal({name: after[name] for name in kept}, {name: before[name] for name in kept})
    assert any(not torch.equal(after[name], before[name]) for name in after if ".mla_" in name)


# ---- Names of earlier versions ----


def as_earlier_versions_saved(folder):
    """The weights of a folder under the names that they had, and whether there are any of those."""
    path = folder / "model.safetensors"
    weights = {name: value.clone() for name, value in load_file(path).items()}
    renamed = {
        name.replace("similarity.temperature", "temperature")
        .replace("word_table.weight", "word_table")
        .replace("word_bias.final_logits_bias", "final_logits_bias"): value
        for name, value in weights.items()
    }
    save_file(renamed, path, metadata={"format": "pt"})
    return weights, renamed


@pytest.mark.parametrize("factory", ["make_mla_on_mural", "make_compressed_smalr", "make_writer"])
def test_weights_are_found_under_the_names_of_earlier_versions(request, tmp_path, factory):
    model, _ = request.getfixturevalue(factory)()
    if hasattr(model, "temperature"):
        with torch.no_grad():
            model.temperature.fill_(0.0625)
    model.save_pretrained(tmp_path)
    weights, old = as_earlier_versions_saved(tmp_path)
    assert old.keys() != weights.keys()
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert_equal(dict(loaded.state_dict()), dict(model.state_dict()))
    loaded.save_pretrained(tmp_path / "again")
    assert_equal(load_file(tmp_path / "again/model.safetensors"), weights)


@pytest.fixture(scope="session")
def make_writer(make_rc3):
    return lambda: make_rc3(Rc3ForConditionalGeneration)


OLD_NAMES_WITHOUT_PACKAGE = """
import sys, json
from safetensors.torch import save_file
from transformers import AutoModel
folder, again, result = sys.argv[1:]
model, info = AutoModel.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
assert not any(info.values()), info
model.save_pretrained(again)
print(json.dumps(model.temperature.item()))
"""


def test_so_they_are_without_the_package(make_mural, run_without_babelens, tmp_path):
    model, _ = make_mural()
    with torch.no_grad():
        model.temperature.fill_(0.0625)
    model.save_pretrained(tmp_path / "model")
    weights, _ = as_earlier_versions_saved(tmp_path / "model")
    found = run_without_babelens(
        OLD_NAMES_WITHOUT_PACKAGE, tmp_path / "model", tmp_path / "again", tmp_path / "result"
    )
    assert json.loads(found) == 0.0625
    assert_equal(load_file(tmp_path / "again/model.safetensors"), weights)


# ---- Numbers of another precision ----


@pytest.mark.parametrize("factory", ["make_mural", "make_mla_student", "make_smalr"])
def test_images_may_have_another_precision_than_the_model(request, factory):
    model, processor = request.getfixturevalue(factory)()
    _, images = split(image_text_batch(processor))
    pixels = images["pixel_values"]
    model = model.eval().to(torch.bfloat16)
    with torch.no_grad():
        expected = model.get_image_features(pixel_values=pixels.bfloat16()).pooler_output
        for dtype in (torch.float32, torch.float64):
            found = model.get_image_features(pixel_values=pixels.to(dtype)).pooler_output
            assert found.dtype == torch.bfloat16 and found.shape[0] == len(TEXTS)
            assert torch.equal(found, expected)


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # in the file of BitNet's layers
def test_a_quantised_model_is_saved_and_loaded_again(make_mural, tmp_path):
    """By the one method of transformers that needs no other package: of BitNet, with all layers left out."""
    model, processor = make_mural()
    left_out = [name for name, _ in model.named_children()]
    model.config.quantization_config = {"quant_method": "bitnet", "modules_to_not_convert": left_out}
    model.save_pretrained(tmp_path / "first")
    batch, expected = image_text_batch(processor), None
    for folder, next_folder in (("first", "second"), ("second", "third")):
        loaded, info = AutoModel.from_pretrained(tmp_path / folder, output_loading_info=True)
        assert loaded.hf_quantizer is not None and loaded.config.quantization_config.quant_method == "bitnet"
        assert not any(info.values()), info
        with torch.no_grad():
            found = loaded(**batch).logits_per_image
        expected = found if expected is None else expected
        assert torch.equal(found, expected)
        loaded.save_pretrained(tmp_path / next_folder)
