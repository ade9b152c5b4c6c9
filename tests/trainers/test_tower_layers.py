"""The layers of towers of many kinds, their depths, and what LoRA adapts in them."""

import pytest
from transformers import (
    AlbertConfig,
    BertConfig,
    CLIPTextConfig,
    CLIPVisionConfig,
    ConvNextV2Config,
    DebertaV2Config,
    Dinov2Config,
    DistilBertConfig,
    EfficientNetConfig,
    ElectraConfig,
    MobileNetV2Config,
    MPNetConfig,
    PvtConfig,
    ResNetConfig,
    Siglip2TextConfig,
    SiglipVisionConfig,
    SwinConfig,
    T5Config,
    ViTConfig,
    XLMConfig,
    XLMRobertaConfig,
)

from babelens.modeling.towers import build_tower
from babelens.trainers.tower_training import layer_depths, tower_layers

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = SIZES | {"vocab_size": 50}
IMAGE = SIZES | {"image_size": 16, "patch_size": 8}
XLM = {"emb_dim": 16, "n_layers": 3, "n_heads": 2}
STAGES = {"depths": [1, 1, 2], "hidden_sizes": [8, 8, 16]}
# Configuration -> number of layers, and depths of some weights.
TOWERS = [
    (
        BertConfig(**TEXT),
        3,
        {"embeddings.word_embeddings": 3, "embeddings.LayerNorm": 3, "encoder.layer.0.": 2, "encoder.layer.2.": 0},
    ),
    (XLMRobertaConfig(**TEXT), 3, {"embeddings.": 3, "encoder.layer.1.": 1}),
    (
        DistilBertConfig(dim=16, n_layers=3, n_heads=2, hidden_dim=32, vocab_size=50),
        3,
        {"embeddings.": 3, "transformer.layer.0.": 2},
    ),
    (
        T5Config(d_model=16, d_ff=32, num_layers=3, num_heads=2, d_kv=8, vocab_size=50),
        3,
        {"shared": 3, "encoder.block.0.": 2, "encoder.final_layer_norm": 0},
    ),
    (XLMConfig(**XLM, n_words=50), 3, {"embeddings.": 3, "attentions.0.": 2, "ffns.1.": 1, "layer_norm2.2.": 0}),
    (ElectraConfig(**TEXT, embedding_size=8), 3, {"embeddings_project": 3, "encoder.layer.2.": 0}),
    (AlbertConfig(**TEXT, embedding_size=8), 1, {"embeddings.": 1, "encoder.embedding_hidden_mapping_in": 1}),
    (MPNetConfig(**TEXT), 3, {"encoder.relative_attention_bias": 3, "encoder.layer.2.": 0}),
    (DebertaV2Config(**TEXT, relative_attention=True), 3, {"encoder.rel_embeddings": 3, "encoder.layer.0.": 2}),
    (CLIPTextConfig(**TEXT), 3, {"embeddings.": 3, "encoder.layers.0.": 2, "final_layer_norm": 0}),
    (Siglip2TextConfig(**TEXT), 3, {"embeddings.": 3, "final_layer_norm": 0, "head": 0}),
    (ViTConfig(**IMAGE), 3, {"embeddings.cls_token": 3, "layers.1.": 1, "layernorm": 0, "pooler": 0}),
    (CLIPVisionConfig(**IMAGE), 3, {"pre_layrnorm": 3, "encoder.layers.2.": 0, "post_layernorm": 0}),
    (SiglipVisionConfig(**IMAGE), 3, {"embeddings.": 3, "head.attention.out_proj": 0, "head.probe": 0}),
    (Dinov2Config(**IMAGE), 3, {"embeddings.mask_token": 3, "encoder.layer.0.": 2, "layernorm": 0}),
    (
        SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1, 2], num_heads=[1, 2], window_size=2),
        2,
        {"embeddings.": 2, "encoder.layers.0.": 1, "encoder.layers.1.": 0, "layernorm": 0},
    ),
    (ConvNextV2Config(**STAGES, num_stages=3), 3, {"embeddings.": 3, "encoder.stages.0.": 2}),
    (
        EfficientNetConfig(width_coefficient=0.2, depth_coefficient=0.2, image_size=32),
        7,
        {"embeddings.": 7, "encoder.blocks.0.": 6, "encoder.blocks.6.": 0, "encoder.top_conv": 0, "encoder.top_bn": 0},
    ),
    (ResNetConfig(**STAGES, embedding_size=8), 3, {"embedder.": 3, "encoder.stages.2.": 0}),
    (ResNetConfig(**STAGES, embedding_size=8, layer_type="basic"), 3, {"embedder.": 3, "encoder.stages.1.": 1}),
    (
        MobileNetV2Config(depth_multiplier=0.2),
        16,
        {"conv_stem": 16, "layer.15.": 0, "conv_1x1": 0},
    ),
    (
        PvtConfig(
            num_encoder_blocks=2,
            depths=[1, 1],
            hidden_sizes=[8, 16],
            num_attention_heads=[1, 2],
            sequence_reduction_ratios=[2, 1],
            mlp_ratios=[2, 2],
            patch_sizes=[4, 2],
            strides=[4, 2],
            image_size=16,
        ),
        2,
        {"encoder.patch_embeddings.0.": 1, "encoder.block.1.": 0, "encoder.layer_norm": 0},
    ),
]


@pytest.mark.parametrize(("config", "count", "depths"), TOWERS, ids=lambda part: getattr(part, "model_type", ""))
def test_layers_of_a_tower(config, count, depths):
    tower = build_tower(config)
    layers = tower_layers(tower)
    assert len(layers) == count
    found = layer_depths(tower)
    assert found.keys() == dict(tower.named_parameters()).keys()
    for beginning, depth in depths.items():
        assert {found[name] for name in found if name.startswith(beginning)} == {depth}, beginning
    assert set(range(count)) <= set(found.values()) <= set(range(count + 1))
