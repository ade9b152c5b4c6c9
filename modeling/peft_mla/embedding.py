"""Stores the non-native embedding that all languages of a model share, in a folder or a repository of the Hub:

model.safetensors   table.weight, projection.weight, projection.bias
config.json         vocab_size, embedding_size, width, sep_token_id
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.utils import cached_file

from ...utils.errors import ModelFolderError
from ...utils.files import apply_umask
from ...utils.identity import add_weights
from ..acquirer import AcquiredEmbedding

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
_NAMES = ("table.weight", "projection.weight", "projection.bias")


def embedding_digest(weights: dict[str, Tensor]) -> str:
    """Computes SHA-256 of the weights of a non-native embedding, as float32 numbers, in hexadecimal digits."""
    digest = hashlib.sha256()
    add_weights(digest, {name: weights[name].to(torch.float32) for name in _NAMES})
    return digest.hexdigest()


def save_embedding(model: nn.Module, folder: str | Path) -> None:
    """Stores the non-native embedding of a model with MLA adapters, or of an `MlaModel`, for adapters whose
    configuration has `embedding=folder`.

    Examples:
        >>> save_embedding(model, "shared")
        >>> config = MlaAdapterConfig(language="fr", embedding="shared", train_embedding=False)
    """
    layer = next(module for module in model.modules() if isinstance(module, AcquiredEmbedding))
    table, projection = layer.non_native.table, layer.non_native.projection
    shape = {"vocab_size": table.num_embeddings, "embedding_size": table.embedding_dim}
    shape |= {"width": projection.out_features, "sep_token_id": layer.sep_token_id}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in layer.non_native.state_dict().items()}
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    apply_umask(folder / WEIGHTS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(shape, indent=2) + "\n", encoding="utf-8")


def load_embedding(source: str | Path) -> dict[str, Tensor]:
    """Reads the weights that `save_embedding` stored, or the embedding of a saved `MlaModel`, from a folder, a
    repository of the Hub, or a folder in one (`owner/repository/folder`)."""
    place, below = str(source), ""
    if not Path(source).is_dir():
        owner, *rest = place.split("/")
        place, below = "/".join([owner, *rest[:1]]), "/".join(rest[1:])
    try:
        weights = load_file(str(cached_file(place, WEIGHTS_FILE, subfolder=below)))
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(
            f"{source} has no readable {WEIGHTS_FILE}, which save_embedding writes ({error})"
        ) from error
    of_a_model = {n.split(".mla_embedding.")[1]: v for n, v in weights.items() if ".mla_embedding." in n}
    found = of_a_model or weights
    if found.keys() != {*_NAMES}:
        raise ModelFolderError(f"{source}: {WEIGHTS_FILE} has no non-native embedding, which save_embedding writes")
    return found
