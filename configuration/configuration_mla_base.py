"""Configuration that MLA and its baselines share: a frozen dual encoder, and the languages that learn to use its
embeddings (Zhang et al. 2022)."""

from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..utils.languages import normalize_language
from .configuration_etcl import EtclConfig
from .configuration_mural import MuralConfig
from .configuration_two_tower import DualEncoderConfig, check_projection_dim, feature_width

# ---- ResNets of CLIP ----
# Configuration of the ResNets of OpenAI's CLIP (Radford et al. 2021, section 2.4), which transformers does not have.
#
# The defaults are those of RN50. They are the image towers of the ResNet CLIPs that MLA's authors trained (Zhang et
# al. 2022, table 2).

REDUCTION = 32  # of height and width: a position of the last stage for each square of so many pixels


@strict
class ClipResNetConfig(PreTrainedConfig):
    """Configuration of a `ClipResNetModel`.

    Args:
        width: Number of channels of the first stage; each stage has four times as many outputs.
        depths: Number of blocks of each of the four stages.
        hidden_size: Width of the pooled features, CLIP's shared space.
        num_attention_heads: Number of heads of the attention that pools the last stage.
        image_size: Height and width of images in pixels, a multiple of 32.
        num_channels: Number of channels of images.
        initializer_range: Standard deviation of the normal distribution that initializes convolutions.

    Raises:
        ValueError: if a key is unknown, or a value is impossible.

    Examples:
        >>> config = ClipResNetConfig(depths=[3, 4, 23, 3], hidden_size=512)  # RN101
    """

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
        if len(self.depths) != 4 or min(self.depths) < 1:
            raise ValueError(f"depths={self.depths} must be four numbers of blocks")
        if self.image_size < REDUCTION or self.image_size % REDUCTION:
            raise ValueError(f"image_size={self.image_size} must be a multiple of {REDUCTION}")
        if self.pooling_width % self.num_attention_heads:
            raise ValueError(f"{self.num_attention_heads} heads do not divide {self.pooling_width} channels")
        super().__post_init__(**kwargs)

    @property
    def pooling_width(self) -> int:
        """Number of channels of the last stage."""
        return REDUCTION * self.width


# ---- Native models and the languages that are learned ----

# The native model may be a MURAL, an ETCL, or a CLIP with a ResNet, which transformers does not have. Where babelens
# is not installed, the copies of their code beside this file register them.
for _own in (MuralConfig, EtclConfig, ClipResNetConfig):
    if _own.model_type not in CONFIG_MAPPING:
        AutoConfig.register(_own.model_type, _own)


@strict
class MlaBaseConfig(DualEncoderConfig):
    """Configuration of a frozen dual encoder, called the native model, and of the languages that are learned.

    The arguments of `DualEncoderConfig` are accepted too.

    Args:
        base_config: Configuration of the native model, any dual encoder, by default CLIP ViT-B/32. A dictionary names
            its `model_type`, such as `clip`, `siglip2` or `mural`.
        native_language: BCP-47 tag of the language that the native model reads without training.
        languages: BCP-47 tags of the other languages, which are learned.
        acquirer: Structure of the acquirers: `mlp`, with a hidden layer, or `linear`, a single matrix (table 1).
        acquirer_size: Width of the hidden layer of `mlp` acquirers.
        text_text_objective: Loss between a text and its native translation: `mse` between features that are not
            normalized (native language transfer, section 3.3), or `nce`, a softmax over cosines (table 3).
        image_text_objective: Loss between a text and its image: `nce` (language exposure, section 3.3), `mse` (table
            3), or `sigmoid`, the loss of SigLIP (Zhai et al. 2023), with the native model's own temperature and bias.
        logit_scale: Factor of the cosines in `nce` while the native model is frozen (section 3.3).
        learned_dtype: Precision of the parts beside the native model where it is not the native model's, such as
            `float32` beside a model in bfloat16. Models write it when they are saved.

    Raises:
        LanguageTagError: if a tag names no language.
        ValueError: if a key is unknown, a language is named twice or is the native one, or a value is impossible.
    """

    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "base_config": SubConfigSpec(config_class=AutoConfig, model_type="clip", init_kwargs={})
    }

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
        for language in self.languages:
            if self.languages.count(language) > 1:
                raise ValueError(f"languages={self.languages} names {language!r} twice")
        if self.native_language in self.languages:
            raise ValueError(f"{self.native_language!r} is the native language: there is nothing to acquire")
        for name in ("acquirer_size", "logit_scale"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        width = kwargs.pop("projection_dim", None)
        super().__post_init__(**kwargs)
        check_projection_dim(self, width)
        self.check_widths()

    def validate_token_ids(self) -> None:
        """Does nothing: the ids of padding, beginning and end, which transformers' trainer writes, are those of the
        native tokenizer, and `vocab_size` is of the vocabulary of learned languages. transformers would warn."""

    @property
    def projection_dim(self) -> int:
        """Width of the shared space, which the native model determines."""
        return feature_width(self.base_config)

    @property
    def known_languages(self) -> list[str]:
        """Tags of the native language and of the learned ones, in the order of their ids."""
        return [self.native_language, *self.languages]

    @property
    def learned_languages(self) -> list[str]:
        """Tags of the languages whose texts are trained towards the features of the native model."""
        return list(self.languages)
