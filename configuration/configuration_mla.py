"""Configurations of models that add languages to a frozen dual encoder: MLA (Zhang et al. 2022) and its baselines, by
default the paper's (CLIP ViT-B/32, five languages in addition to English, acquirers of width 256, and M-BERT's
vocabulary: sections 3.2 and 4.1), and ridge regression."""

import os
from importlib import import_module
from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..utils.errors import ModelKindError
from ..utils.languages import normalize_language
from .configuration_two_tower import (
    POOLER,
    DualEncoderConfig,
    TextPooling,
    check_positive,
    check_probabilities,
    check_projection_dim,
    image_width,
)

# ---- The native model ----

# The poolings of `TextPooling`, and `last`: SigLIP's, the state at the last position of a text that is padded to the
# full length.
TowerPooling = TextPooling | Literal["last"]

_POOLINGS: dict[str, TowerPooling] = {"clip": "eos", "metaclip_2": "eos", "siglip": "last", "siglip2": "last"}
# Dual encoders that can acquire languages, by `model_type`, and text encoders of a `VisionTextDualEncoderModel`.
_DUAL_ENCODERS = (*_POOLINGS, "align", "altclip", "chinese_clip", "mural", "etcl", "vision-text-dual-encoder")
_ENCODERS = (
    *(f"{name}_text_model" for name in (*_POOLINGS, "align", "altclip", "chinese_clip")),
    *("bert", "electra", "ernie", "megatron-bert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert"),
    *("roberta-prelayernorm", "data2vec-text"),
)
# Text encoders that count positions from the padding token's id plus one, as fairseq does.
_POSITIONS_AFTER_PADDING = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text", "mpnet"),
    "altclip_text_model",
)


def tower_pooling(config: PreTrainedConfig | None) -> TowerPooling:
    """Returns the pooling of the text tower of a dual encoder with this configuration, if MLA supports it."""
    kind = getattr(config, "model_type", None)
    encoder = getattr(getattr(config, "text_config", None), "model_type", None)
    name, supported = (encoder, _ENCODERS) if kind == "vision-text-dual-encoder" else (kind, _DUAL_ENCODERS)
    if name not in supported:
        raise ModelKindError(f"MLA does not support {name!r} models; it supports {', '.join(supported)}")
    stated: TextPooling = getattr(config, "text_pooling", POOLER)
    return _POOLINGS.get((encoder or name).removesuffix("_text_model"), "cls") if stated == POOLER else stated


def text_positions(text_config: PreTrainedConfig) -> int | None:
    """Returns the number of token positions of a text encoder, or `None` if its configuration does not state it."""
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions is not None and text_config.model_type in _POSITIONS_AFTER_PADDING:
        return positions - text_config.pad_token_id - 1
    return positions


RESNET_REDUCTION = 32  # pixels of height and width for each position of a ResNet's last stage


@strict
class ClipResNetConfig(PreTrainedConfig):
    """Configuration of a `ClipResNetModel`, by default RN50 (Radford et al. 2021, section 2.4): the ResNets of
    OpenAI's CLIP, which transformers lacks and MLA's authors trained too (table 2). `width` is the number of channels
    of the first stage, and each of the four stages has four times as many outputs; `hidden_size` is the width of
    CLIP's shared space, and `image_size`, in pixels, is a multiple of 32."""

    model_type = "clip_resnet"
    base_config_key = "vision_config"

    width: int = 64
    depths: list[int] | tuple[int, ...] = (3, 4, 6, 3)
    hidden_size: int = 1024
    num_attention_heads: int = 32
    image_size: int = 224
    num_channels: int = 3
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        self.depths = list(self.depths)
        if self.image_size < RESNET_REDUCTION or self.image_size % RESNET_REDUCTION:
            raise ValueError(f"image_size={self.image_size} must be a multiple of {RESNET_REDUCTION}")
        super().__post_init__(**kwargs)

    @property
    def pooling_width(self) -> int:
        """Number of channels of the last stage."""
        return RESNET_REDUCTION * self.width


@strict
class VectorSpaceConfig(PreTrainedConfig):
    """Configuration of a `VectorSpaceModel`: the width of the vectors, and the name of their table or model."""

    model_type = "vector_space"

    projection_dim: int = 512
    source: str = ""


for _config in (ClipResNetConfig, VectorSpaceConfig):
    if _config.model_type not in CONFIG_MAPPING:
        AutoConfig.register(_config.model_type, _config)

# Native models that transformers does not have. Their modules are imported on demand, because a saved folder holds
# their code only if it needs it.
OWN_NATIVES = ("mural", "etcl")


def feature_width(config: PreTrainedConfig) -> int:
    """Returns the width of a dual encoder's features; SigLIP's are as wide as those of its image tower."""
    width = getattr(config, "projection_dim", None)
    if width is None and not hasattr(config, "vision_config"):
        raise ValueError(f"cannot tell the feature width of dual encoder {config.model_type!r}: no projection_dim")
    return width or image_width(config.vision_config)


@strict
class MlaBaseConfig(DualEncoderConfig):
    """Configuration of a frozen dual encoder that learns languages, with the arguments of `DualEncoderConfig`.

    Args:
        base_config: The native model, any dual encoder; a dictionary names its `model_type`, such as `clip`.
        native_language, languages: BCP-47 tags of the language of the native model, and of those that are learned.
        acquirer: `mlp`, with a hidden layer of width `acquirer_size`, or `linear`, one matrix (table 1).
        text_text_objective: Loss between a text and its native translation: `mse` between unnormalized features
            (native language transfer, section 3.3), or `nce`, a softmax over cosines (table 3).
        image_text_objective: Loss between a text and its image: `nce` (language exposure, section 3.3), `mse` (table
            3), or `sigmoid`, the loss of SigLIP (Zhai et al. 2023), with the native model's temperature and bias.
        logit_scale: Factor of the cosines in `nce` while the native model is frozen (section 3.3).
        learned_dtype: Precision of the learned parts, if not the native model's; written when a model is saved.
    """

    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {"base_config": SubConfigSpec(AutoConfig, "clip")}

    base_config: dict | PreTrainedConfig | None = None
    native_language: str = "en"
    languages: list[str] | tuple[str, ...] = ("de", "fr", "cs", "zh", "ja")
    acquirer: Literal["mlp", "linear"] = "mlp"
    acquirer_size: int = 256
    text_text_objective: Literal["mse", "nce"] = "mse"
    image_text_objective: Literal["nce", "mse", "sigmoid"] = "nce"
    logit_scale: float | int = 100.0
    learned_dtype: Literal["float64", "float32", "bfloat16", "float16"] | None = None

    def __post_init__(self, **kwargs: object) -> None:
        self.native_language = normalize_language(self.native_language)
        self.languages = [normalize_language(language) for language in self.languages]
        if twice := [language for language in self.languages if self.languages.count(language) > 1]:
            raise ValueError(f"languages={self.languages} names {twice[0]!r} twice")
        if self.native_language in self.languages:
            raise ValueError(f"{self.native_language!r} is the native language: there is nothing to acquire")
        check_positive(self, "acquirer_size", "logit_scale")
        kind = self.base_config.get("model_type") if isinstance(self.base_config, dict) else None
        if kind in OWN_NATIVES and kind not in CONFIG_MAPPING:  # in a saved folder, without the package
            module = import_module(f".configuration_{kind}", __package__)
            own = (each for each in vars(module).values() if getattr(each, "model_type", None) == kind)
            AutoConfig.register(kind, next(own))
        width = kwargs.pop("projection_dim", None)
        super().__post_init__(**kwargs)
        check_projection_dim(self, width)
        self.check_widths()

    def export_code(self, folder: str | os.PathLike) -> None:
        from ..utils.hub_code import add_code

        super().export_code(folder)
        if getattr(self.base_config, "model_type", None) in OWN_NATIVES:  # transformers does not have its code
            add_code(type(self.base_config), folder, "configuration_mla")

    def validate_token_ids(self) -> None:
        """Skips transformers' check: `Trainer` writes the ids of the native tokenizer here, while `vocab_size` belongs
        to the tokenizer of the learned languages."""

    @property
    def projection_dim(self) -> int:
        """Width of the shared space, which the native model determines."""
        return feature_width(self.base_config)

    @property
    def known_languages(self) -> list[str]:
        """Tags of the native language and the learned languages, in the order of their ids."""
        return [self.native_language, *self.languages]

    @property
    def learned_languages(self) -> list[str]:
        """Tags of the languages whose texts are trained towards the features of the native model."""
        return list(self.languages)


@strict
class MlaConfig(MlaBaseConfig):
    """Configuration of an `MlaModel`. It also accepts the arguments of `MlaBaseConfig`. A `language_id` is an index
    into `known_languages`: 0 for the native language, k for the k-th acquired one.

    Args:
        vocab_size, embedding_size: Size and width of the embedding table that the acquired languages share.
        sep_token_id: Id of the token that ends every text in that vocabulary: BERT's [SEP], XLM-R's </s>. A native
            model that pools at its end-of-text token pools the state of this token instead.
        train_embedding: Whether to train the embedding table and its projection with the acquirers, as in the paper.
            If they are frozen, later languages do not change earlier ones.
    """

    model_type = "mla"
    auto_classes = ("AutoConfig",)

    vocab_size: int = 119_547
    embedding_size: int = 768
    sep_token_id: int = 102
    train_embedding: bool = True

    def __post_init__(self, **kwargs: object) -> None:
        check_positive(self, "vocab_size", "embedding_size")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")
        super().__post_init__(**kwargs)


@strict
class MlaStudentConfig(MlaBaseConfig):
    """Configuration of an `MlaStudentModel`, by default M-BERT with CLIP ViT-B/32 (tables 4 and 7). It also accepts
    the arguments of `MlaBaseConfig`; only `acquisition` uses `acquirer` and `acquirer_size`.

    Args:
        text_config: Any transformers text encoder: BERT, XLM-R, mT5's encoder. Without a `model_type`, it is `bert`.
        strategy: `distillation` trains the text encoder and its projection (MKD, table 7; Reimers and Gurevych 2020).
            The others freeze the encoder: `acquisition` trains the projection, and cross-modal acquirers after the
            blocks, which all languages share (CMA, table 4); `projection` trains only the projection.
        text_pooling, text_prompt, text_layer_norm, text_dropout: As in `TwoTowerConfig`, for the student.
        native_texts: Which text encoder reads texts in the native language: the `student`, which then learns that
            language too, or the `native` model, whose embeddings of them stay bitwise the same.
        text_hidden_size: Width of a hidden layer in the student's projection; the paper has none.
    """

    model_type = "mla_student"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        **MlaBaseConfig.sub_configs_defaults,
        "text_config": SubConfigSpec(AutoConfig, "bert", {"vocab_size": 119_547}),
    }

    text_config: dict | PreTrainedConfig | None = None
    strategy: Literal["distillation", "acquisition", "projection"] = "distillation"
    text_pooling: TextPooling = "cls"
    text_prompt: str = ""
    native_texts: Literal["student", "native"] = "student"
    text_hidden_size: int | None = None
    text_layer_norm: bool = False
    text_dropout: float | int = 0.0

    def __post_init__(self, **kwargs: object) -> None:
        check_positive(self, "text_hidden_size")
        check_probabilities(text_dropout=self.text_dropout, below_one=True)
        super().__post_init__(**kwargs)

    @property
    def learned_languages(self) -> list[str]:
        """The languages that the student reads, with or without the native one."""
        return self.known_languages if self.native_texts == "student" else list(self.languages)


@strict
class RidgeConfig(MlaBaseConfig):
    """Configuration of a `RidgeModel`; of `MlaBaseConfig`, only the native model and the languages apply.

    Args:
        text_config, text_pooling, text_prompt: As in `TwoTowerConfig`, for the frozen text encoder that also reads the
            languages; with `text_config=None`, the model reads only characters.
        ngram_rows: Number of rows into which the character n-grams of each language are hashed.
        longest_cjk_ngram: Of Chinese, Japanese and Korean characters; the shortest is one. 0 reads them like others.
        rank: Number of predicted directions of the embeddings; at most their width.
        gloss_weights: Weights of the native embedding of the word-by-word translation, relative to the predicted
            direction: one for the shared map, then one for each language. Empty without glossaries.
    """

    model_type = "ridge"
    auto_classes = ("AutoConfig",)

    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        **MlaBaseConfig.sub_configs_defaults,
        "text_config": SubConfigSpec(AutoConfig, "bert", optional=True),
    }

    languages: list[str] | tuple[str, ...] = ()
    text_config: dict | PreTrainedConfig | None = None
    text_pooling: TextPooling = "cls"
    text_prompt: str = ""
    ngram_rows: int = 8192
    shortest_ngram: int = 2
    longest_ngram: int = 5
    longest_cjk_ngram: int = 0
    rank: int = 192
    gloss_weights: list[float] | tuple[float, ...] = ()

    def __post_init__(self, **kwargs: object) -> None:
        check_positive(self, "ngram_rows", "rank", "shortest_ngram")
        if self.shortest_ngram > self.longest_ngram:
            raise ValueError(f"longest_ngram={self.longest_ngram} must be at least shortest_ngram")
        if len(self.gloss_weights) not in (0, 1 + len(self.languages)):
            raise ValueError(f"{len(self.languages)} languages need one more gloss_weights than that")
        super().__post_init__(**kwargs)
        self.rank = min(self.rank, self.projection_dim)
