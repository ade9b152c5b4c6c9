"""Loads a dual encoder with its processor, from a model's folder or from an adapter's (of MLA, or a LoRA, which is
merged into the weights); or a model of sentence-transformers, of texts (E5, LaBSE) or of texts and images."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from peft import PeftModel
from peft.utils import SAFETENSORS_WEIGHTS_NAME, get_peft_model_state_dict, load_peft_weights
from torch import nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    BatchFeature,
    PreTrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.peft_utils import find_adapter_config_file

from ..modeling.peft_mla import MLA, to_mla_model
from ..processing.processing_mla import MlaProcessor
from ..utils.errors import InputError, ModelFolderError, ModelKindError, first_line, requires
from ..utils.files import optional_file
from ..utils.pretrained import check_finite, explained, load_model, load_processor, located
from ..utils.sentence_files import MODULES_FILE, SETTINGS_FILE

DualEncoder = tuple[PreTrainedModel, ProcessorMixin]
_OF_REPOSITORIES = ("cache_dir", "local_files_only", "revision", "token")  # that other functions take too


def load_encoder(
    folder_or_repo: str | Path, *, text_prompt: str | None = None, **loading: Any
) -> "tuple[PreTrainedModel | SentenceEncoder, ProcessorMixin | SentenceInputs]":
    """Loads a dual encoder (`load_dual_encoder`) or a model of sentence-transformers, with its processor. In the
    latter, `text_prompt` precedes every text, instead of the prompt that the folder states."""
    source = str(folder_or_repo)
    where = located(source, **loading)
    if not find_adapter_config_file(source, **_only(where)):
        with explained(source, where):
            if needs_sentence_transformers(source, **where):
                # Of its weights, only safetensors are read.
                weights = {"use_safetensors": where.get("use_safetensors", True)} | where.pop("model_kwargs", {})
                loaded = load_sentence_transformer(source, model_kwargs=weights, **where)
                return SentenceEncoder(loaded, text_prompt), SentenceInputs()
    if text_prompt is not None:
        raise ModelKindError(f"{source} is not an embedder of sentence-transformers: leave out text_prompt")
    return load_dual_encoder(source, **loading)


def load_dual_encoder(folder_or_repo: str | Path, **loading: Any) -> DualEncoder:
    """Loads a model or an adapter, and its processor; `loading` are arguments of `from_pretrained`."""
    source, loading = str(folder_or_repo), located(folder_or_repo, **loading)
    adapter = find_adapter_config_file(source, **_only(loading))
    if adapter:
        return _load_adapted(adapter, source, **loading)
    model = load_model(AutoModel, source, **loading)
    processor = load_processor(AutoProcessor, source, **loading)
    # If a folder has no processor, transformers loads the tokenizer instead.
    if hasattr(model, "get_image_features") and not hasattr(processor, "image_processor"):
        raise ModelFolderError(f"{source} has no processor for images: save the model's processor there")
    return model, processor


def stated_truncation(folder_or_repo: str | Path, config: Any, **loading: Any) -> int | None:
    """The dimensions to keep that a model's configuration, or sentence-transformers' settings, state; None for all."""
    stated = getattr(config, "truncate_dim", None)
    settings = optional_file(folder_or_repo, SETTINGS_FILE, loading)
    if stated is None and settings is not None:
        try:
            stated = json.loads(settings.read_text("utf-8")).get("truncate_dim")
        except ValueError as error:
            raise ModelFolderError(f"{folder_or_repo}: {SETTINGS_FILE} is damaged: {error}") from error
    return stated


def _only(loading: Mapping[str, Any], *more: str) -> dict[str, Any]:
    return {name: loading[name] for name in (*_OF_REPOSITORIES, *more) if name in loading}


def _load_adapted(configuration: str, source: str, **loading: Any) -> DualEncoder:
    """Loads an adapter with its base model, by the kind that its configuration file states."""
    with explained(source, loading):
        settings = json.loads(Path(configuration).read_text("utf-8"))
        folder = source
        if not Path(source).is_dir():  # without an assembled model inside of it
            folder = snapshot_download(source, ignore_patterns=["model/*"], **_only(loading))
    peft_type, base = settings.get("peft_type"), settings.get("base_model_name_or_path")
    if peft_type not in (MLA.value, "LORA"):
        raise ModelKindError(f"{source} holds an adapter of {peft_type or 'no kind'}, and not of LORA or MLA")
    if not base:
        raise ModelFolderError(f"{source}: adapter_config.json does not say which model the adapter is for")
    if not Path(folder, SAFETENSORS_WEIGHTS_NAME).is_file():
        raise ModelFolderError(f"{source} has no {SAFETENSORS_WEIGHTS_NAME}; pickles are not read")
    # The adapter's revision belongs to another repository.
    model, processor = load_dual_encoder(base, **loading | {"revision": settings.get("revision")})
    with explained(source, loading):
        try:
            with warnings.catch_warnings(action="ignore"):  # PEFT only warns about missing weights
                adapted: Any = PeftModel.from_pretrained(model, folder)
            held, wanted = load_peft_weights(folder, device="cpu"), get_peft_model_state_dict(adapted)
            if differing := sorted(wanted.keys() ^ held.keys()):
                raise ValueError(f"missing or unknown weights {differing[:3]}")
        except (ValueError, RuntimeError, KeyError) as error:
            raise InputError(f"{source}: this adapter does not fit {base}: {first_line(error)}") from error
        check_finite(held, source)
        if peft_type != MLA.value:
            return adapted.merge_and_unload(), processor
        tokenizer = load_processor(AutoTokenizer, folder, **_only(loading, "trust_remote_code"))
    adapter = adapted.active_peft_config
    given = {"native_language": adapter.native_language, "languages": [adapter.language]}
    given["normalization"] = adapter.normalization
    return to_mla_model(adapted), MlaProcessor.for_native(model.config, processor, tokenizer, **given)


class SentenceEncoder(nn.Module):
    """A `SentenceTransformer` as a dual encoder. `query_prompt` precedes every text; by default it is the prompt named
    `query` that the folder states, else its default one."""

    def __init__(self, model: Any, query_prompt: str | None = None) -> None:
        super().__init__()
        self.sentence_transformer, self.takes_images = model, model.supports("image")
        stated: Mapping[str, str] = model.prompts or {}
        default = stated.get(model.default_prompt_name or "", "")
        self.query_prompt = query_prompt if query_prompt is not None else stated.get("query") or default
        self.image_prompt = stated.get("document") or default
        self.eval()

    @property
    def config(self) -> PreTrainedConfig:
        inside = getattr(self.sentence_transformer[0], "model", None)
        return getattr(inside, "config", None) or PreTrainedConfig()

    @property
    def identity_settings(self) -> str:
        """All that its embeddings depend on, apart from weights and configuration (`model_identity`)."""
        model = self.sentence_transformer
        return f"{[repr(part) for part in model]} {model.truncate_dim} {self.query_prompt!r} {self.image_prompt!r}"

    @property
    def device(self) -> torch.device:
        return torch.device(self.sentence_transformer.device)

    @property
    def dtype(self) -> torch.dtype:
        return next((each.dtype for each in self.parameters() if each.is_floating_point()), torch.float32)

    def get_text_features(self, texts: Sequence[str]) -> BaseModelOutputWithPooling:
        """The embeddings of texts, as `pooler_output`, [N, d]."""
        return self._embedded(texts, self.query_prompt)

    def get_image_features(self, images: Sequence[Any]) -> BaseModelOutputWithPooling:
        """The embeddings of Pillow images, as `pooler_output`, [N, d]; only where the model `takes_images`."""
        return self._embedded(images, self.image_prompt)

    def _embedded(self, inputs: Sequence[Any], prompt: str) -> BaseModelOutputWithPooling:
        from sentence_transformers.util import batch_to_device

        model = self.sentence_transformer
        features = batch_to_device(model.preprocess(list(inputs), prompt=prompt or None), self.device)
        return BaseModelOutputWithPooling(pooler_output=model(features)["sentence_embedding"][:, : model.truncate_dim])


def as_output(features: BaseModelOutputWithPooling | torch.Tensor) -> BaseModelOutputWithPooling:
    """Returns a dual encoder's features as an output; code that comes with a model may return only a tensor [N, d]."""
    return BaseModelOutputWithPooling(pooler_output=features) if isinstance(features, torch.Tensor) else features


class SentenceInputs:
    """Passes texts, in any language, and images on, because sentence-transformers prepares them itself."""

    needs_language = False
    tokenizer = image_processor = None

    def __call__(
        self, images: Any = None, text: Any = None, language: Any = None, return_tensors: Any = None
    ) -> BatchFeature:
        given = {"texts": text, "images": images}
        return BatchFeature({name: list(values) for name, values in given.items() if values is not None})


def needs_sentence_transformers(source: str, **loading: Any) -> bool:
    """Returns whether a folder or a repository belongs to sentence-transformers, and is not a dual encoder of
    transformers or babelens: it states modules, and its model has no features of texts and of images."""
    file = optional_file(source, MODULES_FILE, loading)
    try:
        kinds = [str(module["type"]) for module in json.loads(file.read_text("utf-8") if file else "[]")]
    except (ValueError, TypeError, KeyError):
        kinds = []
    if not kinds or any(kind.startswith(("pipelines.", "babelens_code.")) for kind in kinds):  # of babelens
        return False
    given = {"trust_remote_code": False} | _only(loading, "trust_remote_code")
    try:
        found = MODEL_MAPPING.get(type(AutoConfig.from_pretrained(source, **given)), None)
    except (OSError, ValueError):
        found = None
    return not (hasattr(found, "get_text_features") and hasattr(found, "get_image_features"))


def load_sentence_transformer(source: str, **loading: Any) -> Any:
    """Loads a `SentenceTransformer` with the arguments in `loading` that the library takes."""
    with requires("sentence-transformers"):
        from sentence_transformers import SentenceTransformer
    given = _only(loading, "trust_remote_code", "model_kwargs", "processor_kwargs", "config_kwargs")
    try:
        return SentenceTransformer(source, cache_folder=given.pop("cache_dir", None), **given)
    except (OSError, ValueError, ImportError) as error:
        raise ModelKindError(f"{source}: sentence-transformers cannot load it: {error}") from error
