"""What the dual encoders share: towers of any kind, pooling, normalising."""

import pytest
import torch
from transformers import AutoConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

from babelens.configuration.configuration_two_tower import image_width
from babelens.modeling.modeling_dual_encoder import build_tower, normalize, pool_image

TRANSFORMER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
PATCHES = TRANSFORMER | {"image_size": 32, "patch_size": 8}
VISION = {
    "convnext": {"hidden_sizes": [8, 24], "depths": [1, 1], "num_stages": 2},
    "efficientnet": {"width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 128},
    "resnet": {"hidden_sizes": [8, 24], "depths": [1, 1], "embedding_size": 8},
    "siglip_vision_model": PATCHES,
    "swin": {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4},
}
WIDTHS = {"efficientnet": 128, "convnext": 24, "resnet": 24}


@pytest.mark.parametrize("model_type", VISION)
def test_a_vision_towers_width_is_of_its_pooled_features(model_type):
    config = AutoConfig.for_model(model_type, **VISION[model_type])
    tower = build_tower(config).eval()
    with torch.no_grad():
        pooled = pool_image(tower(pixel_values=torch.randn(2, 3, 32, 32)))
    assert pooled.shape == (2, image_width(config)) == (2, WIDTHS.get(model_type, 16))


def test_pooling_is_the_towers_own_or_the_mean_over_places():
    generator = torch.Generator().manual_seed(0)
    maps, patches = torch.randn(2, 5, 3, 4, generator=generator), torch.randn(2, 7, 5, generator=generator)
    own = torch.randn(2, 5, 1, 1, generator=generator)
    assert torch.equal(pool_image(BaseModelOutputWithPooling(maps, own)), own[:, :, 0, 0])
    torch.testing.assert_close(pool_image(BaseModelOutputWithPooling(maps)), maps.flatten(2).mean(2))
    torch.testing.assert_close(pool_image(BaseModelOutputWithPooling(patches)), patches.mean(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_get_length_one_in_every_precision(dtype):
    features = torch.tensor([[3.0, 4.0], [300.0, -400.0], [-3e-3, 4e-3]], dtype=dtype)
    expected = torch.tensor([[0.6, 0.8], [0.6, -0.8], [-0.6, 0.8]], dtype=dtype)
    found = normalize(features)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=1.6e-2 if dtype == torch.bfloat16 else 1e-3, atol=0)


def test_rows_of_hardly_anything_do_not_explode():
    """The features of an untrained tower in eval mode may be so small that their squares are 0."""
    features = torch.tensor([[0.0, 0.0], [1e-30, 1e-30]], requires_grad=True)
    found = normalize(features)
    assert not found[0].any() and (found[1].abs() <= 1).all()
    found.sum().backward()
    assert features.grad.isfinite().all()
