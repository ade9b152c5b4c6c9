import pytest
import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, VisionTextDualEncoderModel

from babelens import MlaModel
from babelens.configuration.configuration_mla import ClipResNetConfig
from babelens.modeling.clip_resnet import ClipResNetModel
from babelens.modeling.convert_mla import clip_from_openai
from tests.support.openai_checkpoints import text_tower

TINY = {"width": 8, "depths": [1, 2, 1, 1], "hidden_size": 12, "num_attention_heads": 4, "image_size": 64}
TEXT_WIDTH, VOCABULARY = 16, 20


@pytest.fixture(scope="module")
def tower():
    model = ClipResNetModel(ClipResNetConfig(**TINY))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=generator) - (0.0 if "running_var" in name else 0.5))
    return model.eval()


def features(weights, x, heads):
    """The layers one by one, from a state dict (Radford et al. 2021, section 2.4)."""

    def norm(x, name):
        values = (weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *values)

    for k, stride in ((1, 2), (2, 1), (3, 1)):
        x = norm(F.conv2d(x, weights[f"conv{k}.weight"], stride=stride, padding=1), f"bn{k}").relu()
    x = F.avg_pool2d(x, 2)
    for stage, depth in enumerate(TINY["depths"], 1):
        for block in range(depth):
            name, pool = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = norm(F.conv2d(x, weights[f"{name}.conv1.weight"]), f"{name}.bn1").relu()
            y = norm(F.conv2d(y, weights[f"{name}.conv2.weight"], padding=1), f"{name}.bn2").relu()
            y = norm(F.conv2d(F.avg_pool2d(y, pool), weights[f"{name}.conv3.weight"]), f"{name}.bn3")
            if block == 0:
                x = norm(
                    F.conv2d(F.avg_pool2d(x, pool), weights[f"{name}.downsample.0.weight"]), f"{name}.downsample.1"
                )
            x = (x + y).relu()
    rows = x.flatten(2).permute(2, 0, 1)  # [H * W, N, C]
    rows = torch.cat([rows.mean(0, keepdim=True), rows]) + weights["attnpool.positional_embedding"][:, None]
    names = ("q_proj", "k_proj", "v_proj")
    pooled, _ = F.multi_head_attention_forward(
        rows[:1],
        rows,
        rows,
        rows.shape[-1],
        heads,
        None,
        torch.cat([weights[f"attnpool.{name}.bias"] for name in names]),
        None,
        None,
        False,
        0.0,
        weights["attnpool.c_proj.weight"],
        weights["attnpool.c_proj.bias"],
        training=False,
        need_weights=False,
        use_separate_proj_weight=True,
        **{f"{name}_weight": weights[f"attnpool.{name}.weight"] for name in names},
    )
    return x, pooled[0]


def test_the_tower_computes_what_the_paper_describes(tower):
    images = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        output = tower(images, output_hidden_states=True)
        maps, pooled = features(tower.state_dict(), images, TINY["num_attention_heads"])
    torch.testing.assert_close(output.last_hidden_state, maps, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(output.pooler_output, pooled, rtol=1e-4, atol=1e-4)
    assert output.pooler_output.std(0).min() > 1e-3
    assert [state.shape[1] for state in output.hidden_states] == [8, 32, 64, 128, 256]


def test_a_clip_is_converted_and_acquires_languages(tower, tmp_path, run_without_babelens):
    checkpoint = {
        **{f"visual.{name}": value for name, value in tower.state_dict().items()},
        **text_tower(TEXT_WIDTH, TINY["hidden_size"], VOCABULARY, 9, blocks=2),
        "input_resolution": torch.tensor(64),  # as in OpenAI's archives
        "context_length": torch.tensor(9),
        "vocab_size": torch.tensor(VOCABULARY),
    }
    clip = clip_from_openai(checkpoint, text_heads=4, vision_heads=4)
    assert isinstance(clip, VisionTextDualEncoderModel)
    images, ids = torch.randn(2, 3, 64, 64), torch.tensor([[1, 5, 6, VOCABULARY - 1], [1, 7, VOCABULARY - 1, 0]])
    with torch.no_grad():
        assert torch.equal(clip.get_image_features(images).pooler_output, tower(images).pooler_output)
        texts = clip.get_text_features(ids).pooler_output
    assert clip.logit_scale.item() == 4.0
    clip.save_pretrained(tmp_path / "clip")
    loaded = AutoModel.from_pretrained(tmp_path / "clip")
    with torch.no_grad():
        assert torch.equal(loaded.get_text_features(ids).pooler_output, texts)
        assert torch.equal(loaded.get_image_features(images).pooler_output, tower(images).pooler_output)
    assert AutoConfig.from_pretrained(tmp_path / "clip").vision_config.depths == TINY["depths"]

    model = MlaModel.from_native(
        clip, languages=["de"], acquirer_size=4, vocab_size=30, embedding_size=8, sep_token_id=3
    )
    output = model.train()(
        torch.tensor([[1, 5, 3], [1, 8, 3]]), images, language_ids=torch.tensor([1, 1]), return_loss=True
    )
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.acquirer_parameters())
    assert not any(module.training for module in model.native_model.vision_model.modules())  # statistics stay
    with torch.no_grad():
        assert torch.equal(model.get_text_features(ids).pooler_output, texts)
    model.save_pretrained(tmp_path / "mla")
    torch.save({"images": images, "expected": tower(images).pooler_output.detach()}, tmp_path / "found.pt")
    run_without_babelens(
        "import sys, torch\n"
        "from transformers import AutoModel\n"
        "model = AutoModel.from_pretrained(sys.argv[1] + '/mla', trust_remote_code=True)\n"
        "kept = torch.load(sys.argv[1] + '/found.pt')\n"
        "with torch.no_grad():\n"
        "    assert torch.equal(model.get_image_features(kept['images']).pooler_output, kept['expected'])\n"
        "assert type(model.native_model.vision_model).__name__ == 'ClipResNetModel'\n",
        tmp_path,
    )
