"""Loading a dual encoder with its processor, from a model's folder or from an adapter's.

How an adapter is loaded depends on its kind, which PEFT calls `peft_type`. A kind registers the function that loads
its adapters (`register_adapter_loader`), as `babelens.registry` does for MLA's.
"""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoModel, AutoProcessor, PreTrainedModel, ProcessorMixin
from transformers.utils.peft_utils import find_adapter_config_file

from ..configuration.errors import ModelFolderError, ModelKindError
from ..configuration.pretrained import explained, load_model, load_processor, located
from ..configuration.saved_folders import check_finished

DualEncoder = tuple[PreTrainedModel, ProcessorMixin]
# From an adapter's folder or repository, and what `from_pretrained` takes, to the model with the adapter.
AdapterLoader = Callable[..., DualEncoder]

# The options of loading a model that also find an adapter.
_OF_ADAPTERS = ("local_files_only", "revision", "token")
_LOADERS: dict[str, AdapterLoader] = {}


def register_adapter_loader(peft_type: str, loader: AdapterLoader) -> None:
    """Makes `load_dual_encoder` load adapters of a kind.

    Args:
        peft_type: the kind, as `adapter_config.json` names it.
        loader: is called as `loader(folder_or_repo, **loading)`, and returns a model and its processor.
    """
    _LOADERS[peft_type] = loader


def load_dual_encoder(folder_or_repo: str | Path, **loading: Any) -> DualEncoder:
    """Loads a model and its processor.

    Args:
        folder_or_repo: a folder, or a repository on the Hub, of a model or of an adapter.
        loading: what `from_pretrained` takes, such as `trust_remote_code`.

    Raises:
        ModelFolderError: when there is no such folder or repository, or it lacks a file.
        ModelKindError: for an adapter of a kind that is not registered.
    """
    source, loading = str(folder_or_repo), located(folder_or_repo, **loading)
    check_finished(source)
    adapter = find_adapter_config_file(source, **{k: v for k, v in loading.items() if k in _OF_ADAPTERS})
    if adapter:
        return _loader_of(adapter, source, **loading)(source, **loading)
    model = load_model(AutoModel, source, **loading)
    processor = load_processor(AutoProcessor, source, **loading)
    # Where a folder has no processor, transformers loads the tokenizer instead.
    if hasattr(model, "get_image_features") and not hasattr(processor, "image_processor"):
        raise ModelFolderError(f"{source} has no processor for images: save the model's processor there")
    return model, processor


def _loader_of(configuration: str, source: str, **loading: Any) -> AdapterLoader:
    """The loader of an adapter, by its configuration file."""
    with explained(source, loading):
        settings = json.loads(Path(configuration).read_text("utf-8"))
    peft_type = settings.get("peft_type") if isinstance(settings, dict) else None
    if peft_type not in _LOADERS:
        known = " or ".join(sorted(_LOADERS))
        raise ModelKindError(f"{source} holds an adapter of {peft_type or 'no kind'}, and not of {known}")
    return _LOADERS[peft_type]


def takes_language(processor: Any) -> bool:
    """Whether a processor reads the language of texts."""
    return processor is not None and "language" in inspect.signature(type(processor).__call__).parameters
