"""What loading a model may not change: what is frozen, how missing weights are drawn, what earlier versions saved."""

import copy

import pytest
import torch
from transformers import AutoModel, Trainer, TrainingArguments

from babelens import (
    CrossLingualConsistency,
    CrossLingualConsistencyConfig,
    SmalrConfig,
)
from babelens.modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from babelens.modeling.modeling_smalr_latent import SmalrLatentModel
from tests.contracts import TEXTS, LoadingContract, assert_equal, image_text_batch, split

TINY_SMALR = {"languages": ["en", "de"], "vocabulary_sizes": [9, 7], "word_size": 5, "hidden_size": 16}
TINY_SMALR |= {"specific_words": 2, "latent_tokens": 6, "image_feature_size": 7, "image_hidden_size": 16}


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


class TestLatentSmalr(LoadingContract):
    factory = "make_latent_smalr"


class TestConsistency(LoadingContract):
    factory = "make_consistency"


class TestRc3PreTraining(LoadingContract):
    factory = "make_rc3"
    options = {"model_class": Rc3ForPreTraining}


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
