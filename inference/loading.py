"""Loading a dual encoder with its processor, from a model's folder or from an adapter's; or an encoder of texts alone.

How an adapter is loaded depends on its kind, which PEFT calls `peft_type`: an adapter of MLA gives an `MlaModel` that
reads the adapter's language too; a LoRA is merged into the weights.
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from peft import PeftModel
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.utils.peft_utils import find_adapter_config_file

from ..modeling.modeling_mla import MlaModel
from ..modeling.peft_mla import MLA, MlaAdapterConfig
from ..modeling.peft_mla.conversion import SHARED_OPTIONS, load_adapter
from ..modeling.tower_loading import declared_pooling
from ..processing.processing_mla import MlaProcessor
from ..utils.errors import InputError, ModelFolderError, ModelKindError, first_line
from ..utils.hub_code import optional_file
from ..utils.pretrained import explained, load_config, load_model, load_processor, located
from ..utils.sentence_files import SETTINGS_FILE
from .text_only import (
    SentenceEncoder,
    SentenceInputs,
    is_text_encoder,
    load_sentence_encoder,
    needs_sentence_transformers,
)

DualEncoder = tuple[PreTrainedModel, ProcessorMixin]
# The options of loading a model that also find an adapter.
_OF_ADAPTERS = ("local_files_only", "revision", "token")
_OF_TEXT_ENCODERS = ("text_pooling", "text_prompt")
_OF_TOKENIZERS = ("cache_dir", "local_files_only", "token", "trust_remote_code")
_OF_REPOSITORIES = ("cache_dir", "local_files_only", "revision", "token")


def load_encoder(
    folder_or_repo: str | Path, **loading: Any
) -> tuple[PreTrainedModel | SentenceEncoder, ProcessorMixin | SentenceInputs]:
    """Loads a dual encoder, an encoder of texts alone or an embedder of sentence-transformers, with its processor.

    Args:
        folder_or_repo: as in `load_dual_encoder`.
        loading: as in `load_dual_encoder`; for an encoder of texts alone `text_pooling` and `text_prompt` too, as in
            `load_sentence_encoder`.
    """
    source = str(folder_or_repo)
    own = {name: loading.pop(name) for name in _OF_TEXT_ENCODERS if name in loading}
    where = located(source, **loading)
    if not find_adapter_config_file(source, **_of_adapters(where)):
        with explained(source, where):
            is_sentences = needs_sentence_transformers(source, **where)
        if not is_sentences and is_text_encoder(load_config(source, **where)):
            is_sentences = True
            with explained(source, where):
                pooling = own.get("text_pooling") or declared_pooling(source, **where)
            if pooling is None:
                raise ModelKindError(
                    f"{source} is a text encoder that does not state how its texts are pooled (1_Pooling/config.json):"
                    " choose text_pooling, one of mean, cls or eos; its card tells which, such as mean for E5"
                )
            own["text_pooling"] = pooling
        if is_sentences:
            return load_sentence_encoder(source, **own, **where)
    if own:
        raise ModelKindError(f"{source} is no encoder of texts alone: leave out {' and '.join(own)}")
    return load_dual_encoder(source, **loading)


def load_dual_encoder(folder_or_repo: str | Path, **loading: Any) -> DualEncoder:
    """Loads a model and its processor.

    Args:
        folder_or_repo: a folder, or a repository on the Hub, of a model or of an adapter.
        loading: what `from_pretrained` takes, such as `trust_remote_code`.
    """
    source, loading = str(folder_or_repo), located(folder_or_repo, **loading)
    adapter = find_adapter_config_file(source, **_of_adapters(loading))
    if adapter:
        return _load_adapted(adapter, source, **loading)
    model = load_model(AutoModel, source, **loading)
    processor = load_processor(AutoProcessor, source, **loading)
    # Where a folder has no processor, transformers loads the tokenizer instead.
    if hasattr(model, "get_image_features") and not hasattr(processor, "image_processor"):
        raise ModelFolderError(f"{source} has no processor for images: save the model's processor there")
    return model, processor


def stated_truncation(folder_or_repo: str | Path, config: Any, **loading: Any) -> int | None:
    """The number of dimensions of embeddings that are kept, as a model's configuration states it, or the settings of
    sentence-transformers in its folder or repository; None for all."""
    stated = getattr(config, "truncate_dim", None)
    settings = optional_file(folder_or_repo, SETTINGS_FILE, loading)
    if stated is None and settings is not None:
        try:
            stated = json.loads(settings.read_text("utf-8")).get("truncate_dim")
        except ValueError as error:
            raise ModelFolderError(f"{folder_or_repo}: {SETTINGS_FILE} is damaged: {error}") from error
    return stated


def _of_adapters(loading: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in loading.items() if name in _OF_ADAPTERS}


# ---- Adapters ----


def _load_adapted(configuration: str, source: str, **loading: Any) -> DualEncoder:
    """Loads an adapter with its base model, by the kind that its configuration file states."""
    with explained(source, loading):
        settings = json.loads(Path(configuration).read_text("utf-8"))
    peft_type = settings.get("peft_type") if isinstance(settings, dict) else None
    if peft_type == MLA.value:
        return _load_mla_adapter(source, **loading)
    if peft_type == "LORA":
        return _load_lora_adapter(source, **loading)
    raise ModelKindError(f"{source} holds an adapter of {peft_type or 'no kind'}, and not of LORA or MLA")


def _load_mla_adapter(source: str, **loading: Any) -> DualEncoder:
    """Loads an adapter's base model, and adds the adapter's language to it.

    Args:
        source: the adapter's folder, or its repository on the Hub.
        loading: what `from_pretrained` takes.
    """
    with explained(source, loading):
        folder = _fetched_adapter(source, loading)
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
            normalization=adapter.normalization,
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


def _load_lora_adapter(source: str, **loading: Any) -> DualEncoder:
    """Loads the base model of a LoRA, and merges the adapter into it: the result is a plain model.

    Args:
        source: the adapter's folder, or its repository on the Hub: `adapter_config.json` and
            `adapter_model.safetensors`, as PEFT's `save_pretrained` writes them for any dual encoder.
        loading: what `from_pretrained` takes.
    """
    with explained(source, loading):
        folder = _fetched_adapter(source, loading)
        settings = _adapter_settings(folder)
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
            raise InputError(f"{source}: this LoRA does not fit {base}: {first_line(error)}") from error


def _check_weights(adapted: Any, folder: str) -> None:
    """Checks that the file has weights for every layer that its configuration names."""
    from peft.utils import get_peft_model_state_dict, load_peft_weights

    held = load_peft_weights(folder, device="cpu")
    wanted = get_peft_model_state_dict(adapted)
    missing, unknown = sorted(wanted.keys() - held.keys()), sorted(held.keys() - wanted.keys())
    if missing or unknown:
        raise ValueError(f"missing {missing[:3]}, unknown {unknown[:3]}")


def _fetched_adapter(source: str, loading: dict[str, Any]) -> str:
    """Returns the folder of an adapter, which is downloaded if it is a repository; without an assembled model inside
    of it."""
    if Path(source).is_dir():
        return source
    where = {name: loading[name] for name in _OF_REPOSITORIES if name in loading}
    return snapshot_download(source, ignore_patterns=["model/*"], **where)


def _adapter_settings(folder: str | Path) -> dict[str, Any]:
    """Returns what `adapter_config.json` states."""
    held = json.loads(Path(folder, "adapter_config.json").read_text("utf-8"))
    if not isinstance(held, dict):
        raise ValueError("adapter_config.json is no object")
    return held
