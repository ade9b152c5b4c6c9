"""Text encoders without images, such as E5 and LaBSE, for comparison: read as sentence-transformers reads them.

Their folders state in files of sentence-transformers how texts are pooled (`1_Pooling`), which layers follow
(`2_Dense`), how long texts may be, and what is put before every text. An `Embedder` encodes texts with them, and
refuses images.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoTokenizer,
    BatchFeature,
    PreTrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..configuration.configuration_two_tower import POOLER, TextPooling, declared_pooling
from ..configuration.errors import InputError, MissingExtraError, ModelFolderError, ModelKindError
from ..configuration.hub_code import MODALITIES_FILE, MODULES_FILE, SETTINGS_FILE, optional_file
from ..configuration.pretrained import explained, load_processor
from ..modeling.tower_loading import check_text_encoder, load_text_encoder
from ..modeling.towers import pool_text
from ..processing.processing_dual_encoder import DualEncoderProcessor, longest_text
from ..processing.text_inputs import as_texts

# ---- By sentence-transformers ----
# Embedders that sentence-transformers loads itself, such as those made of vision-language models: read by its own
# modules, with the prompts that their folders state, behind the interface of an `Embedder`.
#
# Encoders of texts alone that babelens can pool itself are read without that library (below).


_FILE_OPTIONS = ("cache_dir", "local_files_only", "revision", "token")
_OF_LIBRARY = (*_FILE_OPTIONS, "trust_remote_code", "model_kwargs", "processor_kwargs", "config_kwargs")
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

    def prepared_texts(self, texts: Sequence[str]) -> dict[str, Any]:
        """What the model inside reads of texts, the prompt among it, such as `input_ids` and `attention_mask`."""
        return dict(self._prepared(list(texts), self.query_prompt))

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

    Raises:
        OSError: if there is no such folder or repository.
    """
    file = optional_file(source, MODULES_FILE, loading)
    if file is None:
        return False
    try:
        kinds = [str(module["type"]) for module in json.loads(file.read_text("utf-8"))]
    except (ValueError, TypeError, KeyError):
        return False
    if any(kind.startswith(("sentence_modules.", "babelens_code.")) for kind in kinds):  # of babelens
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

    Raises:
        MissingExtraError: if it is not installed.
        ModelKindError: for a folder or a repository that it cannot load.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(f"{source} needs pip install 'babelens[sentence-transformers]'") from error
    given = {name: value for name, value in loading.items() if name in _OF_LIBRARY}
    given = {"cache_folder" if name == "cache_dir" else name: value for name, value in given.items()}
    try:
        return SentenceTransformer(source, **given)
    except (OSError, ValueError, ImportError) as error:
        raise ModelKindError(f"{source}: sentence-transformers cannot load it: {error}") from error


def load_sentence_encoder(
    source: str, *, text_prompt: str | None = None, **loading: Any
) -> tuple[SentenceEncoder, SentenceInputs]:
    """Loads an embedder of sentence-transformers for an `Embedder`.

    Args:
        source: a folder, or a repository on the Hub.
        text_prompt: what is put before every text, in the place of the prompt that the folder states.
        loading: what `from_pretrained` takes, such as `trust_remote_code`.

    Raises:
        MissingExtraError, ModelKindError: as `load_sentence_transformer`.
    """
    model = load_sentence_transformer(source, **loading)
    kind = SentenceImageEncoder if model.supports("image") else SentenceEncoder
    return kind(model, text_prompt), SentenceInputs()


# ---- Without it ----

_ACTIVATIONS = {"Tanh": nn.Tanh, "Identity": nn.Identity, "ReLU": nn.ReLU, "GELU": nn.GELU}


class TextEncoder(nn.Module):
    """A text encoder with its pooling and the layers after it.

    Args:
        encoder: the encoder.
        pooling: how its texts are pooled.
        layers: the layers from pooled texts to features, [N, width] -> [N, d].
    """

    def __init__(self, encoder: PreTrainedModel, pooling: TextPooling, layers: nn.Module) -> None:
        super().__init__()
        if pooling != POOLER and getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # it is not used, and checkpoints may lack its weights
        self.encoder, self.pooling, self.layers = encoder, pooling, layers
        self.eval()

    @property
    def config(self) -> PreTrainedConfig:
        """The configuration of the encoder."""
        return self.encoder.config

    @property
    def identity_settings(self) -> str:
        """What its embeddings depend on beside weights and configuration (`model_identity`)."""
        return f"{self.pooling} {self.layers}"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.encoder.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the weights."""
        return self.encoder.dtype

    def get_input_embeddings(self) -> nn.Module:
        """The table of tokens."""
        return self.encoder.get_input_embeddings()

    def get_text_features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BaseModelOutputWithPooling:
        """The features of texts, as `pooler_output`, [N, d]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        end_id = getattr(self.config, "eos_token_id", None)
        pooled = pool_text(output, attention_mask, self.pooling, input_ids=input_ids, end_id=end_id)
        return BaseModelOutputWithPooling(
            last_hidden_state=output.last_hidden_state, pooler_output=self.layers(pooled)
        )


class TextEncoderProcessor(DualEncoderProcessor):
    """Turns texts into the inputs of a text encoder.

    Args:
        tokenizer: its tokenizer.
        text_prompt, max_text_length, pad_to_max_length: as in `DualEncoderProcessor`.
    """

    def __init__(self, tokenizer: Any, text_prompt: str, max_text_length: int, pad_to_max_length: bool) -> None:
        ProcessorMixin.__init__(self, tokenizer)  # without the image processor that the base class has
        self.image_processor = None
        self.text_prompt, self.max_text_length = text_prompt, max_text_length
        self.pad_to_max_length = pad_to_max_length
        tokenizer.model_input_names = ["input_ids", "attention_mask"]


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


def load_text_only(
    source: str,
    config: PreTrainedConfig,
    *,
    text_pooling: TextPooling | None = None,
    text_prompt: str | None = None,
    **loading: Any,
) -> tuple[TextEncoder, TextEncoderProcessor]:
    """Loads a text encoder with its processor.

    Args:
        source: a folder, or a repository on the Hub.
        config: its configuration.
        text_pooling: how texts are pooled; by default as the folder states it.
        text_prompt: what is put before every text, such as "query: " for E5; by default the default prompt that the
            folder states, or nothing.
        loading: what `from_pretrained` takes.

    Raises:
        ModelFolderError: when a file is missing or damaged.
        ModelKindError: when the folder does not state its pooling, or has layers that babelens does not.
    """
    with explained(source, loading):
        pooling = text_pooling or declared_pooling(source, **loading)
    if pooling is None:
        raise ModelKindError(
            f"{source} is a text encoder that does not state how its texts are pooled (1_Pooling/config.json): choose "
            "text_pooling, one of mean, cls, eos or pooler; its card tells which, such as mean for E5"
        )
    files = {name: _read(source, name, loading) for name in (MODULES_FILE, MODALITIES_FILE, SETTINGS_FILE)}
    layers = _layers(source, files[MODULES_FILE] or [], loading)
    encoder = load_text_encoder(source, pooling=pooling, **loading)
    tokenizer = load_processor(AutoTokenizer, source, **loading)
    settings = files[MODALITIES_FILE] or {}
    if settings.get("do_lower_case"):
        raise ModelKindError(
            f"{source} asks for texts in lower case ({MODALITIES_FILE}), which babelens does not make"
        )
    prompts = files[SETTINGS_FILE] or {}
    if text_prompt is None:
        text_prompt = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name"), "")
    longest = longest_text(config, tokenizer)
    processor = TextEncoderProcessor(
        tokenizer,
        text_prompt=text_prompt,
        max_text_length=min(longest, settings.get("max_seq_length") or longest),
        pad_to_max_length="siglip" in config.model_type,
    )
    if getattr(encoder.config, "truncate_dim", None) is None and prompts.get("truncate_dim"):
        encoder.config.truncate_dim = prompts["truncate_dim"]
    return TextEncoder(encoder, pooling, layers), processor


def _read(source: str, name: str, loading: dict[str, Any]) -> Any:
    """The content of a file of sentence-transformers; None where there is no such file."""
    with explained(source, loading):
        file = optional_file(source, name, loading)
    if file is None:
        return None
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ModelFolderError(f"{source}: {name} is damaged: {error}") from error


def _layers(source: str, modules: list[dict[str, str]], loading: dict[str, Any]) -> nn.Module:
    """The layers after the pooling that a folder states; an `Embedder` normalizes vectors by itself."""
    layers: list[nn.Module] = []
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Dense":
            layers += _dense(source, module["path"], loading)
        elif kind not in ("Transformer", "Pooling", "Normalize"):
            raise ModelKindError(f"{source} has a layer {kind} ({MODULES_FILE}), which babelens does not have")
    return nn.Sequential(*layers)


def _dense(source: str, path: str, loading: dict[str, Any]) -> list[nn.Module]:
    """A linear layer with its activation, as LaBSE has one."""
    settings = _read(source, f"{path}/config.json", loading) or {}
    with explained(source, loading):
        file = optional_file(source, f"{path}/model.safetensors", loading)
    if file is None:
        raise ModelFolderError(f"{source}: {path}/model.safetensors is missing, the weights of a layer")
    activation = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
    if settings.get("use_residual") or activation not in _ACTIVATIONS:
        raise ModelKindError(
            f"{source}: the layer {path} has the activation {activation} or a residual connection, which babelens "
            f"does not have; it has {', '.join(_ACTIVATIONS)}"
        )
    try:
        linear = nn.Linear(settings["in_features"], settings["out_features"], settings.get("bias", True))
        linear.load_state_dict({name.removeprefix("linear."): value for name, value in load_file(file).items()})
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelFolderError(f"{source}: the layer {path} is damaged: {error}") from error
    return [linear, _ACTIVATIONS[activation]()]
