"""Loading keeps frozen weights, draws missing ones as when made, and reads earlier versions' files."""

import pytest
import torch

from babelens import SmalrConfig
from babelens.modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from babelens.modeling.modeling_smalr import SmalrLatentModel
from tests.contracts import TEXTS, LoadingContract, image_text_batch, split

TINY_SMALR = {"languages": ["en", "de"], "vocabulary_sizes": [9, 7], "word_size": 5, "hidden_size": 16}
TINY_SMALR |= {"specific_words": 2, "latent_tokens": 6, "image_feature_size": 7, "image_hidden_size": 16}


@pytest.fixture(scope="session")
def make_latent_smalr(make_smalr):
    return lambda: (SmalrLatentModel(SmalrConfig(**TINY_SMALR)), None)


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


class TestRc3PreTraining(LoadingContract):
    factory = "make_rc3"
    options = {"model_class": Rc3ForPreTraining}


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
