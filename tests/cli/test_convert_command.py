import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoProcessor

from babelens import Embedder, MlaModel
from babelens.configuration.configuration_mla import ClipResNetConfig
from babelens.modeling.clip_resnet import ClipResNetModel
from babelens.modeling.convert_mla import clip_from_openai, mla_from_openai
from babelens.utils.errors import ModelFolderError
from tests.contracts import drawn_images
from tests.support.openai_checkpoints import block, text_tower
from tests.support.tiny_native import saved, tiny_bert, tiny_clip

WIDTH, SPACE, POSITIONS = 64, 12, 20
RESNET = {"width": 8, "depths": [1, 1, 1, 1], "hidden_size": SPACE, "num_attention_heads": 4, "image_size": 64}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    native, multilingual = tiny_clip(), tiny_bert()
    saved(native, folder / "clip")
    saved(multilingual, folder / "bert")
    return folder, len(native[1].tokenizer), len(multilingual[1])


def clip_weights(tower, words):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    if tower == "RN":
        torch.manual_seed(0)
        weights = ClipResNetModel(ClipResNetConfig(**RESNET)).state_dict()
        visual = {f"visual.{name}": value for name, value in weights.items()}
    else:
        visual = block("visual.transformer.resblocks.0", WIDTH, generator) | {
            "visual.class_embedding": draw(WIDTH),
            "visual.conv1.weight": draw(WIDTH, 3, 8, 8) / 8,
            "visual.positional_embedding": draw(1 + 16, WIDTH),
            **{f"visual.ln_{k}.{part}": draw(WIDTH) for k in ("pre", "post") for part in ("weight", "bias")},
            "visual.proj": draw(WIDTH, SPACE),
        }
    return visual | text_tower(WIDTH, SPACE, words, POSITIONS)


def mla_weights(tower, words, pieces):
    generator = torch.Generator().manual_seed(1)
    added = {
        "multilingual_embedding.weight": torch.randn(pieces, 10, generator=generator),
        "multilingual_embedding_linear.weight": torch.randn(WIDTH, 10, generator=generator),
        "multilingual_embedding_linear.bias": torch.randn(WIDTH, generator=generator),
    }
    for language in ("de", "zh"):
        for part, shape in {"c_fc": (16, WIDTH), "c_proj": (WIDTH, 16)}.items():
            name = f"transformer.resblocks.0.acquirer.{language}.mlp.{part}"
            added |= {
                f"{name}.weight": torch.randn(*shape, generator=generator) / 8,
                f"{name}.bias": torch.zeros(shape[0]),
            }
    return clip_weights(tower, words) | added


class Holder(nn.Module):
    def __init__(self, weights):
        super().__init__()
        parts = {}
        for name, value in weights.items():
            first, _, rest = name.partition(".")
            if rest:
                parts.setdefault(first, {})[rest] = value
            else:
                self.register_buffer(first, value)
        for name, own in parts.items():
            self.add_module(name, Holder(own))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_an_mla_checkpoint_becomes_a_folder_with_its_processor(run, tokenizers, tmp_path):
    folder, words, pieces = tokenizers
    weights = mla_weights("ViT", words, pieces)
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{name}": value.half() for name, value in weights.items()}},
        tmp_path / "mla.pt",
    )
    options = ("--tokenizer", folder / "clip", "--multilingual-tokenizer", folder / "bert")
    assert "reads en, de, zh" in run("convert", tmp_path / "mla.pt", "--output", tmp_path / "mla", *options).output
    embedder = Embedder.from_pretrained(tmp_path / "mla", device="cpu")
    assert isinstance(embedder.model, MlaModel)
    sizes = embedder.processor.image_processor
    assert (sizes.size["shortest_edge"], sizes.crop_size["height"]) == (32, 32)
    assert embedder.processor.max_text_length == POSITIONS
    halved = {name: value.half().float() for name, value in weights.items()}
    separator = embedder.processor.multilingual_tokenizer.sep_token_id
    expected = mla_from_openai(halved, sep_token_id=separator, end_token_id=words - 1)
    batch = embedder.processor(text=["a red dot", "ein roter Punkt"], language=["en", "de"], return_tensors="pt")
    with torch.no_grad():
        found = [model.get_text_features(**batch).pooler_output for model in (embedder.model, expected)]
    assert torch.equal(*found) and found[0].std(0).min() > 0
    assert embedder.encode_image(drawn_images(2)).shape == (2, SPACE)
    again = run("convert", tmp_path / "mla.pt", "--output", tmp_path / "mla", *options, code=1).exception
    assert isinstance(again, FileExistsError) and "holds a model already" in str(again)


def test_a_torchscript_archive_of_clip_becomes_a_folder(run, tokenizers, tmp_path):
    folder, words, _ = tokenizers
    weights = clip_weights("RN", words)
    with pytest.deprecated_call():  # OpenAI's files are of this kind nevertheless
        torch.jit.script(Holder(weights)).save(str(tmp_path / "clip.pt"))
    run("convert", tmp_path / "clip.pt", "--output", tmp_path / "clip", "--tokenizer", folder / "clip")
    model, processor = (auto.from_pretrained(tmp_path / "clip") for auto in (AutoModel, AutoProcessor))
    expected = clip_from_openai(weights, end_token_id=words - 1)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in model.state_dict().items())
    assert processor.tokenizer("a red dot")["input_ids"][-1] == words - 1


def test_a_tokenizer_of_another_size_is_refused(run, tokenizers, tmp_path):
    folder, words, pieces = tokenizers
    torch.save(mla_weights("ViT", words, pieces + 1), tmp_path / "mla.pt")
    options = ("--tokenizer", folder / "clip", "--multilingual-tokenizer", folder / "bert")
    refused = run("convert", tmp_path / "mla.pt", "--output", tmp_path / "out", *options, code=1).exception
    assert isinstance(refused, ModelFolderError) and "was trained with" in str(refused)
