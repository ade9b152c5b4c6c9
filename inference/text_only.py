"""Embedders that sentence-transformers loads: encoders of texts alone, such as E5 and LaBSE, and embedders made of
vision-language models.

They are read by that library's own modules, with the pooling, the layers and the prompts that their folders state,
behind the interface of an `Embedder`, which refuses images where the model reads none.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    BatchFeature,
    PreTrainedConfig,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..modeling.tower_loading import check_text_encoder
from ..processing.text_inputs import as_texts
from ..utils.errors import InputError, MissingExtraError, ModelKindError
from ..utils.hub_code import optional_file
from ..utils.pretrained import explained
from ..utils.sentence_files import MODULES_FILE

_FILE_OPTIONS = ("cache_dir", "local_files_only", "revision", "token")
_OF_LIBRARY = (*_FILE_OPTIONS, "trust_remote_code", "model_kwargs", "processor_kwargs", "config_kwargs")
# The ways to pool texts, with what sentence-transformers calls them.
_POOLINGS = {"mean": "mean", "cls": "cls", "eos": "lasttoken"}
# The names under which folders state what is put before a text that is searched with, and before what is found.
_QUERY, _DOCUMENT = "query", "document"


class SentenceEncoder(nn.Module):
    """An embedder of sentence-transformers as a model that reads texts; `SentenceImageEncoder` reads images too.

    Args:
        model: a `SentenceTransformer`.
        query_prompt: what is put before every text; by default the prompt named `query` that the folder states, else
            its default one.
    """

    def __init__(self, model: Any, query_prompt: str | None = None) -> None:
        super().__init__()
        self.sentence_transformer = model
        stated: Mapping[str, str] = model.prompts or {}
        default = stated.get(model.default_prompt_name or "", "")
        self.query_prompt = query_prompt if query_prompt is not None else stated.get(_QUERY) or default
        self.image_prompt = stated.get(_DOCUMENT) or default
        self.eval()

    @property
    def config(self) -> PreTrainedConfig:
        """The configuration of the model inside, or an empty one."""
        inside = getattr(self.sentence_transformer[0], "model", None)
        return getattr(inside, "config", None) or PreTrainedConfig()

    def get_input_embeddings(self) -> nn.Module:
        """The table of tokens of the model inside; an AttributeError where it has none."""
        table: nn.Module = self.sentence_transformer[0].model.get_input_embeddings()
        return table

    @property
    def identity_settings(self) -> str:
        """What its embeddings depend on beside weights and configuration (`model_identity`)."""
        model = self.sentence_transformer
        return f"{[repr(part) for part in model]} {model.truncate_dim} {self.query_prompt!r} {self.image_prompt!r}"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return torch.device(self.sentence_transformer.device)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the weights."""
        return next((each.dtype for each in self.parameters() if each.is_floating_point()), torch.float32)

    def get_text_features(self, texts: Sequence[str]) -> BaseModelOutputWithPooling:
        """The embeddings of texts, as `pooler_output`, [N, d]."""
        return self._embedded(list(texts), self.query_prompt)

    def _prepared(self, inputs: list[Any], prompt: str) -> Mapping[str, Any]:
        prepared: Mapping[str, Any] = self.sentence_transformer.preprocess(inputs, prompt=prompt or None)
        return prepared

    def _embedded(self, inputs: list[Any], prompt: str) -> BaseModelOutputWithPooling:
        from sentence_transformers.util import batch_to_device

        model = self.sentence_transformer
        features = batch_to_device(self._prepared(inputs, prompt), self.device)
        embeddings = model(features)["sentence_embedding"]
        return BaseModelOutputWithPooling(pooler_output=embeddings[:, : model.truncate_dim])


class SentenceImageEncoder(SentenceEncoder):
    """An embedder of sentence-transformers that reads texts and images."""

    def get_image_features(self, images: Sequence[Any]) -> BaseModelOutputWithPooling:
        """The embeddings of Pillow images, as `pooler_output`, [N, d]."""
        return self._embedded(list(images), self.image_prompt)


class SentenceInputs:
    """In the place of a processor: hands texts and images on as they are, because sentence-transformers prepares them
    itself. Texts may be in any language."""

    one_tokenizer, needs_language, any_language = False, False, True
    tokenizer = image_processor = None

    def __call__(
        self, images: Any = None, text: Any = None, language: Any = None, return_tensors: Any = None
    ) -> BatchFeature:
        """Returns `texts` and `images` as lists."""
        if images is None and text is None:
            raise InputError("give images=, text=, or both")
        given = {} if text is None else {"texts": as_texts(text)}
        return BatchFeature(given | ({} if images is None else {"images": list(images)}))


def needs_sentence_transformers(source: str, **loading: Any) -> bool:
    """Whether a folder or a repository is one of sentence-transformers that is neither a dual encoder nor one of
    babelens: it states modules, and its model has no features of texts and of images.
    """
    file = optional_file(source, MODULES_FILE, loading)
    if file is None:
        return False
    try:
        kinds = [str(module["type"]) for module in json.loads(file.read_text("utf-8"))]
    except (ValueError, TypeError, KeyError):
        return False
    if any(kind.startswith(("pipelines.", "babelens_code.")) for kind in kinds):  # of babelens
        return False
    given = {name: loading[name] for name in (*_FILE_OPTIONS, "trust_remote_code") if name in loading}
    given = {"trust_remote_code": False} | given
    try:
        found = MODEL_MAPPING.get(type(AutoConfig.from_pretrained(source, **given)), None)
    except (OSError, ValueError):
        found = None
    return not (hasattr(found, "get_text_features") and hasattr(found, "get_image_features"))


def load_sentence_transformer(source: str, **loading: Any) -> Any:
    """Loads a `SentenceTransformer`, by that library.

    Args:
        source: a folder, or a repository on the Hub.
        loading: what `from_pretrained` takes, such as `trust_remote_code`.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(f"{source} needs pip install sentence-transformers") from error
    given = {name: value for name, value in loading.items() if name in _OF_LIBRARY}
    given = {"cache_folder" if name == "cache_dir" else name: value for name, value in given.items()}
    try:
        return SentenceTransformer(source, **given)
    except (OSError, ValueError, ImportError) as error:
        raise ModelKindError(f"{source}: sentence-transformers cannot load it: {error}") from error


def load_sentence_encoder(
    source: str, *, text_pooling: str | None = None, text_prompt: str | None = None, **loading: Any
) -> tuple[SentenceEncoder, SentenceInputs]:
    """Loads an embedder of sentence-transformers for an `Embedder`. Of its weights, only safetensors are read.

    Args:
        source: a folder, or a repository on the Hub.
        text_pooling: how texts are pooled, `mean`, `cls` or `eos`, in the place of what the folder states.
        text_prompt: what is put before every text, in the place of the prompt that the folder states.
        loading: what `from_pretrained` takes, such as `trust_remote_code`.
    """
    weights = {"use_safetensors": loading.get("use_safetensors", True)} | loading.pop("model_kwargs", {})
    with explained(source, loading, weights=True):
        model = load_sentence_transformer(source, model_kwargs=weights, **loading)
    if text_pooling is not None:
        from sentence_transformers.sentence_transformer.modules import Pooling

        if text_pooling not in _POOLINGS:
            raise ModelKindError(
                f"text_pooling={text_pooling!r}: sentence-transformers pools texts by {', '.join(_POOLINGS)}"
            )
        if not isinstance(model[1], Pooling):
            raise ModelKindError(f"{source} is no encoder of texts alone: leave out text_pooling")
        model[1] = Pooling(model[0].get_embedding_dimension(), pooling_mode=_POOLINGS[text_pooling])
    kind = SentenceImageEncoder if model.supports("image") else SentenceEncoder
    return kind(model, text_prompt), SentenceInputs()


def is_text_encoder(config: PreTrainedConfig) -> bool:
    """Whether a configuration is that of an encoder of texts alone, which transformers has a class for."""
    if type(config) not in MODEL_MAPPING:
        return False
    classes = MODEL_MAPPING[type(config)]
    for each in classes if isinstance(classes, tuple) else (classes,):
        reads = each.input_modalities
        if hasattr(each, "get_text_features") or "image" in ([reads] if isinstance(reads, str) else reads):
            return False
    try:
        check_text_encoder(config)
    except ModelKindError:
        return False
    return True
