"""Text towers alone: stock sentence-transformers and the steps of text-embeddings-inference give the model's texts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts import TEXTS
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tiny_dual_encoders import BERT, KINDS, bert_tokenizer, tiny_xlm_roberta
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

from babelens import Embedder, MlaStudentModel, MlaStudentProcessor
from babelens.cli.main import app
from babelens.configuration.errors import ModelKindError
from babelens.publishing import folder_problems
from babelens.text_encoder_folders import export_text_encoder


def saved(parts, folder):
    for part in parts:
        part.save_pretrained(folder)
    return folder


def student(encoder, tokenizer, **options):
    clip, processor = KINDS["clip"]()
    torch.manual_seed(0)
    model = MlaStudentModel.from_models(clip, encoder, languages=["de"], **options)
    with torch.no_grad():
        model.projection.bias.normal_(std=0.02)
    return model.eval(), MlaStudentProcessor.for_student(model.config, processor, tokenizer)


def as_its_server(folder: Path, texts: list[str], prompt_name: str | None = None) -> np.ndarray:
    """Embeddings by the steps of text-embeddings-inference for a folder (router, backend and BERT, read in 2026), from
    its files alone: keys without a default there are asked for here as well."""
    config = json.loads((folder / "config.json").read_text())
    assert isinstance(config["architectures"], list) and not config["architectures"][0].endswith("Classification")
    kind, pad, heads = config["model_type"], config["pad_token_id"], config["num_attention_heads"]
    assert kind in ("bert", "xlm-roberta", "camembert", "roberta") and config["hidden_act"] == "gelu"
    assert config.get("position_embedding_type", "absolute") == "absolute" and config.get("_name_or_path", "") == ""
    assert {"hidden_dropout_prob", "initializer_range", "type_vocab_size"} <= config.keys()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    longest = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer.enable_truncation(longest)
    first = 0 if kind == "bert" else pad + 1
    assert longest <= config["max_position_embeddings"] - first
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    cls, mean, *_ = (pooling[f"pooling_mode_{name}"] for name in names)
    known = {f"sentence_transformers.models.{name}" for name in ("Dense", "Normalize", "Pooling", "Transformer")}
    modules = json.loads((folder / "modules.json").read_text())
    assert all({"idx", "name"} <= each.keys() and each["type"] in known for each in modules)
    prompts = json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]
    weights = load_file(folder / "model.safetensors")

    def norm(states, name):
        scale, shift = (weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return functional.layer_norm(states, scale.shape, scale, shift, config["layer_norm_eps"])

    def linear(states, name):
        return functional.linear(states, weights[f"{name}.weight"], weights[f"{name}.bias"])

    found = []
    for text in texts:
        ids = torch.tensor(tokenizer.encode((prompts[prompt_name] if prompt_name else "") + text).ids)
        table = {name: weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type", "position")}
        places = torch.arange(len(ids)) + first
        states = norm(table["word"][ids] + table["token_type"][0] + table["position"][places], "embeddings")
        for number in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{number}"
            parts = [linear(states, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")]
            query, key, value = (each.view(len(ids), heads, -1).transpose(0, 1) for each in parts)
            mixed = functional.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
            states = norm(linear(mixed, f"{layer}.attention.output.dense") + states, f"{layer}.attention.output")
            inner = functional.gelu(linear(states, f"{layer}.intermediate.dense"))
            states = norm(linear(inner, f"{layer}.output.dense") + states, f"{layer}.output")
        assert cls or mean
        vector = states[0] if cls else states.mean(0)
        for module in modules:
            if module["type"].endswith("Dense"):
                settings = json.loads((folder / module["path"] / "config.json").read_text())
                dense = load_file(folder / module["path"] / "model.safetensors")
                assert dense["linear.weight"].shape == (settings["out_features"], settings["in_features"])
                vector = functional.linear(
                    vector, dense["linear.weight"], dense["linear.bias"] if settings["bias"] else None
                )
                bent = settings["activation_function"] == "torch.nn.modules.activation.Tanh"
                assert bent or settings["activation_function"] == "torch.nn.modules.linear.Identity"
                vector = vector.tanh() if bent else vector
        found.append(functional.normalize(vector, dim=0))
    return torch.stack(found).numpy()


def check(source, folder, language, **options):
    """Compares texts by both ways with those of the model."""
    made = export_text_encoder(source, folder, **options)
    expected = Embedder.from_pretrained(source, device="cpu", **options).encode_text(TEXTS, language=language)
    named = "query" if made.prompt else None
    assert not list(folder.rglob("*.py")) and made.width == expected.shape[1]
    by_library = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    again = Embedder.from_pretrained(folder, device="cpu").encode_text(TEXTS)
    for found in (as_its_server(folder, TEXTS, named), by_library, again):
        assert (found * expected).sum(1).min() >= 0.9999
        np.testing.assert_allclose(found, expected, atol=1e-5)
    return made


def test_a_student_of_xlm_roberta_with_a_prompt(tmp_path):
    source = saved(student(*tiny_xlm_roberta(), text_pooling="mean", text_prompt="query: "), tmp_path / "student")
    made = check(source, tmp_path / "texts", "de")
    assert made.prompt == "query: " and made.kind == "xlm-roberta"
    check(source, tmp_path / "narrow", "de", truncate_dim=4)


def test_a_student_read_by_its_pooling_layer_has_two_layers(tmp_path):
    tokenizer = bert_tokenizer()
    torch.manual_seed(0)
    bert = BertModel(BertConfig(**BERT, vocab_size=len(tokenizer), max_position_embeddings=64))
    check(saved(student(bert, tokenizer, text_pooling="pooler"), tmp_path / "student"), tmp_path / "texts", "de")
    assert (tmp_path / "texts" / "3_Dense").is_dir()


@pytest.mark.parametrize("kind", ["align", "chinese_clip", "vision-text-dual-encoder (xlm-roberta)"])
def test_dual_encoders_with_a_bert(kind, tmp_path):
    check(saved(KINDS[kind](), tmp_path / "model"), tmp_path / "texts", "de")


def test_the_command_and_the_card(finished, tmp_path, caplog):
    arguments = ["export", str(finished), "--format", "sentence-transformers", "--output", str(tmp_path / "texts")]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0 and "lowest cosine with the model 1.00000" in shown.output, shown.output
    assert not caplog.text, "nothing of the texts that the two are compared on"
    card = (tmp_path / "texts" / "README.md").read_text()
    assert ": texts\n\nThe text tower" in card and "library_name: sentence-transformers" in card
    assert "custom_code" not in card and "model-index" not in card
    assert not folder_problems(tmp_path / "texts")


def test_what_servers_do_not_know_is_refused(tmp_path):
    with pytest.raises(ModelKindError, match="CLIPModel has no text tower"):
        export_text_encoder(saved(KINDS["clip"](), tmp_path / "clip"), tmp_path / "texts")
    eos = saved(student(*tiny_xlm_roberta(), text_pooling="eos"), tmp_path / "student")
    with pytest.raises(ModelKindError, match="at its first token or by the mean, and this model by 'eos'"):
        export_text_encoder(eos, tmp_path / "texts")
    assert not (tmp_path / "texts").exists()
