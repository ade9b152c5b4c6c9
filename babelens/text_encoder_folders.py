"""Text towers alone, in the layout of sentence-transformers: Transformer, Pooling, Dense, Normalize.

    config.json, model.safetensors       a stock BERT or RoBERTa, whose weights have no prefix
    tokenizer.json                       read by the package tokenizers
    modules.json                         the modules, by the older names that sentence-transformers had for them
    sentence_bert_config.json            the length at which texts are cut
    1_Pooling/config.json                a switch for each way to pool
    2_Dense/, …                          linear layers, `linear.weight` and `linear.bias`; the last is the projection
    config_sentence_transformers.json    prompts

Hugging Face's text-embeddings-inference, infinity and every program that takes an embedder of sentence-transformers
read it, without code of their own, and without an image tower: texts come from such a server, and the images that they
search were embedded before. text-embeddings-inference knows the modules by their older names alone (its public code of
2026), and leaves out a linear layer that it does not know; sentence-transformers reads both names.
"""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoModel

from .configuration.errors import ModelKindError, ModelMismatchError
from .configuration.locks import check_new, new_folder
from .configuration.pretrained import load_model
from .configuration.sentence_files import MODALITIES_FILE, MODULES_FILE, SETTINGS_FILE
from .inference.embedder import Embedder
from .inference.sample_texts import TEXTS
from .inference.text_only import SentenceEncoder
from .model_cards.card_text import CompactCard, save_card
from .modeling.modeling_dual_encoder import as_output, normalize
from .modeling.stock_models import StockTextEncoder, stock_text_encoder
from .modeling.towers import pool_text
from .processing.text_inputs import counting_cut_texts, default_language

LEAST_COSINE = 0.9999
_NAMES = "sentence_transformers.models"
_POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
_ACTIVATIONS = {True: "torch.nn.modules.activation.Tanh", False: "torch.nn.modules.linear.Identity"}
_OF_PROCESSOR = ("processor_class", "auto_map", "is_local", "local_files_only")
# What the card of a dual encoder states of images, of its code and of its results.
_NOT_OF_TEXTS = ("model-index", "widget", "metrics", "inference", "model_identity", "pipeline_tag", "library_name")


@dataclass(frozen=True)
class TextEncoderFolder:
    """A text tower that was written.

    Args:
        folder: the folder.
        kind: the architecture, such as `xlm-roberta`.
        width: the number of values of an embedding.
        prompt: what stands before every text; it is named `query` and `document`.
        language: the only language that it reads as the model does; None if it reads all of them.
        cosine: the lowest cosine of an embedding with the model's.
    """

    folder: Path
    kind: str
    width: int
    prompt: str
    language: str | None
    cosine: float


def export_text_encoder(source: str | Path, output: str | Path, **loading: Any) -> TextEncoderFolder:
    """Writes the text tower of a dual encoder as an embedder of sentence-transformers, and compares the embeddings.

    Args:
        source: the model: a folder, or a repository on the Hub.
        output: a new folder.
        loading: what `Embedder.from_pretrained` takes, such as `trust_remote_code` and `truncate_dim`.

    Raises:
        ArgumentError: if the folder exists.
        ModelFolderError: if there is no such model, or a file of it is missing or damaged.
        ModelKindError: for a text tower or a tokenizer that servers of text encoders do not know.
        ModelMismatchError: if the folder, read as a server reads it, gives other embeddings than the model.

    Examples:
        >>> export_text_encoder("runs/student", "texts").cosine
        0.9999999
    """
    output = Path(output)
    check_new(output)
    embedder = Embedder.from_pretrained(source, device="cpu", dtype=torch.float32, **loading)
    if isinstance(embedder.model, SentenceEncoder):
        raise ModelKindError(f"{source} is an embedder of sentence-transformers already: there is nothing to export")
    made = stock_text_encoder(embedder.model.eval())
    tokenizer = copy.deepcopy(embedder.processor.tokenizer)
    if not tokenizer.is_fast:
        raise ModelKindError(
            f"servers of text encoders read a tokenizer.json, and a {type(tokenizer).__name__} has none"
        )
    language = made.language or default_language(embedder.processor)
    prompt = str(getattr(embedder.processor, "text_prompt", "") or "")
    with counting_cut_texts():  # texts are cut where the model's own processor cuts them
        length = embedder.process_texts([max(TEXTS, key=len)], [language])["input_ids"].shape[1]
    tokenizer.model_max_length = length
    with new_folder(output) as folder:
        made.encoder.save_pretrained(folder)
        _save_tokenizer(folder, tokenizer)
        width = _write_modules(folder, made, length, prompt, embedder.truncate_dim)
        # Not by `encode_text`, which would warn of what is in these texts: nobody else has written them.
        with counting_cut_texts(), torch.no_grad():
            read = embedder.process_texts(list(TEXTS), [language] * len(TEXTS))
            own = as_output(embedder.model.get_text_features(**read)).pooler_output[:, : embedder.truncate_dim]
        cosine = float((normalize(own).numpy() * _embedded(folder, TEXTS, prompt)).sum(1).min())
        if not cosine >= LEAST_COSINE:
            raise ModelMismatchError(
                f"servers of text encoders would embed texts otherwise than the model: a cosine is {cosine:.5f}; "
                "nothing was written"
            )
        if Path(source, "README.md").is_file():
            _write_card(folder, Path(source), prompt)
    return TextEncoderFolder(output, made.encoder.config.model_type, width, prompt, made.language, cosine)


def _save_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Saves a tokenizer without the name of its processor, which would be asked for an image processor."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text("utf-8"))
    _write(file, {name: value for name, value in settings.items() if name not in _OF_PROCESSOR})


def _write_modules(folder: Path, made: StockTextEncoder, length: int, prompt: str, width: int | None) -> int:
    """Writes the files of the modules, of embeddings with the first `width` dimensions, and returns their number."""
    hidden = made.encoder.config.hidden_size
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    _write(folder / MODALITIES_FILE, {"max_seq_length": length, "do_lower_case": False})
    switches = {
        f"pooling_mode_{name}": name == f"{made.pooling}_token{'s' * (made.pooling == 'mean')}" for name in _POOLINGS
    }
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": hidden} | switches)
    for number, (layer, bent) in enumerate(made.layers, 2):
        modules.append((f"{number}_Dense", "Dense"))
        kept = width if number == len(made.layers) + 1 else None
        states = {f"linear.{name}": value.detach()[:kept].contiguous() for name, value in layer.named_parameters()}
        settings: dict[str, Any] = {"in_features": layer.in_features, "out_features": len(states["linear.weight"])}
        settings |= {"bias": layer.bias is not None, "activation_function": _ACTIVATIONS[bent]}
        _write(folder / modules[-1][0] / "config.json", settings)
        save_file(states, folder / modules[-1][0] / "model.safetensors")
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"{_NAMES}.{kind}"} for i, (path, kind) in enumerate(modules)
    ]
    _write(folder / MODULES_FILE, listed)
    named = {"prompts": {"query": prompt, "document": prompt}, "default_prompt_name": "query" if prompt else None}
    _write(folder / SETTINGS_FILE, named | {"similarity_fn_name": "cosine"})
    return int(settings["out_features"])


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def _embedded(folder: Path, texts: Sequence[str], prompt: str) -> np.ndarray:
    """Embeddings [N, d] by what the folder has, one text at a time."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(json.loads((folder / MODALITIES_FILE).read_text("utf-8"))["max_seq_length"])
    encoder: Any = load_model(AutoModel, folder).eval()
    switches = json.loads((folder / "1_Pooling" / "config.json").read_text("utf-8"))
    pooling = "mean" if switches["pooling_mode_mean_tokens"] else "cls"
    found = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(prompt + text).ids])
        states = pool_text(encoder(input_ids=ids), torch.ones_like(ids), pooling, input_ids=ids)
        for path in sorted(folder.glob("*_Dense")):
            layer, settings = (
                load_file(path / "model.safetensors"),
                json.loads((path / "config.json").read_text("utf-8")),
            )
            states = nn.functional.linear(states, layer["linear.weight"], layer.get("linear.bias"))
            states = states.tanh() if settings["activation_function"] == _ACTIVATIONS[True] else states
        found.append(normalize(states))
    embeddings: np.ndarray = torch.cat(found).numpy()
    return embeddings


def _write_card(folder: Path, source: Path, prompt: str) -> None:
    """The card of the model, with what holds of its text tower."""
    given = ModelCard.load(source / "README.md", ignore_metadata_errors=True)
    metadata = {name: value for name, value in given.data.to_dict().items() if name not in _NOT_OF_TEXTS}
    tags = [tag for tag in metadata.get("tags") or [] if tag != "custom_code"]
    metadata["tags"] = list(dict.fromkeys([*tags, "sentence-transformers", "text-embeddings-inference"]))
    metadata |= {"pipeline_tag": "sentence-similarity", "library_name": "sentence-transformers"}
    title = next((line for line in given.text.splitlines() if line.startswith("# ")), f"# {source.resolve().name}")
    named = f' Every text is read after the prompt "{prompt}", which is named `query`.' if prompt else ""
    text = (
        f"{title}: texts\n\nThe text tower of a model of texts and images, as an embedder of sentence-transformers. "
        f"Its embeddings are those of the whole model, which also embeds the images that they search.{named}\n"
    )
    card = CompactCard(f"---\n{{}}\n---\n\n{text}")
    card.data = CompactCard.card_data_class(**metadata, ignore_metadata_errors=True)
    save_card(card, folder)
