"""Checkpoints of open_clip: converted models give open_clip's own embeddings; other architectures say why not."""

import copy
import json

import numpy as np
import pytest
import torch
from open_clip_kinds import KINDS, drawn_inputs, drawn_weights, open_clip_outputs, recorded, tiny_settings
from PIL import Image
from safetensors.torch import save_file
from tiny_native import saved, tiny_bert, tiny_clip
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModel, NllbTokenizer, PreTrainedTokenizerFast
from typer.testing import CliRunner

from babelens import Embedder, EtclProcessor, from_open_clip
from babelens.cli.main import app
from babelens.configuration.errors import ModelFolderError, ModelKindError, UnknownLanguageError
from babelens.configuration.open_clip import open_clip_settings
from babelens.modeling.convert_open_clip import model_from_open_clip
from babelens.open_clip import processor_from_open_clip


def embeddings(model, settings):
    inputs = drawn_inputs(settings)
    if settings.text.get("pool_type") == "last":
        del inputs["attention_mask"]
    pixels = inputs.pop("pixel_values")
    with torch.no_grad():
        found = model.get_image_features(pixel_values=pixels), model.get_text_features(**inputs)
    return [torch.nn.functional.normalize(each.pooler_output, dim=-1) for each in found]


@pytest.mark.parametrize("name", KINDS)
def test_a_converted_model_has_the_embeddings_of_open_clip(name, tmp_path):
    settings, expected = tiny_settings(name, tmp_path / "text"), recorded()[name]
    model = model_from_open_clip(settings, drawn_weights(expected["shapes"]))
    found = embeddings(model, settings)
    for own, kind in zip(found, ("image", "text"), strict=True):
        wanted = torch.tensor(expected[kind])
        assert (own - wanted).abs().max() < 1e-6
        assert (wanted[0] - wanted[1]).norm() > 0.01
    model.save_pretrained(tmp_path / "saved")
    again = embeddings(AutoModel.from_pretrained(tmp_path / "saved"), settings)
    assert all(torch.equal(*pair) for pair in zip(found, again, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_open_clip_itself_gives_what_was_recorded(name, tmp_path):
    pytest.importorskip("open_clip")
    made = open_clip_outputs(tiny_settings(name, tmp_path))
    wanted = recorded()[name]
    assert made["shapes"] == wanted["shapes"]
    for kind in ("image", "text"):
        np.testing.assert_allclose(made[kind], wanted[kind], atol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("EVA02-B-16", "rotary"),
        ("coca_ViT-B-32", "caption decoder"),
        ("MobileCLIP-S2", "MobileCLIP's image towers"),
        ("ViT-L-14-CLIPA", "mean over patches"),
        ("ViT-B-33", "did you mean 'ViT-B-32'"),
    ],
)
def test_other_architectures_say_why(architecture, reason):
    with pytest.raises(ModelKindError, match=reason):
        open_clip_settings(architecture)


def test_settings_that_no_class_has_are_refused(tmp_path):
    settings = tiny_settings("ViT-B-32", tmp_path)
    for part, key, value in [("vision_cfg", "pool_type", "avg"), ("text_cfg", "no_causal_mask", True)]:
        other = copy.deepcopy(settings)
        other.model[part][key] = value
        with pytest.raises(ModelKindError, match="cannot be converted"):
            model_from_open_clip(other, {})


def test_weights_of_another_architecture_are_refused(tmp_path):
    settings = tiny_settings("ViT-B-32", tmp_path)
    weights = drawn_weights(recorded()["ViT-B-32"]["shapes"])
    for changed in ({"visual.proj": None}, {"visual.more": torch.zeros(1)}):
        found = {name: value for name, value in (weights | changed).items() if value is not None}
        with pytest.raises(ModelFolderError, match="no weights of open_clip's ViT-B-32"):
            model_from_open_clip(settings, found)


def test_the_command_makes_a_folder_that_reads_images_and_texts(tmp_path):
    tokenizer = tiny_clip()[1].tokenizer
    settings = tiny_settings("ViT-B-32", tmp_path)
    shapes = recorded()["ViT-B-32"]["shapes"] | {"token_embedding.weight": [len(tokenizer), 32]}
    save_file(drawn_weights(shapes), tmp_path / "open_clip_model.safetensors")
    tokenizer.save_pretrained(tmp_path / "words")
    config = {"model_cfg": settings.model, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    command = ["convert", "open_clip", tmp_path / "open_clip_config.json", tmp_path / "open_clip_model.safetensors"]
    command += ["--tokenizer", tmp_path / "words", "--output", tmp_path / "out"]
    done = CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
    assert "CLIPModel" in done.output
    embedder = Embedder.from_pretrained(tmp_path / "out", device="cpu")
    # open_clip's own steps: the shorter side to the size, the middle, mean and deviation.
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 128, 3), dtype=np.uint8))
    pixels = np.asarray(image.resize((64, 32), Image.Resampling.BICUBIC).crop((16, 0, 48, 32))) / 255
    wanted = torch.tensor((pixels - 0.5) / 0.25, dtype=torch.float32).permute(2, 0, 1)
    found = embedder.processor(images=image, return_tensors="pt")["pixel_values"][0]
    assert (found - wanted).abs().max() < 1e-5
    assert embedder.encode_text("a red dot").shape == embedder.encode_image(image).shape == (1, 24)
    model, processor = from_open_clip(
        tmp_path / "open_clip_config.json", tmp_path / "open_clip_model.safetensors", tokenizer=tmp_path / "words"
    )
    assert np.array_equal(Embedder(model, processor).encode_text("a dot"), embedder.encode_text("a dot"))


def test_settings_and_tokenizers_of_another_checkpoint(tmp_path):
    """Sizes are those of the weights; a tokenizer that never writes the token at which texts are read is refused."""
    settings, shapes = tiny_settings("ViT-B-32", tmp_path), recorded()["ViT-B-32"]["shapes"]
    model = model_from_open_clip(settings, drawn_weights(shapes | {"positional_embedding": [20, 32]}))
    settings.model["vision_cfg"]["image_size"] = 64
    processor = processor_from_open_clip(settings, model.config, tiny_clip()[1].tokenizer)
    assert processor.image_processor.crop_size == {"height": 32, "width": 32}
    assert processor.tokenizer.model_max_length == 20
    save_file(drawn_weights(shapes), tmp_path / "model.safetensors")
    word_tokenizer("a", "dot").save_pretrained(tmp_path / "words")
    given = {"checkpoint": tmp_path / "model.safetensors", "tokenizer": tmp_path / "words"}
    (tmp_path / "settings.json").write_text(json.dumps(settings.model))
    with pytest.raises(ModelFolderError, match=r"texts at token 119, and .*words ends them with 1: name its own"):
        from_open_clip(tmp_path / "settings.json", **given)
    for changed, said in [
        ({"vision_cfg": settings.image | {"head_width": 0}}, "no weights of open_clip's settings.json"),
        ({"vision_cfg": settings.image | {"head_width": "64"}}, "no weights of open_clip's settings.json"),
        ({"text_cfg": settings.text | {"context_length": "long"}}, "context_length is 'long'"),
        ({"preprocess_cfg": ["mean"]}, "must be dictionaries"),
        ({"preprocess_cfg": {"mean": "grey"}}, "mean of images is 'grey'"),
    ]:
        (tmp_path / "settings.json").write_text(json.dumps({"model_cfg": settings.model | changed} | changed))
        with pytest.raises(ModelFolderError, match=said):
            from_open_clip(tmp_path / "settings.json", **given)


def word_tokenizer(*words):
    backend = Tokenizer(
        WordLevel({word: number for number, word in enumerate(["<pad>", "</s>", "<unk>", *words])}, "<unk>")
    )
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def test_siglip_texts_are_cleaned_as_open_clip_cleans_them(tmp_path):
    settings = tiny_settings("ViT-B-16-SigLIP", tmp_path)
    model = model_from_open_clip(settings, drawn_weights(recorded()["ViT-B-16-SigLIP"]["shapes"]))
    processor = processor_from_open_clip(settings, model.config, word_tokenizer("a", "red", "dot", "its"))
    assert processor.tokenizer("  A red_dot, it's!")["input_ids"] == [3, 4, 5, 6]
    assert processor.image_processor.size == {"height": 32, "width": 32}
    assert list(processor.image_processor.image_mean) == [0.5] * 3
    assert Embedder(model, processor).encode_text(["a dot", "a red dot"]).shape == (2, 48)


def test_nllb_reads_the_language_of_each_text(tmp_path):
    vocab = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "▁dot", "eng_Latn", "deu_Latn", "swh_Latn", "zho_Hant"]
    tokenizer = NllbTokenizer(
        vocab={word: number for number, word in enumerate(vocab)},
        merges=[],
        src_lang="eng_Latn",
        extra_special_tokens=vocab[6:],
    )
    name = "nllb-clip-base-siglip"
    settings = tiny_settings(name, tmp_path / "text")
    model = model_from_open_clip(settings, drawn_weights(recorded()[name]["shapes"]))
    processor = processor_from_open_clip(settings, model.config, tokenizer)
    assert isinstance(processor, EtclProcessor)
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    embedder = Embedder.from_pretrained(tmp_path / "model", device="cpu")
    languages = ["sw", "en", "zh-TW", "de-AT"]
    rows = embedder.processor(text=["a dot"] * 4, language=languages, return_tensors="pt")["input_ids"]
    codes = [embedder.processor.tokenizer.convert_ids_to_tokens(int(row[0])) for row in rows]
    assert codes == ["swh_Latn", "eng_Latn", "zho_Hant", "deu_Latn"]
    found = embedder.encode_text(["a dot"] * 4, language=languages)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert np.allclose(embedder.encode_text("a dot"), found[1:2], atol=1e-6)
    with pytest.raises(UnknownLanguageError, match="no code"):
        embedder.encode_text("a dot", language="fr")


def test_a_tokenizer_of_a_larger_vocabulary_is_refused(tmp_path):
    saved(tiny_bert(), tmp_path / "bert")
    save_file(drawn_weights(recorded()["ViT-B-32"]["shapes"]), tmp_path / "weights.safetensors")
    settings = tiny_settings("ViT-B-32", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings.model))
    words = len(tiny_bert()[1])
    with pytest.raises(ModelFolderError, match=f"was trained with 120 tokens, and .* has {words}"):
        from_open_clip(tmp_path / "config.json", tmp_path / "weights.safetensors", tokenizer=tmp_path / "bert")
