"""Loading a dual encoder with its processor, from a model's folder or from an adapter's; or an encoder of texts alone.

How an adapter is loaded depends on its kind, which PEFT calls `peft_type`. A kind registers the function that loads
its adapters (`register_adapter_loader`), as `babelens.registry` does for MLA's.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoModel, AutoProcessor, PreTrainedModel, ProcessorMixin
from transformers.utils.peft_utils import find_adapter_config_file

from ..configuration.errors import ModelFolderError, ModelKindError
from ..configuration.files import check_finished
from ..configuration.hub_code import SETTINGS_FILE
from ..configuration.pretrained import check_reading, explained, load_config, load_model, load_processor, located
from .text_only import (
    SentenceEncoder,
    SentenceInputs,
    TextEncoder,
    is_text_encoder,
    load_sentence_encoder,
    load_text_only,
    needs_sentence_transformers,
)

DualEncoder = tuple[PreTrainedModel, ProcessorMixin]
# From an adapter's folder or repository, and what `from_pretrained` takes, to the model with the adapter.
AdapterLoader = Callable[..., DualEncoder]

# The options of loading a model that also find an adapter.
_OF_ADAPTERS = ("local_files_only", "revision", "token")
_OF_TEXT_ENCODERS = ("text_pooling", "text_prompt")
_LOADERS: dict[str, AdapterLoader] = {}


def load_encoder(
    folder_or_repo: str | Path, **loading: Any
) -> tuple[PreTrainedModel | TextEncoder | SentenceEncoder, ProcessorMixin | SentenceInputs]:
    """Loads a dual encoder, an encoder of texts alone or an embedder of sentence-transformers, with its processor.

    Args:
        folder_or_repo: as in `load_dual_encoder`.
        loading: as in `load_dual_encoder`; for an encoder of texts alone `text_pooling` and `text_prompt` too, as in
            `load_text_only`.

    Raises:
        ModelFolderError: as `load_dual_encoder` and `load_text_only`.
        ModelKindError: as these, and for options of text encoders with another model.
        MissingExtraError: for an embedder that sentence-transformers must load, without it.
    """
    source = str(folder_or_repo)
    own = {name: loading.pop(name) for name in _OF_TEXT_ENCODERS if name in loading}
    where = located(source, **loading)
    check_finished(source)
    if not find_adapter_config_file(source, **_of_adapters(where)):
        with explained(source, where):
            is_sentences = needs_sentence_transformers(source, **where)
        config = None if is_sentences and not (Path(source, "config.json").is_file()) else load_config(source, **where)
        if config is not None and is_text_encoder(config):
            return load_text_only(source, config, **own, **where)
        if is_sentences and "text_pooling" not in own:
            return load_sentence_encoder(source, **own, **where)
    if own:
        raise ModelKindError(f"{source} is no encoder of texts alone: leave out {' and '.join(own)}")
    return load_dual_encoder(source, **loading)


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
    adapter = find_adapter_config_file(source, **_of_adapters(loading))
    if adapter:
        return _loader_of(adapter, source, **loading)(source, **loading)
    model = load_model(AutoModel, source, **loading)
    processor = load_processor(AutoProcessor, source, **loading)
    # Where a folder has no processor, transformers loads the tokenizer instead.
    if hasattr(model, "get_image_features") and not hasattr(processor, "image_processor"):
        raise ModelFolderError(f"{source} has no processor for images: save the model's processor there")
    check_reading(processor, source)
    return model, processor


def stated_truncation(folder_or_repo: str | Path, config: Any) -> int | None:
    """The number of dimensions of embeddings that are kept, as a model's configuration states it, or the settings of
    sentence-transformers in its folder; None for all."""
    stated = getattr(config, "truncate_dim", None)
    settings = Path(folder_or_repo, SETTINGS_FILE)
    if stated is None and settings.is_file():
        try:
            stated = json.loads(settings.read_text("utf-8")).get("truncate_dim")
        except ValueError as error:
            raise ModelFolderError(f"{folder_or_repo}: {SETTINGS_FILE} is damaged: {error}") from error
    return stated


def _of_adapters(loading: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in loading.items() if name in _OF_ADAPTERS}


def _loader_of(configuration: str, source: str, **loading: Any) -> AdapterLoader:
    """The loader of an adapter, by its configuration file."""
    with explained(source, loading):
        settings = json.loads(Path(configuration).read_text("utf-8"))
    peft_type = settings.get("peft_type") if isinstance(settings, dict) else None
    if peft_type not in _LOADERS:
        known = " or ".join(sorted(_LOADERS))
        raise ModelKindError(f"{source} holds an adapter of {peft_type or 'no kind'}, and not of {known}")
    return _LOADERS[peft_type]
