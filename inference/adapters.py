"""Loads adapters with their base models: MLA's, and the LoRAs that PEFT saves.

An adapter of MLA gives an `MlaModel` that reads the adapter's language too; a LoRA is merged into the weights.
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..configuration.errors import ModelFolderError, ModelMismatchError, first_line
from ..configuration.pretrained import explained, load_processor
from ..modeling.modeling_mla import MlaModel
from ..modeling.peft_mla import MlaAdapterConfig
from ..modeling.peft_mla.conversion import SHARED_OPTIONS, load_adapter
from ..processing.processing_mla import MlaProcessor
from .loading import DualEncoder, load_dual_encoder

_OF_TOKENIZERS = ("cache_dir", "local_files_only", "token", "trust_remote_code")


def load_mla_adapter(source: str, **loading: Any) -> DualEncoder:
    """Loads an adapter's base model, and adds the adapter's language to it.

    Args:
        source: the adapter's folder, or its repository on the Hub.
        loading: what `from_pretrained` takes.

    Raises:
        ModelFolderError: when the adapter names no base model, or a file is missing or damaged.
        ModelMismatchError: when the adapter was made for another model.
    """
    with explained(source, loading):
        folder = fetched_adapter(source, loading)
        adapter = MlaAdapterConfig.from_pretrained(folder)
    if not adapter.base_model_name_or_path:
        raise ModelFolderError(f"{source}: adapter_config.json does not say which model the adapter is for")
    of_base = loading | {"revision": adapter.revision}  # that of the adapter is of another repository
    model, processor = load_dual_encoder(adapter.base_model_name_or_path, **of_base)
    if not isinstance(model, MlaModel):
        options = {name: value for name, value in loading.items() if name in _OF_TOKENIZERS}
        tokenizer = _tokenizer_beside(adapter.embedding or folder, **options)
        processor = MlaProcessor.for_native(
            model.config,
            processor,
            tokenizer,
            native_language=adapter.native_language,
            text_tower=adapter.text_tower,
        )
        model = MlaModel.from_native(model, **{name: getattr(adapter, name) for name in SHARED_OPTIONS})
    with explained(source, loading):
        load_adapter(model, folder)
    processor.languages = list(model.config.languages)
    return model, processor


def _tokenizer_beside(embedding: str, **loading: Any) -> PreTrainedTokenizerBase:
    """The tokenizer in the folder of a shared embedding, which may be a folder in a repository of the Hub."""
    if Path(embedding).is_dir():
        return load_processor(AutoTokenizer, embedding, **loading)
    owner, repository, *below = embedding.split("/")
    return load_processor(AutoTokenizer, f"{owner}/{repository}", **loading | {"subfolder": "/".join(below)})


# ---- A LoRA ----


def load_lora_adapter(source: str, **loading: Any) -> DualEncoder:
    """Loads the base model of a LoRA, and merges the adapter into it: the result is a plain model.

    Args:
        source: the adapter's folder, or its repository on the Hub: `adapter_config.json` and
            `adapter_model.safetensors`, as PEFT's `save_pretrained` writes them for any dual encoder.
        loading: what `from_pretrained` takes.

    Raises:
        ModelFolderError: if the adapter names no base model, or a file is missing or damaged.
        ModelMismatchError: if the adapter was made for another model, or cannot be merged.
    """
    with explained(source, loading):
        folder = fetched_adapter(source, loading)
        settings = adapter_settings(folder)
    base = settings.get("base_model_name_or_path")
    if not base:
        raise ModelFolderError(f"{source}: adapter_config.json does not say which model the adapter is for")
    # A revision that was asked for is that of the adapter, which is another repository.
    model, processor = load_dual_encoder(base, **loading | {"revision": settings.get("revision")})
    with explained(source, loading):
        try:
            adapted: Any = PeftModel.from_pretrained(model, folder)
            _check_weights(adapted, folder)
            return adapted.merge_and_unload(), processor
        except (ValueError, RuntimeError, KeyError) as error:
            raise ModelMismatchError(f"{source}: this LoRA does not fit {base}: {first_line(error)}") from error


def _check_weights(adapted: Any, folder: str) -> None:
    """Checks that the file has weights for every layer that its configuration names."""
    from peft.utils import get_peft_model_state_dict, load_peft_weights

    held = load_peft_weights(folder, device="cpu")
    wanted = get_peft_model_state_dict(adapted)
    missing, unknown = sorted(wanted.keys() - held.keys()), sorted(held.keys() - wanted.keys())
    if missing or unknown:
        raise ValueError(f"missing {missing[:3]}, unknown {unknown[:3]}")


# ---- The files of adapters that PEFT saved ----


_OF_REPOSITORIES = ("cache_dir", "local_files_only", "revision", "token")


def fetched_adapter(source: str, loading: dict[str, Any]) -> str:
    """Returns the folder of an adapter, which is downloaded if it is a repository; without an assembled model inside
    of it."""
    if Path(source).is_dir():
        return source
    where = {name: loading[name] for name in _OF_REPOSITORIES if name in loading}
    return snapshot_download(source, ignore_patterns=["model/*"], **where)


def adapter_settings(folder: str | Path) -> dict[str, Any]:
    """Returns what `adapter_config.json` states.

    Raises:
        OSError: if there is none.
        ValueError: if it is no JSON object.
    """
    held = json.loads(Path(folder, "adapter_config.json").read_text("utf-8"))
    if not isinstance(held, dict):
        raise ValueError("adapter_config.json is no object")
    return held
