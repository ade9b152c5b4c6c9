"""Stores the non-native embedding that all languages of a model share, in a folder or a repository of the Hub:

    model.safetensors   table.weight, projection.weight, projection.bias
    config.json         vocab_size, embedding_size, width, sep_token_id

The folder of an assembled `MlaModel` can be read too, because it contains the embedding of its languages.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ...utils.errors import ModelFolderError
from ...utils.files import apply_umask
from ...utils.identity import add_weights
from ..acquirer import AcquiredEmbedding, NonNativeEmbedding

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
_IN_MODEL = ".mla_embedding."  # in the names of an assembled model's weights


@dataclass
class EmbeddingShape:
    """Sizes of a non-native embedding.

    Attributes:
        vocab_size, embedding_size: size of the table.
        width: width of the text tower.
        sep_token_id: id of [SEP] in the vocabulary.
    """

    vocab_size: int
    embedding_size: int
    width: int
    sep_token_id: int

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the weights by name."""
        return {
            "table.weight": (self.vocab_size, self.embedding_size),
            "projection.weight": (self.width, self.embedding_size),
            "projection.bias": (self.width,),
        }


@dataclass
class StoredEmbedding:
    """Result of `load_embedding`.

    Attributes:
        source: where it was read.
        shape: its sizes.
        weights: its weights by name.
    """

    source: str
    shape: EmbeddingShape
    weights: dict[str, Tensor]


def embedding_digest(weights: dict[str, Tensor]) -> str:
    """Computes SHA-256 of the weights of a non-native embedding, as float32 numbers, in hexadecimal digits."""
    digest = hashlib.sha256()
    names = ("table.weight", "projection.weight", "projection.bias")
    add_weights(digest, {name: weights[name].to(torch.float32) for name in names})
    return digest.hexdigest()


def save_embedding(model: nn.Module, folder: str | Path) -> None:
    """Stores the non-native embedding of a model, for adapters whose configuration has `embedding=folder`.

    Args:
        model: a model with MLA adapters, or an `MlaModel`.
        folder: where to store it; it is created if needed.

    Examples:
        >>> save_embedding(model, "shared")
        >>> config = MlaAdapterConfig(language="fr", embedding="shared", train_embedding=False)
    """
    layer = next(module for module in model.modules() if isinstance(module, AcquiredEmbedding))
    embedding = next(module for module in layer.modules() if isinstance(module, NonNativeEmbedding))
    table, projection = embedding.table, embedding.projection
    shape = EmbeddingShape(table.num_embeddings, table.embedding_dim, projection.out_features, layer.sep_token_id)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in embedding.state_dict().items()}
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    apply_umask(folder / WEIGHTS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(asdict(shape), indent=2) + "\n", encoding="utf-8")


def load_embedding(source: str | Path) -> StoredEmbedding:
    """Reads an embedding that `save_embedding` stored, or that of a saved `MlaModel`.

    Args:
        source: a folder, or a repository of the Hub, or a folder in one (`owner/repository/folder`).

    Raises:
        ModelFolderError: if there is none, or one of its files is truncated or incomplete.
    """
    weights_path, config_path = _file(source, WEIGHTS_FILE), _file(source, CONFIG_FILE)
    try:
        with safe_open(weights_path, framework="pt") as file:
            stored = list(file.keys())
            names = {name.rpartition(_IN_MODEL)[2]: name for name in stored if _IN_MODEL in name}
            weights = {
                name: file.get_tensor(full) for name, full in (names or {each: each for each in stored}).items()
            }
    except SafetensorError as error:
        raise ModelFolderError(f"{weights_path} is truncated or damaged ({error}); get it again") from error
    try:
        settings = json.loads(config_path.read_text(encoding="utf-8"))
        if names:
            settings = {name: settings[name] for name in ("vocab_size", "embedding_size", "sep_token_id")}
            settings["width"] = len(weights["projection.bias"])
        shape = EmbeddingShape(**settings)
    except (KeyError, ValueError, TypeError) as error:
        raise ModelFolderError(f"{config_path} does not describe a non-native embedding ({error})") from error
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    if shapes != shape.weight_shapes():
        raise ModelFolderError(f"{weights_path} has the weights {shapes}; {config_path} says {shape.weight_shapes()}")
    return StoredEmbedding(str(source), shape, weights)


def _file(source: str | Path, name: str) -> Path:
    if Path(source).is_dir():
        path = Path(source, name)
        if not path.is_file():
            raise ModelFolderError(f"{source} has no {name}: save_embedding stores a non-native embedding")
        return path
    try:  # owner/repository, or a folder in it
        owner, repository, *below = str(source).split("/")
        return Path(hf_hub_download(f"{owner}/{repository}", name, subfolder="/".join(below) or None))
    except (HfHubHTTPError, ValueError, OSError) as error:
        raise ModelFolderError(
            f"{str(source)!r} is neither a folder nor a repository of the Hub with a {name}, in which a non-native "
            f"embedding is stored ({error})"
        ) from error
