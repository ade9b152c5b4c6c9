"""Loading an adapter of MLA: its base model with the adapter's language, as an `MlaModel` with its processor."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..configuration.errors import ModelFolderError
from ..configuration.pretrained import explained, load_processor
from ..modeling.modeling_mla import MlaModel
from ..modeling.peft_mla import MlaAdapterConfig
from ..modeling.peft_mla.conversion import SHARED_OPTIONS, load_adapter
from ..processing.processing_mla import MlaProcessor
from .adapter_files import fetched_adapter
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
